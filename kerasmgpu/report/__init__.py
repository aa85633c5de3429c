"""One HTML page about one or several runs, from the files in their folders."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
