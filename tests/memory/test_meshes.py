"""Predictions for programs that set a `keras.distribution`."""

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.commands import child_processes, flops_command
from kerasmgpu.commands.traced_step import trace_job
from kerasmgpu.errors import InputError
from kerasmgpu.memory import counting, memory
from kerasmgpu.memory.state_bytes import Setting, state_bytes
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.memory.traced_step import trace_step
from kerasmgpu.partitioner.step.constraints import layout_of
from kerasmgpu.strategies.layouts import Layouts
from kerasmgpu.strategies.noted_distributions import noted
from tests.devices import device_names

ROWS, UNITS, WIDE = 4096, 8, 64
BUILD = "tests.memory.test_meshes:build"


def distribution(rows_axis="batch", devices=None):
    """Columns over half of the devices, on two parts of `rows_axis`."""
    devices = devices or keras.distribution.list_devices()
    shape = {"batch": 1, rows_axis: 2, "model": len(devices) // 2}
    mesh = keras.distribution.DeviceMesh(
        tuple(shape.values()), tuple(shape), devices
    )
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*up/kernel"] = (None, "model")
    layouts[".*up/bias"] = ("model",)
    layouts[".*down/kernel"] = ("model", rows_axis)
    return keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )


def build():
    keras.distribution.set_distribution(distribution())
    return compiled()


def on_own_strategy(layout=None):
    layout = layout or {
        ".*up/kernel": (None, "model"),
        ".*up/bias": ("model",),
        ".*down/kernel": ("model", "batch"),
    }
    with kerasmgpu.strategy(mesh=(2, 2), layout=layout).scope():
        return compiled()


def on_searched_layout():
    return on_own_strategy("auto")


def rows_whole():
    with kerasmgpu.strategy(mesh=(1, 4), layout="auto").scope():
        return compiled()


def of_long_rows(layout):
    with kerasmgpu.strategy(mesh=(1, 4), layout=layout).scope():
        pieces = keras.Input((512, 4), name="pieces")
        wide = keras.layers.Dense(9, "tanh")(pieces)
        model = keras.Model(pieces, keras.layers.Dense(4)(wide))
        model.compile("adam", "mse", jit_compile=False)
        x = np.zeros((2, 512, 4), "float32")
        return model, (x, x)


def pieces_found():
    return of_long_rows("auto")


def pieces_given():
    return of_long_rows({"pieces/output": ("batch", "model", None)})


def pieces_whole():
    return of_long_rows({"dense/bias": ("model",)})


def compiled():
    up = keras.layers.Dense(WIDE, "tanh", name="up")
    down = keras.layers.Dense(UNITS, name="down")
    model = keras.Sequential([keras.Input((UNITS,)), up, down])
    model.compile("adam", "mse", jit_compile=False)
    x = np.zeros((8, UNITS), "float32")
    return model, (x, x)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch, replicas):
    """Saves a start of TensorFlow per job; commands' tests do start it."""
    replicas(4)

    def run_job(child, job, *_):
        if child.endswith("flops_counting"):
            from kerasmgpu.commands import flops_counting

            return flops_counting.main(job)
        return counting.main(job)

    monkeypatch.setattr(child_processes, "run_job", run_job)
    yield
    assert keras.distribution.distribution() is None


def test_each_number_of_devices_has_its_mesh():
    report = memory(BUILD, replicas=(1, 4, 16), show=False)
    meshes = [row["mesh"] for row in report["rows"]]
    assert meshes == [{"batch": 2, "model": 2}, {"batch": 2, "model": 8}]
    assert [row["replicas"] for row in report["rows"]] == [4, 16]
    for row, columns in zip(report["rows"], (2, 8)):
        kernels = UNITS * WIDE // columns + WIDE * UNITS // columns // 2
        weights = 4 * (kernels + WIDE // columns + UNITS)
        assert row["weights"] == weights
        assert row["slots"] == 2 * weights + 8 + 4  # Step, learning rate.
    (note,) = report["notes"]
    assert "no mesh of 1:" in note
    assert "with the 1 devices of --replicas" in note


def test_pieces_of_long_rows_are_divided_as_is_given_or_found():
    found, given, whole = (
        memory(f"tests.memory.test_meshes:{name}", replicas=4, show=False)
        for name in ("pieces_found", "pieces_given", "pieces_whole")
    )
    (one,), (two,), (three,) = found["rows"], given["rows"], whole["rows"]
    assert one["activations"] == pytest.approx(two["activations"], rel=0.01)
    assert one["activations"] < three["activations"] / 3


def rows_too_few():
    pieces = keras.Input((512, 4))
    model = keras.Model(pieces, keras.layers.Dense(4)(pieces))
    model.compile("sgd", "mse", jit_compile=False)
    x = np.zeros((2, 512, 4), "float32")
    return model, (x, x)


@pytest.mark.parametrize("count, is_said", [(2, False), (4, True)])
def test_of_fewer_rows_than_replicas_inner_axes_are_advised(count, is_said):
    report = memory(
        "tests.memory.test_meshes:rows_too_few",
        replicas=count,
        global_batch_size=2,
        device_memory="1KiB",
        show=False,
    )
    said = "mesh=(1, 4), layout={'INPUT/output': (None, 'model')}"
    assert "nothing fits" in report["verdict"]
    assert (said in report["verdict"]) == is_said


def test_a_program_is_told_which_devices_it_had():
    with pytest.raises(InputError, match="the 3 devices of --replicas"):
        memory(BUILD, replicas=3, show=False)
    with pytest.raises(InputError, match="a keras.distribution says"):
        memory(BUILD, replicas=4, shard="weights", show=False)


@pytest.mark.slow
def test_a_mesh_of_kerasmgpu_strategy_is_that_of_its_distribution():
    module = BUILD.rpartition(":")[0]
    (own,) = memory(f"{module}:on_own_strategy", replicas=4, show=False)["rows"]
    (row,) = memory(BUILD, replicas=4, show=False)["rows"]
    assert own == row


def test_a_layout_that_a_program_has_searched_is_searched():
    module = BUILD.rpartition(":")[0]
    build = f"{module}:on_searched_layout"
    (row,) = memory(build, replicas=4, show=False)["rows"]
    assert row["mesh"] == {"batch": 2, "model": 2}
    # Both kernels and the first bias are divided by two.
    weights = 4 * (2 * UNITS * WIDE // 2 + WIDE // 2 + UNITS)
    assert row["weights"] == weights
    job = {
        "build": BUILD.replace("build", "compiled"),
        "data": None,
        "global_batch_size": None,
        "devices": 4,
        "device_type": "GPU",
        "flag": "--replicas",
        "mesh": (2, 2),
    }
    _, step = trace_job(job)
    found = {key.split("/", 1)[1]: axes for key, axes in step.layouts.items()}
    assert found == {
        "up/kernel": (None, "model"),
        "down/kernel": ("model", None),
        "up/bias": ("model",),
    }
    job["build"] = build
    with pytest.raises(InputError, match="a mesh of its own: leave out mesh"):
        trace_job(job)


def test_micro_batches_need_rows_that_are_divided():
    module = BUILD.rpartition(":")[0]
    with pytest.raises(InputError, match="all rows on each device"):
        memory(f"{module}:rows_whole", replicas=4, micro_batches=2, show=False)


def test_the_table_has_meshes(capsys):
    report = memory(BUILD, replicas=4, device_memory="1KiB", micro_batches=1)
    shown = capsys.readouterr().out
    assert "batch=2" in shown
    assert "on the mesh batch=2, model=2" in report["verdict"]
    assert "--shard" not in report["verdict"]


def test_flops_are_those_of_one_device():
    report = flops_command.count_flops(BUILD, replicas=4, show=False)
    # Forward, and both gradients; of the first layer's inputs there is none.
    products = 2 * report["global_batch_size"] * UNITS * WIDE
    assert report["flops_per_step"] == 5 * products
    with pytest.raises(InputError, match="the 3 devices of --replicas"):
        flops_command.count_flops(BUILD, replicas=3, show=False)


def traced(strategy, made):
    """The step, and what `layout_report` counts where the mesh runs."""
    with noted(4, "GPU", strategy), strategy.scope():
        keras.distribution.set_distribution(made)
        model, data = compiled()
        step = trace_step(model, data, ROWS)
    with kerasmgpu.strategy(distribution=made).scope():
        model, (x, _) = compiled()
    x = np.repeat(x, ROWS // len(x), axis=0)
    return step, kerasmgpu.layout_report(model, (x, x))


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("rows_axis", ["batch", "other"])
def test_a_device_holds_what_it_holds_in_training(replicas, rows_axis):
    made = distribution(rows_axis, device_names(4))
    step, report = traced(replicas(2), made)
    layouts = Layouts(made)
    assert layouts.axes == (2, 2)
    assert state_bytes(step.variables, Setting(4, layouts)).total == report.held
    peak = step_peak(step, Setting(4, layouts))
    # A quarter of the wide layer's output: work that the layout leaves whole is
    # divided by rows in any case.
    assert peak.activations == ROWS // 2 * WIDE // 2 * 4
    # The kernel that both axes divide, gathered along that of the rows.
    assert peak.gathered == UNITS * WIDE // 2 * 4
    # Its rows of the inputs, which are on the host; targets are free by then.
    assert peak.batch == ROWS // 2 * UNITS * 4
    whole = step_peak(step, Setting(4, layouts, device_type="CPU"))
    assert whole.batch == 2 * ROWS * UNITS * 4


def test_layouts_of_outputs_are_predicted(replicas):
    """The traced step has the mark that the planner follows in training."""
    made = distribution("batch", device_names(4))
    made._layout_map[".*up/output"] = ("batch", None)
    step, _ = traced(replicas(2), made)
    nodes = step.program.trace.graph.nodes
    marks = [axes for node in nodes if (axes := layout_of(node))]
    assert marks == [[0, None]]
    assert step_peak(step, Setting(4, Layouts(made))).activations > 0


def test_micro_batches_need_rows(replicas):
    made = distribution("batch", device_names(4))
    step, _ = traced(replicas(2), made)
    whole, parts = counting.settings(step, Setting(4, Layouts(made)), [1, 4])
    assert parts["activations"] < 0.6 * whole["activations"]
    other = distribution("other", device_names(4))
    with pytest.raises(InputError, match="micro_batches divides the rows"):
        counting.settings(step, Setting(4, Layouts(other)), [1, 4])
