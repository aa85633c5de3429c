"""Traces a one-device function, partitions it over replicas, and runs it."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
