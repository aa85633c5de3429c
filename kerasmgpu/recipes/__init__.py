"""Thin recipes: published experiments on any number of replicas."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
