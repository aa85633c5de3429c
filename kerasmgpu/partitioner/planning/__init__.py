"""Infers sizes, and plans how each tensor is distributed over the replicas."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
