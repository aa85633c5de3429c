"""The one-device step: its graph, symbolic sizes and order of effects."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
