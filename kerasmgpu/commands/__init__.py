"""Shared parts of commands (start, child processes, the user's model and data,
plots); scaling report."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
