"""The devices that tests put replicas on: logical CPUs, or parts of a GPU.

    KERASMGPU_TEST_GPUS=8 python -m pytest tests/strategies tests/parity

divides the first GPU into eight logical ones. Tests that are about CPUs, or that
start processes of their own, stay on CPUs. Without a GPU,

    KERASMGPU_TEST_AS_GPUS=1 python -m pytest tests/strategies tests/parity

runs the program that GPUs would get on logical CPUs.
"""

import contextlib
import os

NUM_GPUS = int(os.environ.get("KERASMGPU_TEST_GPUS", "0"))
"""Logical GPUs to divide the first GPU into; 0 for tests on the CPU."""

MEGABYTES = int(os.environ.get("KERASMGPU_TEST_GPU_MEGABYTES", "512"))
"""Memory of a logical GPU."""

AS_GPUS = not NUM_GPUS and "KERASMGPU_TEST_AS_GPUS" in os.environ
"""Whether logical CPUs run the program that GPUs would get."""

_IDS = "GPUs' look-ups don't report ids that are out of range"
_BITS = "sums on GPUs are in another order each time: the last bits differ"
_SHARES = "about batches that come whole, as on CPUs: GPUs get shares"
_MEMORY = "about replicas that share memory, as CPUs do"
_NAMES = "names CPUs"
_KEYS = "collectives between GPUs have keys, new ones in each program"

NOT_ON_GPUS = {
    "callbacks/test_audit.py::test_a_broken_device_is_named": _NAMES,
    "callbacks/test_audit.py::test_a_device_with_other_bits": _NAMES,
    "callbacks/test_audit.py::test_a_fault_of_a_sum_is_named": _MEMORY,
    "callbacks/test_audit.py::test_a_kernel_that_is_not_determin": _NAMES,
    "callbacks/test_audit.py::test_a_run_has_the_same_bits": _BITS,
    "callbacks/test_cost.py::test_a_checked_step_computes_no_logs": _MEMORY,
    "engine/test_devices.py": _NAMES,
    "engine/test_feeds.py::test_whole_batches_are_not_in_shares": _SHARES,
    "finders/test_learning_rate.py::test_a_schedule_has_no_effect": _BITS,
    "finders/test_learning_rate.py::test_the_model_and_generators": _BITS,
    "_keras/test_norms.py::test_norms_are_exact": _BITS,
    "_keras/test_repeated_updates.py": _KEYS,
    "parity/test_meshes.py::test_a_case_on_a_mesh_ends_like_one_device"
    "[masked loss per token]": "cuDNN refuses its masks, on one device, too",
    "parity/test_parity.py::test_double_precision_agrees_to_its_last_digits"
    "[masked loss per token]": "cuDNN refuses its masks, on one device, too",
    "parity/test_parity.py::test_replicas_follow_one_device"
    "[masked loss per token": "cuDNN refuses its masks, on one device, too",
    "partitioner/passes/test_cluster_for_xla.py": _NAMES,
    "partitioner/passes/test_outline.py": _MEMORY,
    "partitioner/rules/test_tables.py::test_ids_out_of_range_raise": _IDS,
    "partitioner/rules/test_tables.py::test_updates_out_of_range": _IDS,
    "partitioner/test_compilation.py::test_replicas_have_the_same"
    "_clusters[True]": _MEMORY,
    "partitioner/test_one_device_step.py::test_it_leaves": _SHARES,
    "partitioner/test_one_device_step.py::test_watched_steps": _SHARES,
    "partitioner/test_oracle.py": _KEYS,
    "strategies/test_error_places.py": _IDS,
    "strategies/test_failing_steps.py::test_three_replicas": _BITS,
    "strategies/test_functions.py::test_devices_and_functions": _NAMES,
    "strategies/test_recomputation.py::test_weights_are_those": _BITS,
    "strategies/test_strategies.py::test_nccl_is_refused": _NAMES,
    "strategies/test_threads.py::test_steps_of_two_threads_run": _KEYS,
}
"""Beginnings of tests that say nothing on GPUs, in `tests/`, and why."""

_HIDDEN = "the command hides GPUs, which this process has seen by then"
_MORE = "GPUs have more figures, and a callback more"
_PREDICTED = "predicts what a step of CPUs needs"

NOT_ON_CARDS = {
    "callbacks/test_choose_xla.py::test_automatic_is_on_gpus": _NAMES,
    "callbacks/test_default_callbacks.py::test_a_callback_takes": _MORE,
    "callbacks/test_default_callbacks.py::test_a_run_is_recorded": _BITS,
    "callbacks/test_default_callbacks.py::test_all_are_there": _MORE,
    "callbacks/test_default_callbacks.py::test_each_is_left_out": _MORE,
    "callbacks/test_default_callbacks.py::test_without_a_folder": _MORE,
    "callbacks/test_device_stats.py::test_without_gpus": _MORE,
    "callbacks/test_hang_watch.py::test_the_place_is_named_once"
    "[callback]": _MORE,
    "callbacks/test_monitors.py::test_a_profile_has_the_ops": _NAMES,
    "callbacks/test_monitors.py::test_figures_of_epochs": _MORE,
    "callbacks/test_progress.py::test_a_terminal_shows": _MORE,
    "callbacks/test_progress.py::test_the_line_follows": _MORE,
    "callbacks/test_run_record.py::test_run_json_is_what": _NAMES,
    "callbacks/test_throughput.py::test_replicas_share_the_rate": _NAMES,
    "callbacks/test_throughput.py::test_rows_of_incomplete": _NAMES,
    "memory/test_first_parts.py::test_auto_begins_with": _PREDICTED,
    "memory/test_memory_advice.py": _PREDICTED,
    "memory/test_step_memory.py::test_micro_batches_divide": _PREDICTED,
    "test_placement.py": _NAMES,
    "verify/test_faults.py": _HIDDEN,
}
"""The same for logical GPUs; not left out where CPUs run GPUs' program."""


def why_not_on_gpus(test):
    """Why a test is left out on GPUs; `None` if it runs there.

    Args:
        test: String, its name for pytest.
    """
    name = test.removeprefix("tests/")
    reasons = NOT_ON_GPUS if AS_GPUS else NOT_ON_GPUS | NOT_ON_CARDS
    found = (why for start, why in reasons.items() if name.startswith(start))
    return next(found, None)


def device_name(index):
    """The name of the device of replica `index`, such as `"CPU:1"`."""
    return f"{'GPU' if NUM_GPUS else 'CPU'}:{index}"


def device_names(count):
    """The names of the devices of `count` replicas."""
    return [device_name(index) for index in range(count)]


@contextlib.contextmanager
def running_as_gpus(is_so=True):
    """Replicas on logical CPUs run the program that GPUs would get, if so."""
    from kerasmgpu.engine import devices

    before = devices.runs_as_gpus()
    devices._runs_as_gpus = is_so
    try:
        yield
    finally:
        devices._runs_as_gpus = before
