"""Shared parts of the recipes: flags, the folder of a run, its training."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
