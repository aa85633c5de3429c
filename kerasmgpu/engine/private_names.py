"""Private names of TensorFlow, for all modules outside of the partitioner.

A release of TensorFlow that moves one of them is dealt with here. Checked on
the versions of `engine.TENSORFLOW_RANGE`.
"""

from tensorflow.python import pywrap_tfe
from tensorflow.python.client import pywrap_tf_session as tf_session
from tensorflow.python.data.ops.multi_device_iterator_ops import (
    OwnedMultiDeviceIterator,
)
from tensorflow.python.distribute import distribute_lib, values_util
from tensorflow.python.distribute.collective_all_reduce_strategy import (
    CollectiveAllReduceExtended,
)
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce
from tensorflow.python.distribute.mirrored_run import (
    _MirroredReplicaThread as MirroredReplicaThread,
)
from tensorflow.python.distribute.mirrored_strategy import MirroredExtended
from tensorflow.python.distribute.values import DistributedVariable
from tensorflow.python.eager import backprop, context, tape
from tensorflow.python.eager.polymorphic_function import (
    attributes,
    function_context,
    tracing_compilation,
)
from tensorflow.python.framework import auto_control_deps_utils
from tensorflow.python.framework import config as configuration
from tensorflow.python.framework import ops as graphs
from tensorflow.python.ops import (
    gen_resource_variable_ops,
    resource_variable_ops,
    variable_scope,
)
from tensorflow.python.saved_model.load import (
    _WrapperFunction as LoadedFunction,
)

__all__ = [
    "CollectiveAllReduce",
    "CollectiveAllReduceExtended",
    "DistributedVariable",
    "LoadedFunction",
    "MirroredExtended",
    "MirroredReplicaThread",
    "OwnedMultiDeviceIterator",
    "attributes",
    "auto_control_deps_utils",
    "backprop",
    "configuration",
    "context",
    "distribute_lib",
    "function_context",
    "gen_resource_variable_ops",
    "graphs",
    "pywrap_tfe",
    "resource_variable_ops",
    "tape",
    "tf_session",
    "tracing_compilation",
    "values_util",
    "variable_scope",
]
