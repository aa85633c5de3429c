"""Tells reads of sharded variables which graphs XLA compiles, or `tf.data` calls.

TensorFlow knows `jit_compile=True` before it traces a function, but records it
in the graph only afterwards. A function that a compiled one calls is traced
once more for it: the trace from outside reads parts of variables, which XLA
can't. Checked on TensorFlow 2.18 and 2.21.
"""

from typing import Any

from kerasmgpu.engine.private_names import (
    attributes,
    function_context,
    tracing_compilation,
)
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime import compiled_reads
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable

_OF_DATA = "_tf_data_function"
"""Attribute of functions that `tf.data` calls (`structured_function.py`)."""


@seam(tracing_compilation, "_create_concrete_function")
def _create(
    original: Original,
    function_type: Any,
    type_context: Any,
    func_graph: Any,
    tracing_options: Any,
) -> Any:
    given = tracing_options.attributes or {}
    if given.get(attributes.XLA_COMPILE):
        compiled_reads.mark(func_graph)
    if given.get(_OF_DATA):
        compiled_reads.mark_data(func_graph)
    return original(function_type, type_context, func_graph, tracing_options)


@seam(function_context, "make_function_context")
def _context(original: Original, *args: Any, **kwargs: Any) -> Any:
    made = original(*args, **kwargs)
    if not ShardedVariable.exists or compiled_reads.compiled_graph() is None:
        return made
    return made._replace(context=made.context._replace(xla_context_id=-1))
