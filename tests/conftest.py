"""Shared fixtures; creates eight logical CPU devices in place of GPUs.

`tests.devices` says how the tests are run on a GPU.
"""

import collections
import gc
import os
import signal

from tests.devices import (
    AS_GPUS,
    MEGABYTES,
    NUM_GPUS,
    running_as_gpus,
    why_not_on_gpus,
)

if not NUM_GPUS:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Tests run compiled code a few times only: fast compilation matters more.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Programs that tests start compile anew, and leave nothing in the user's folder.
os.environ.setdefault("KERASMGPU_XLA_CACHE", "0")

import weakref

import keras
import pytest
import tensorflow as tf
from absl import logging

pytest_plugins = ("tests.cpu_seconds",)

# Under nohup and in the background these signals are ignored, which programs
# that tests start and end would inherit. A handler is not inherited.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def pytest_addoption(parser):
    parser.addoption(
        "--all",
        action="store_true",
        help="Run tests marked `slow`, too (jobs of several workers, programs "
        "in processes of their own, further settings of what others run), and "
        "those marked `nightly` (whole tables, of which the other tests are "
        "samples).",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out without --all.")
    config.addinivalue_line(
        "markers",
        "nightly(but=0): left out without --all, and of .ci/run; of a "
        "parametrised test all but the first quick and slow cases.",
    )
    config.addinivalue_line(
        "markers",
        "job_case(num_workers, devices, name): the case of a shared job whose "
        "outcome a test asks for; see `tests/workers/shared_program.py`.",
    )


@pytest.hookimpl(tryfirst=True)  # Before pytest's own `-m`.
def pytest_collection_modifyitems(config, items):
    _keep_first_cases(items)
    for item in items if NUM_GPUS or AS_GPUS else ():
        reason = why_not_on_gpus(item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
    if config.getoption("--all"):
        return
    left_out = {
        item
        for item in items
        if item.get_closest_marker("slow") or item.get_closest_marker("nightly")
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _keep_first_cases(items):
    """Takes the marker `nightly(but=…)` from the first cases of each test."""
    cases = collections.Counter()
    for item in items:
        markers = list(item.iter_markers("nightly"))
        if not markers or not all(marker.kwargs for marker in markers):
            continue
        (marker,) = markers
        is_slow = item.get_closest_marker("slow") is not None
        test = item.path, item.originalname, is_slow
        cases[test] += 1
        if cases[test] <= marker.kwargs["but"]:
            item.own_markers.remove(marker)


def pytest_collection_finish():
    """Leaves out of Python's garbage collections what has been imported."""
    freeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_after_each_module():
    """Leaves out of them what a module's tests leave behind, too.

    TensorFlow and Keras keep traces and graphs for the life of the process:
    collections that look through them all took a tenth to a quarter of the CPU
    time of four samples, each in a process of its own.
    """
    yield
    freeze()


@pytest.fixture(scope="module", autouse=True)
def verbosity_is_restored():
    """A command that a module runs in this process hides its own log only."""
    verbosity, level = logging.get_verbosity(), logging.get_absl_logger().level
    yield
    logging.set_verbosity(verbosity)
    logging.get_absl_logger().setLevel(level)


def freeze():
    gc.collect()
    gc.freeze()


(_cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    _cpu, [tf.config.LogicalDeviceConfiguration()] * 8
)
if NUM_GPUS:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("GPU")[0],
        [tf.config.LogicalDeviceConfiguration(MEGABYTES)] * NUM_GPUS,
    )
    # Its products have ten bits of mantissa: replicas' rows would differ.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    # Plain Keras compiles on GPUs, and not under a strategy: XLA draws other
    # random numbers.
    keras.Model._resolve_auto_jit_compile = lambda model: False


@pytest.fixture(scope="session", autouse=True)
def iterators_freed_in_the_background():
    """Frees all data set iterators in the background.

    Freeing one can take up to a minute; see `kerasmgpu.engine.freed_iterators`,
    which `fit` uses under our strategies. This fixture does it for iterators of
    plain Keras and of `for batch in dataset`, which Python may collect during a
    later test.
    """
    from kerasmgpu.engine import freed_iterators, pipelines

    free, iterate = freed_iterators.free, tf.data.Dataset.__iter__
    known = weakref.WeakSet()

    def free_once(iterator):
        if iterator not in known:
            known.add(iterator)
            free(iterator)

    def iterate_and_free(dataset):
        iterator = iterate(dataset)
        # Python code of a test's data must not run after the test.
        if not tf.inside_function() and not pipelines.runs_python(dataset):
            free_once(iterator)
        return iterator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freed_iterators, "free", free_once)
        patch.setattr(tf.data.Dataset, "__iter__", iterate_and_free)
        yield


@pytest.fixture(scope="session")
def replicas():
    """Function that returns a strategy with the given number of replicas."""
    import functools

    import kerasmgpu

    @functools.cache
    def strategy(num_replicas):
        return kerasmgpu.strategy(num_replicas)

    return strategy


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder that all of pytest's processes share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def on_one_device(shared_folder):
    """Function from a case of the parity table to its outcome on one device."""
    from tests.parity import one_device

    folder = shared_folder / "one-device"
    folder.mkdir(exist_ok=True)
    return lambda case: one_device.outcome(case, folder)


@pytest.fixture(scope="session", autouse=AS_GPUS)
def all_as_gpus():
    """All replicas run the program that GPUs would get."""
    with running_as_gpus():
        yield


@pytest.fixture
def like_gpus():
    """Like `replicas`, which run the program that GPUs would get."""
    import kerasmgpu

    with running_as_gpus():
        yield kerasmgpu.strategy


@pytest.fixture
def copies(monkeypatch):
    """Lists the tensors of each call in whose place operations are copied."""
    from kerasmgpu.partitioner.runtime import repeated

    found, original = [], repeated._Recorded.copy

    def copy(self, graph, tensors):
        found.append(tensors)
        return original(self, graph, tensors)

    monkeypatch.setattr(repeated._Recorded, "copy", copy)
    return found
