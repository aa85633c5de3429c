"""Options with which TensorFlow runs written functions."""

from tensorflow.core.protobuf import config_pb2

CONFIG = config_pb2.ConfigProto(allow_soft_placement=True)
"""Options to run a function without Grappler, the graph optimiser.

The graph was simplified before it was written for the replicas; Grappler would
simplify each replica's copy of it."""
CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True

SERIALIZED = CONFIG.SerializeToString()
"""The options as an attribute of a call."""
