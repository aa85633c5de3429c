"""What programs are made of; one file per class of operations.

An operation is a function of a `scope.Scope` that adds lines to it.
"""

import importlib

from tests.partitioner.operations.table import OPERATIONS

for _name in (
    "elementwise",
    "reductions",
    "shapes",
    "contractions",
    "windows",
    "indexing",
    "random",
    "state",
    "control_flow",
):
    importlib.import_module(f"{__name__}.{_name}")

__all__ = ["OPERATIONS"]
