"""The rules: one file per class of operations.

`table` says what a rule is. Each file declares its operations, once each, with
`records.operation`. Docstrings of rules name an operation's inputs in
parentheses, for example `(params, indices, axis)`.
"""

from kerasmgpu import _import_on_use
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

_import_on_use(__name__)
