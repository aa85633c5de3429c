"""One file per class of operations.

`table` says what a rule is. Each file declares its operations, once each, with
`records.operation`.
"""

from kerasmgpu.partitioner.rules import (  # noqa: F401
    contractions,
    control_flow,
    elementwise,
    indexing,
    integers,
    lists,
    others,
    per_replica,
    random,
    recurrent,
    reductions,
    shapes,
    sparse,
    state,
    windows,
)
