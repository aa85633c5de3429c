"""Sound programs pass and planted faults are found, with the right words.

The runs are those of the command, but in this process, which saves starting
TensorFlow for each, and short: where a test isn't about precision, in float64
only, and one step, of 13 rows, where it isn't about training.
"""

import contextlib
import functools
import json
import re

import keras
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.verify import (
    all_runs,
    parity_report,
    recording,
    training,
    verification,
)
from kerasmgpu.verify.outcome import Outcome
from tests.verify import programs

ONE_STEP = {"steps": 1}
BOTH = {"steps": 1, "float64": False}
"""One step in the program's precision, and in float64."""


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@contextlib.contextmanager
def precision(name):
    """Keras's defaults are those of a new process inside, and behind it."""
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


class InProcess:
    """Stands in for `runs.Runs`."""

    def __init__(self, folder, build, **job):
        self.folder = folder
        self.names = []
        self.job = {
            "build": f"tests.verify.programs:{build}",
            "data": None,
            "data_file": None,
            "steps": 2,
            "global_batch_size": None,
            "float64": True,
            "seed": 7,
            "start": None,
            "devices": 2,
            "sets_distribution": False,
            **job,
        }

    def outcome(self, name, num_replicas=None, nudge=None, float64=None):
        keras.utils.clear_session(free_memory=False)
        float64 = self.job["float64"] if float64 is None else float64
        folder = self.folder / str(len(self.names))
        folder.mkdir()
        self.names.append(name)
        job = {**self.job, "num_replicas": num_replicas, "nudge": nudge}
        job.update(folder=str(folder), float64=float64)
        phases = []
        try:
            with precision("float64" if float64 else "float32"):
                facts = training.train(job, tell=phases.append)
        except InputError:
            raise
        except (
            ZeroDivisionError,
            tf.errors.OpError,
            ValueError,
            TypeError,
        ) as error:
            # As `verify.child` does.
            raise InputError(f"{phases[-1]} raised {error}") from error
        # As through a file, which makes lists of tuples.
        return Outcome(folder, json.loads(json.dumps(facts)))


@pytest.fixture(scope="module")
def verify(tmp_path_factory):
    """Function that compares a program's runs, once for all tests."""

    @functools.cache
    def verify(build, replica_counts=(2,), shard=None, tolerance=None, **job):
        job["strategy"] = {"shard": shard, "min_shard_bytes": 0}
        in_process = InProcess(tmp_path_factory.mktemp("runs"), build, **job)
        return all_runs.compare_all(
            in_process, replica_counts, tolerance, lambda line: None
        )

    return verify


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "program, counts",
    [
        ("sound", (2, 4)),
        pytest.param("masked_tokens", (2,), marks=pytest.mark.slow),
        ("subclassed", (4,)),
        ("clears_session", (2,)),
        ("unseeded_start", (2,)),
        ("batch_dependent_state", (2,)),
        ("running_maximum", (2,)),
        ("batch_dependent_output", (2,)),
        ("metric_that_is_no_sum", (2,)),
    ],
)
def test_sound_programs_are_in_parity(verify, program, counts):
    result = verify(program, replica_counts=counts)
    assert result["in_parity"], result
    assert tuple(run["replicas"] for run in result["runs"]) == counts
    assert all(run["causes"] == [] for run in result["runs"])
    # The default batch leaves shares unequal on 2 and on 4 replicas.
    assert result["batch_rows"][-1] % 2 == 1


@pytest.mark.parametrize(
    "program, message",
    [
        ("returns_nothing", "must return a compiled keras.Model, or (model"),
        ("not_compiled", "that is not compiled; call `model.compile(…)`"),
        ("no_such", "programs has no function 'no_such'"),
    ],
)
def test_functions_that_return_no_compiled_model(verify, program, message):
    with pytest.raises(InputError, match=re.escape(message)):
        verify(program)


def only_cause(result, replicas=2):
    (run,) = [r for r in result["runs"] if r["replicas"] == replicas]
    assert not result["in_parity"] and not run["in_parity"]
    (cause,) = run["causes"]
    return run, cause


@pytest.mark.nightly
def test_layer_that_asks_for_devices(verify):
    run, cause = only_cause(verify("layer_that_asks_for_devices", **ONE_STEP))
    assert run["first_step"] == 1
    assert run["first_layer"] == "scaled"
    assert "layer 'scaled' gives another result" in cause
    assert "the number of devices" in cause


def test_tables_name_the_layer(verify, capsys):
    result = verify("layer_that_asks_for_devices", **ONE_STEP)
    parity_report.print_tables(result)
    shown = capsys.readouterr().out
    assert "scaled ← first to differ" in shown
    assert "A training step on replicas" in shown
    assert "OUT OF PARITY with 2 replicas" in shown
    assert json.loads(verification.to_json(result))["in_parity"] is False


@pytest.mark.nightly
def test_a_mesh_is_compared_and_named(verify, capsys):
    result = verify("on_a_mesh", replica_counts=(4,), **ONE_STEP)
    parity_report.print_tables(result)
    shown = capsys.readouterr().out
    assert "mesh batch=2, model=2" in shown
    assert "IN PARITY" in shown
    (run,) = result["runs"]
    assert run["mesh"] == {"batch": 2, "model": 2}


@pytest.mark.slow
def test_a_fault_on_a_mesh_is_found(verify, capsys):
    result = verify(
        "layer_that_asks_for_a_mesh", replica_counts=(4,), **ONE_STEP
    )
    run, _ = only_cause(result, 4)
    assert run["first_layer"] == "scaled"
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "OUT OF PARITY with mesh batch=2, model=2." in shown


def test_a_mesh_divides_what_it_says_and_nothing_else(verify):
    message = "says what is divided. Received: shard='weights'"
    with pytest.raises(InputError, match=message):
        verify("on_a_mesh", replica_counts=(4,), shard="weights", **ONE_STEP)


def test_copies_of_a_part_are_compared():
    programs.on_a_mesh()
    layer = keras.layers.Dense(4, name="dense")
    layer.build((None, 6))
    assert recording.spread_of(layer.kernel) == 0
    first, *_ = layer.kernel.value.copies_of_parts()
    assert len(first) == 2
    first[1].assign_add([[0.5, 0]] * 6)
    assert recording.spread_of(layer.kernel) == 0.5
    keras.distribution.set_distribution(None)


def test_step_that_asks_for_devices(verify):
    run, cause = only_cause(verify("step_that_asks_for_devices", **ONE_STEP))
    assert run["update_ratio"] == pytest.approx(0.5, abs=1e-4)
    assert "the first update is 0.5 times that of one device" in cause


@pytest.mark.nightly
def test_metric_that_asks_for_devices(verify):
    result = verify(
        "metric_that_asks_for_devices", replica_counts=(2, 4), **ONE_STEP
    )
    run, cause = only_cause(result)
    assert run["checks"]["weights (W)"]["distance"] <= 1e-12
    assert run["metrics"]["devices"] == pytest.approx(1.0)
    assert "a metric, a loss or a callback gives another" in cause


@pytest.mark.slow
def test_tables_repeat_no_cause(verify, capsys):
    result = verify(
        "metric_that_asks_for_devices", replica_counts=(2, 4), **ONE_STEP
    )
    parity_report.print_tables(result)
    shown = capsys.readouterr().out
    assert shown.count("a metric, a loss or a callback") == 1
    assert "likely cause: the same as with 2 replicas" in shown
    assert "OUT OF PARITY with 2 and 4 replicas" in shown


def test_data_in_another_order_each_time(verify):
    result = verify(
        "sound", data="tests.verify.programs:unseeded_order", **ONE_STEP
    )
    assert not result["in_parity"] and result["runs"] == []
    reason = result["not_reproducible"]
    assert "the data set gives its rows in another order" in reason
    assert "batch 1 is the first to differ" in reason


def test_unseeded_randomness(verify):
    result = verify("unseeded_noise", **ONE_STEP)
    assert not result["in_parity"] and result["runs"] == []
    assert "two runs get the same batches" in result["not_reproducible"]
    assert "unseeded random numbers" in result["not_reproducible"]


def test_rounding_is_no_fault(verify, capsys):
    """Also where it doesn't shrink with the precision."""
    result = verify("ill_conditioned", **BOTH)
    assert result["in_parity"]
    (run,) = result["runs"]
    assert run["verdict"] == run["float64"]["verdict"] == "rounding"
    for compared in (run, run["float64"]):
        assert compared["checks"]["weights (W)"]["distance"] > 1e-3
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "The same in float64" in shown
    assert "IN PARITY" in shown and "within rounding: W" in shown


@pytest.mark.nightly
def test_a_tie_is_no_fault(verify):
    result = verify("tied_scores", **BOTH)
    assert result["in_parity"]
    (run,) = result["runs"]
    for compared in (run, run["float64"]):
        assert compared["verdict"] == "rounding"
        assert compared["checks"]["metrics"]["distance"] > 0.1


@pytest.mark.slow
def test_predictions_of_unequal_widths_are_compared(verify):
    result = verify("outputs_as_wide_as_the_batch", global_batch_size=13)
    assert result["in_parity"] and result["batch_rows"] == [13, 7]


@pytest.mark.slow
def test_an_ordinary_network_is_in_parity(verify):
    result = verify(
        "convolutions", replica_counts=(2, 3), steps=5, float64=False
    )
    assert result["in_parity"]
    for run in result["runs"]:
        assert run["float64"]["checks"]["weights (W)"]["distance"] < 1e-8


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "program, count, layer",
    [
        slow("tiny_fault_in_convolutions", 2, None),
        slow("tiny_fault_in_convolutions_by_sgd", 2, "conv2d"),
        slow("tiny_fault_that_adam_hides", 2, None),
        slow("tiny_fault_on_a_mesh", 4, None),
        slow("tiny_fault_in_a_layer", 2, "biased"),
        slow("tiny_fault_of_a_metric", 2, None),
    ],
)
def test_a_fault_of_a_millionth_is_found(verify, program, count, layer):
    """Of the size of rounding in float32, and far from it in float64."""
    result = verify(program, replica_counts=(count,), **ONE_STEP)
    run, cause = only_cause(result, count)
    assert "rounding" not in cause
    if layer is not None:
        assert run["first_layer"].startswith(layer)


@pytest.mark.slow
def test_a_fault_that_rounding_hides_is_one_in_float64(verify, capsys):
    result = verify("tiny_fault_in_a_layer", **BOTH)
    (run,) = result["runs"]
    assert not result["in_parity"] and not run["in_parity"]
    assert run["float64"]["verdict"] == "different"
    parity_report.print_tables(result)
    assert "2 replicas, in float64: step" in capsys.readouterr().out


@pytest.mark.slow
def test_a_fault_of_float32_alone_is_found(verify, capsys):
    result = verify("fault_of_float32", steps=5, float64=False)
    (run,) = result["runs"]
    assert run["float64"]["verdict"] == "equal"
    assert run["verdict"] == "different" and not result["in_parity"]
    assert run["first_layer"] == "rounded"


@pytest.mark.nightly(but=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "program, dtype",
    [
        slow("mixed_precision", "bfloat16"),
        ("outputs_of_float32", "bfloat16"),
        slow("one_layer_of_bfloat16", "bfloat16"),
        slow("casts_by_hand", "float32"),
        slow("loss_of_float32", "float32"),
        slow("top_k_of_float32", "float32"),
    ],
)
def test_all_is_float64_in_float64(verify, program, dtype):
    """Also what has another type by hand, or no kernel of float64."""
    result = verify(program, **BOTH)
    assert result["in_parity"] and result["dtype"] == dtype
    (run,) = result["runs"]
    assert run["float64"]["verdict"] == "equal"
    assert run["float64"]["checks"]["losses"]["distance"] <= 1e-12


@pytest.mark.slow
def test_a_type_that_stays_is_told(verify, capsys):
    result = verify("policy_of_its_own", **BOTH)
    assert result["in_parity"] and result["dtype"] == "bfloat16"
    assert result["no_float64"].startswith("layers compute in bfloat16")
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "compared in float64: layers compute in bfloat16" in shown


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "program",
    [
        slow("fault_in_mixed_precision"),
        slow("fault_beside_bfloat16"),
        slow("tiny_fault_beside_float32"),
        slow("fault_where_a_type_stays"),
    ],
)
def test_a_fault_in_mixed_precision_is_found(verify, program):
    result = verify(program, **BOTH)
    (run,) = result["runs"]
    assert not result["in_parity"]
    (cause,) = run["causes"]
    assert "gives another result" in cause


@pytest.mark.slow
def test_a_program_that_can_not_run_in_float64(verify, capsys):
    result = verify("refuses_float64", **BOTH)
    assert result["in_parity"]
    assert "raised" in result["no_float64"]
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "They aren't compared in float64: " in shown


@pytest.mark.nightly
def test_a_tolerance_is_all_that_counts(verify):
    result = verify("ill_conditioned", tolerance=1e-5, **BOTH)
    (run,) = result["runs"]
    assert not result["in_parity"] and "float64" not in run


@pytest.mark.slow
def test_a_large_tolerance_lets_a_difference_pass(verify):
    result = verify("ill_conditioned", tolerance=1e3, **BOTH)
    assert result["in_parity"] and "float64" not in result["runs"][0]


def test_a_crash_is_no_difference(verify, capsys):
    result = verify("crashes_on_replicas", replica_counts=(2, 3), **ONE_STEP)
    assert not result["in_parity"]
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 replicas failed: build() raised division" in shown
    assert "CRASHED with 2 and 3 replicas" in shown
    assert "OUT OF PARITY" not in shown


def test_an_optimizer_made_outside_the_scope_is_one_clear_line(verify, capsys):
    result = verify("optimizer_made_outside", **ONE_STEP)
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    # Keras 3.10 calls it 'SGD'.
    beginning = "2 replicas failed: the optimizer 'sgd' was made outside"
    assert shown.lower().count(beginning) == 1
    assert "CRASHED with 2 replicas" in shown
    assert "OUT OF PARITY" not in shown


@pytest.mark.nightly
def test_a_crash_beside_a_difference(verify, capsys):
    result = verify(
        "crashes_on_three_replicas", replica_counts=(2, 3), **ONE_STEP
    )
    parity_report.print_tables(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "OUT OF PARITY with 2 replicas. CRASHED with 3 replicas" in shown


def test_reading_the_data_is_a_phase(verify):
    with pytest.raises(InputError, match="^reading the data raised division"):
        verify("sound", data="tests.verify.programs:data_that_crashes")
