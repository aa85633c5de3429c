"""Traces, programs and what runs them."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
