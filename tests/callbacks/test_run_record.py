"""RunRecord within Keras's own training loop, and the report of its files."""

import datetime
import json
import math

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.callbacks import RunRecord, ThroughputLogger, run_record
from kerasmgpu.errors import InputError
from kerasmgpu.report import page, run_files
from kerasmgpu.stores import store_path
from tests.devices import device_names
from tests.report.pages import parse

ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")


def build(strategy=None, rate=0.01):
    strategy = strategy or kerasmgpu.strategy(2)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(5, name="first"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(2, name="second"),
            ],
            name="small",
        )
        model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"])
    return model


def fit(model, folder, *others, **options):
    options = {"epochs": 3, "batch_size": 8, "verbose": 0, **options}
    callbacks = [*others, RunRecord(folder)]
    return model.fit(ROWS, ROWS[:, :2], callbacks=callbacks, **options)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder, and the history that `fit` returned."""
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    model = build()
    held_out = ROWS[:8], ROWS[:8, :2]
    history = fit(model, folder, validation_data=held_out).history
    return folder, model, history


def test_the_history_is_fits(run):
    folder, _, history = run
    records = lines(folder / "history.jsonl")
    assert [record["epoch"] for record in records] == [1, 2, 3]
    for name in ("loss", "mae", "val_loss", "val_mae"):
        assert [r[name] for r in records] == pytest.approx(history[name])
    for record in records:
        assert record["learning_rate"] == pytest.approx(0.01)
        assert record["seconds"] == pytest.approx(
            5 / record["steps_per_second"]
        )
        assert record["examples_per_second"] > 0
        assert 0 < record["validation_seconds"] < record["wall_seconds"]
    walls = sum(record["wall_seconds"] for record in records)
    facts = json.loads((folder / "run.json").read_text())
    assert walls <= facts["ended"] - facts["started"] + 0.1
    assert records[-1]["time"] <= facts["ended"]


def test_run_json_is_what_the_model_and_the_strategy_are(run):
    folder, model, _ = run
    facts = json.loads((folder / "run.json").read_text())
    assert facts["model"] == "small"
    assert facts["parameters"] == {"trainable": 57, "all": 67}
    # Adam has two slots per weight, and counts steps and its rate.
    assert facts["state_bytes"]["weights"] == 67 * 4
    slots = sum(math.prod(v.shape) * 4 for v in model.optimizer.variables)
    assert 57 * 8 < facts["state_bytes"]["slots"] <= slots + 4
    assert facts["optimizer"] == {"name": "Adam", "learning_rate": 0.01}
    assert facts["global_batch_size"] == 8
    assert (facts["replicas"], facts["workers"]) == (2, 1)
    assert facts["devices"] == device_names(2)
    assert facts["strategy"] == {
        "name": "MirroredStrategy",
        "batch_norm": "global",
        "shard": None,
        "min_shard_bytes": 16384,
        "shard_over": None,
        "offload": None,
        "micro_batches": 1,
        "recompute": None,
        "xla_cache": None,
    }
    assert facts["versions"]["keras"] == keras.__version__
    assert facts["epochs"] == 3


def test_what_is_sent_are_gradients_moments_and_metrics(run):
    folder, *_ = run
    sent = json.loads((folder / "run.json").read_text())["sent_per_step"]
    by_purpose = {one["purpose"]: one for one in sent}
    assert {one["kind"] for one in sent} == {"all_reduce"}
    # 57 weights; moments of 5 channels, twice, and their gradients.
    assert by_purpose["gradients"]["bytes"] == pytest.approx(57 * 4, abs=40)
    assert by_purpose["statistics of batches"]["bytes"] == 2 * 5 * 4
    total = sum(one["bytes"] for one in sent)
    assert total == run[1].distribute_strategy.reduced_bytes_per_step


def test_layers_hold_what_the_model_holds_and_send_what_it_sends(run):
    facts = json.loads((run[0] / "run.json").read_text())
    layers = facts["layers"]
    held = sum(layer["held"] for layer in layers)
    assert held == sum(facts["state_bytes"].values())
    # Of two replicas, each sends as many bytes as the tensors have.
    sent = sum(layer["sent"] for layer in layers)
    assert sent == sum(one["bytes"] for one in facts["sent_per_step"])
    assert all(layer["by"] == ["all_reduce"] for layer in layers)


def test_gradients_that_wait_for_a_check_are_their_layers(run, tmp_path):
    fit(build(), tmp_path / "run", kerasmgpu.callbacks.NotFinite(), epochs=1)
    without = json.loads((run[0] / "run.json").read_text())
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    sent = {one["layer"]: one["sent"] for one in facts["layers"]}
    # Kernels and biases, of which those of 5 are in one sum with others.
    assert (sent["first"], sent["second"]) == (4 * 5 * 7, 4 * 2 * 6)
    assert facts["sent_per_step"] == without["sent_per_step"]


def test_histograms_count_the_steps(run):
    folder, *_ = run
    records = lines(folder / "steps.jsonl")
    assert [record["epoch"] for record in records] == [1, 2, 3]
    # The first step of a fit is traced.
    assert [sum(record["counts"]) for record in records] == [4, 5, 5]
    for record in records:
        assert len(record["edges"]) == len(record["counts"]) + 1


def test_the_report_shows_it(run):
    folder, _, history = run
    text = page.render(run_files.read([folder]), datetime.datetime.now())
    found = parse(text)
    assert found.tables["Loss"][3][1] == f"{history['loss'][2]:.4g}"
    sent = found.tables["What replicas send in a step"]
    assert sent[0][2] == "gradients, all-reduce"
    assert "finished, epoch 3 of 3" in found.text
    assert not found.find("ul", "problems")


def test_sharded_variables_count_by_their_parts(tmp_path):
    strategy = kerasmgpu.MirroredStrategy(
        device_names(2), shard="weights", min_shard_bytes=0
    )
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(4, use_bias=False)]
        )
        model.compile("sgd", "mse")
    model.fit(
        ROWS, ROWS[:, :4], verbose=0, callbacks=[RunRecord(tmp_path / "run")]
    )
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["state_bytes"]["weights"] == 6 * 4 * 4 // 2
    assert facts["strategy"]["shard"] == "weights"
    purposes = {one["purpose"] for one in facts["sent_per_step"]}
    assert "sharded variables" in purposes


def test_what_is_sent_along_each_axis_of_a_mesh(tmp_path):
    mesh = keras.distribution.DeviceMesh(
        (2, 2), ("batch", "model"), device_names(4)
    )
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*up/kernel"], layouts[".*up/bias"] = (None, "model"), ("model",)
    layouts[".*down/kernel"] = ("model", None)
    made = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )
    sizes = {"before": 6, "up": 4, "down": 2}
    with kerasmgpu.strategy(distribution=made).scope():
        stack = [keras.layers.Dense(n, name=k) for k, n in sizes.items()]
        model = keras.Sequential([keras.Input((6,)), *stack])
        model.compile("sgd", "mse")
    fit(model, tmp_path / "run", epochs=1)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    sent = {
        (one["purpose"], one["axis"]): one["bytes"]
        for one in facts["sent_per_step"]
        if one["purpose"] != "loss and metrics"
    }
    weights = (6 * 6 + 6) + (6 * 2 + 2) + (2 * 2 + 2)
    assert sent == {
        ("gradients", "batch"): 4 * weights,
        # Of four rows: outputs of "down", and the gradient of inputs of "up".
        ("activations", "model"): 4 * 4 * 2,
        ("gradients of activations", "model"): 4 * 4 * 6,
    }
    assert facts["strategy"]["mesh"] == {"batch": 2, "model": 2}
    found = parse(
        page.render(run_files.read([tmp_path / "run"]), datetime.datetime.now())
    ).text
    assert "batch=2, model=2" in found


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("scheme", ["", "faulty://"])
def test_a_run_that_goes_on_replaces_later_epochs(tmp_path, scheme):
    """In a folder, or a store."""
    if scheme:
        pytest.importorskip("tests.faulty_store")
    model, folder = build(), f"{scheme}{tmp_path}"
    fit(model, folder, epochs=3)
    started = json.loads((tmp_path / "run.json").read_text())["started"]
    first = lines(tmp_path / "history.jsonl")[0]
    with open(tmp_path / "history.jsonl", "a") as file:
        file.write('{"epoch": 4, "lo')  # The kill.
    fit(model, folder, initial_epoch=1, epochs=4)
    records = lines(tmp_path / "history.jsonl")
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert records[0] == first
    assert [r["epoch"] for r in lines(tmp_path / "steps.jsonl")] == [1, 2, 3, 4]
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["started"] == started
    assert facts["epochs"] == 4
    fit(model, folder, epochs=1)
    (record,) = lines(tmp_path / "history.jsonl")
    assert record["epoch"] == 1
    assert json.loads((tmp_path / "run.json").read_text())["started"] > started


def test_it_agrees_with_the_throughput_logger_and_is_written_while_it_runs(
    tmp_path,
):
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            facts = json.loads((tmp_path / "run.json").read_text())
            seen.append(("ended" in facts, "sent_per_step" in facts))

    logger = ThroughputLogger(tmp_path / "throughput.jsonl")
    fit(build(), tmp_path, logger, Look())
    # It is before RunRecord in the list.
    assert seen == [(False, False), (False, True), (False, True)]
    logged = lines(tmp_path / "throughput.jsonl")
    records = lines(tmp_path / "history.jsonl")
    for name in ("examples_per_second", "step_seconds_p95"):
        assert [r[name] for r in records] == [r[name] for r in logged]


def test_without_a_strategy_nothing_is_sent(tmp_path):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model.compile(keras.optimizers.SGD(schedule), "mse")
    fit(model, tmp_path, epochs=1)
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["replicas"] == 1
    assert "sent_per_step" not in facts
    assert facts["optimizer"]["learning_rate"].startswith("CosineDecay(")
    (record,) = lines(tmp_path / "history.jsonl")
    assert 0 < record["learning_rate"] < 0.1


def test_logs_that_are_not_finite_are_null(tmp_path):
    class Ratios(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs |= {"infinite": math.inf, "text": "none", "count": 3}

    fit(build(rate=1e30), tmp_path, Ratios(), epochs=2)
    record = lines(tmp_path / "history.jsonl")[-1]
    assert (record["loss"], record["infinite"]) == (None, None)
    assert record["count"] == 3
    assert "text" not in record


def test_bins_are_the_same_for_all_histograms():
    times = np.array([0.0101, 0.0102, 0.5, 0.0])
    one = run_record.histogram(times)
    other = run_record.histogram(times[:2])
    assert sum(one["counts"]) == 3
    assert one["edges"][:2] == other["edges"]
    assert other["counts"] == [2]
    assert run_record.histogram(np.zeros(0)) == {"edges": [], "counts": []}


def test_a_store_that_can_not_be_reached_is_one_line(tmp_path, monkeypatch):
    faulty_store = pytest.importorskip("tests.faulty_store")
    monkeypatch.setattr(store_path, "_WAITS", ())
    model = build()
    faulty_store.set_faults(always=("pipe_file", "info"))
    try:
        with pytest.raises(InputError, match="path='faulty://.*503 Slow Down"):
            fit(model, f"faulty://{tmp_path}/run")
    finally:
        faulty_store.set_faults()
