"""Data of the recipes: files become arrays, arrays become `tf.data` datasets.

Import the modules themselves (`from kerasmgpu.data import movielens`): reading
and splitting ratings needs no TensorFlow, so nothing is imported here.
"""
