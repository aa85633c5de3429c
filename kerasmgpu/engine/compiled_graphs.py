"""Tells reads of sharded variables which graphs XLA compiles.

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


@seam(tracing_compilation, "_create_concrete_function")
def _create(
    original: Original,
    function_type: Any,
    type_context: Any,
    func_graph: Any,
    tracing_options: Any,
) -> Any:
    if (tracing_options.attributes or {}).get(attributes.XLA_COMPILE):
        compiled_reads.mark(func_graph)
    return original(function_type, type_context, func_graph, tracing_options)


@seam(function_context, "make_function_context")
def _context(original: Original, *args: Any, **kwargs: Any) -> Any:
    made = original(*args, **kwargs)
    if not ShardedVariable.exists or compiled_reads.compiled_graph() is None:
        return made
    return made._replace(context=made.context._replace(xla_context_id=-1))
