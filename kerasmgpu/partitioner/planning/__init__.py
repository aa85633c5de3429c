"""Infers sizes, and plans how each tensor is distributed over the replicas."""
