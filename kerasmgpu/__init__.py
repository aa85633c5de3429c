"""kerasmgpu: Keras training on several GPUs, with the results of one device.

Importing this package initialises no device and does not import TensorFlow:
public names are loaded on first use. Once Keras is imported, programs of
`keras.distribution` work on TensorFlow (`_keras_hook.py`); what XLA compiles is
kept from the first list of TensorFlow's devices on (`_tensorflow_hook.py`).
"""

import sys


def _name_interrupts(kind, error, trace, show=sys.excepthook):
    if kind is KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    else:
        show(kind, error, trace)


if sys.argv and (sys.argv[0] == "-m" or sys.argv[0].endswith("/bin/kerasmgpu")):
    # `python -m kerasmgpu…`, which is looking for the module, or `kerasmgpu`:
    # Ctrl-C while a command imports is no defect that needs a traceback.
    # Installed before anything else is imported.
    sys.excepthook = _name_interrupts

import importlib  # noqa: E402
import importlib.util  # noqa: E402
import types  # noqa: E402

from kerasmgpu import _keras_hook, _tensorflow_hook  # noqa: E402

__version__ = "0.3.0"

_HOMES = {
    "MirroredStrategy": "kerasmgpu.strategies",
    "MultiWorkerMirroredStrategy": "kerasmgpu.strategies",
    "strategy": "kerasmgpu.strategies",
    "partition": "kerasmgpu.strategies.functions",
    "make_parallel": "kerasmgpu.strategies.functions",
    "is_first_worker": "kerasmgpu.job.cluster",
    "notebook_launch": "kerasmgpu.launch.notebook",
    "WorkerError": "kerasmgpu.launch.notebook",
    "find_batch_size": "kerasmgpu.finders",
    "find_learning_rate": "kerasmgpu.finders",
    "deterministic": "kerasmgpu.strategies.determinism",
    "compare_input": "kerasmgpu.strategies.input_speed",
    "find_layout": "kerasmgpu.strategies.found_layout",
    "layout_report": "kerasmgpu.strategies.layout_report",
    "InputError": "kerasmgpu.errors",
    "global_batch_size": "kerasmgpu.replica_arithmetic",
    "per_replica_batch_sizes": "kerasmgpu.replica_arithmetic",
    "scale_learning_rate": "kerasmgpu.replica_arithmetic",
}
"""Maps a public name to its module."""

_MODULES = {
    "callbacks": "kerasmgpu.callbacks",
    "check": "kerasmgpu.check",
    "cluster": "kerasmgpu.job.cluster",
    "memory": "kerasmgpu.memory",
    "placement": "kerasmgpu.placement",
    "replica_arithmetic": "kerasmgpu.replica_arithmetic",
    "schedules": "kerasmgpu.schedules",
    "verify": "kerasmgpu.verify",
}
"""Maps a public attribute of this package to the module that it is."""

_FORMER = {
    "kerasmgpu.job_watch": "kerasmgpu.job.watch",
    "kerasmgpu.partitioner.report": "kerasmgpu.partitioner.runtime.report",
    "kerasmgpu.rendezvous": "kerasmgpu.job.rendezvous",
    "kerasmgpu.scaling": "kerasmgpu.replica_arithmetic",
}
"""Maps former names of modules to today's; as attributes, not in `__all__`."""

__all__ = [*_HOMES, *_MODULES]


_keras_hook.install()
_tensorflow_hook.install()


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    return _module("kerasmgpu", name)


def __dir__():
    return sorted([*globals(), *__all__])


def _import_on_use(package, call=None, homes=None):
    """Makes a package's modules its attributes, imported on first use.

    With `call`, the package can be called as this function. `homes` maps other
    attributes to the modules of the package that define them.
    """
    module = sys.modules[package]

    def get(name):
        if homes and name in homes:
            home = importlib.import_module(f"{package}.{homes[name]}")
            return getattr(home, name)
        return _module(package, name)

    module.__getattr__ = get
    if call is not None:
        methods = {"__call__": staticmethod(call)}
        module.__class__ = type("Callable", (types.ModuleType,), methods)


def _module(package, name):
    full = f"{package}.{name}"
    full = _FORMER.get(full, full)
    if name.startswith("__") or importlib.util.find_spec(full) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(full)
