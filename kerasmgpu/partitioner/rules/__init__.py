"""One file per class of operations; `table` says what a rule is."""

from kerasmgpu.partitioner.rules import (  # noqa: F401
    contractions,
    control_flow,
    elementwise,
    indexing,
    integers,
    lists,
    own,
    random,
    recurrent,
    reductions,
    shapes,
    sparse,
    state,
    windows,
)
