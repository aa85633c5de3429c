"""Predicted memory of a step against what TensorFlow's allocator counts."""
