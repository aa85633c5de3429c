"""What `Monitors` writes, read back from its event files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import kerasmgpu
from kerasmgpu.callbacks import ChooseXla, Monitors, ThroughputLogger
from kerasmgpu.callbacks import measurement as measurement_module
from kerasmgpu.callbacks.device_sampler import Sampler
from kerasmgpu.errors import InputError
from tests.callbacks import event_files
from tests.devices import device_names

ROWS = np.random.default_rng(0).normal(size=(26, 3)).astype("float32")


def compiled(strategy=None, **compile_options):
    with (strategy or tf.distribute.get_strategy()).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(
            keras.optimizers.schedules.PiecewiseConstantDecay([9], [0.5, 0.25])
        )
        settings = {"optimizer": optimizer, "jit_compile": False}
        model.compile(loss="mse", **{**settings, **compile_options})
    return model


def fit(model, *callbacks, **arguments):
    data = tf.data.Dataset.from_tensor_slices((ROWS, ROWS[:, :1])).batch(4)
    arguments = {"verbose": 0, "epochs": 2, **arguments}
    return model.fit(data, callbacks=list(callbacks), **arguments)


def test_figures_of_epochs_are_those_of_the_logs(replicas, tmp_path):
    model = compiled(replicas(2))
    monitors = Monitors(tmp_path)
    logs = fit(model, ThroughputLogger(), monitors).history
    found = event_files.values(tmp_path)
    assert set(found) == {
        "throughput/batches_per_sec",
        "throughput/samples_per_sec",
        "throughput/device/batches_per_sec",
        "throughput/device/samples_per_sec",
        "throughput/flops_per_sec",
        "throughput/device/flops_per_sec",
        "input_wait_share",
        "lr-SGD/group0",
        "step_seconds",
        "host_cpu_cores/Worker_0",
        "host_memory_GB/Worker_0",
    }
    for tag, name, by in (
        ("throughput/samples_per_sec", "examples_per_second", 1),
        ("throughput/device/samples_per_sec", "examples_per_second", 2),
        ("throughput/batches_per_sec", "steps_per_second", 1),
        ("throughput/device/batches_per_sec", "steps_per_second", 2),
        ("input_wait_share", "input_wait_share", 1),
    ):
        assert found[tag] == {
            7: pytest.approx(logs[name][0] / by),
            14: pytest.approx(logs[name][1] / by),
        }
    assert found["lr-SGD/group0"] == {7: 0.5, 14: 0.25}
    steps, histogram = (
        monitors.measurement.step_seconds,
        found["step_seconds"][14],
    )
    assert len(steps) == 7 == histogram.num == sum(histogram.bucket)
    assert histogram.sum == pytest.approx(steps.sum())
    assert histogram.bucket_limit[-1] == pytest.approx(steps.max())


def test_samples_within_an_epoch_and_the_next_fit_goes_on(tmp_path):
    model = compiled(steps_per_execution=2)
    for _ in range(2):
        fit(model, Monitors(tmp_path, every=3), epochs=1)
    found = event_files.values(tmp_path)
    # Executions end at 2, 4, 6 and 8, where the data have ended after 7.
    assert list(found["lr-SGD/group0"]) == [4, 6, 8, 9, 13, 15]
    assert found["lr-SGD/group0"][15] == 0.25
    # No step but the first one, which compiles, was done before step 4.
    assert 4 not in found["throughput/samples_per_sec"]
    assert found["throughput/samples_per_sec"][6] > 0


def test_flops_and_memory_under_the_names_of_composer(tmp_path, monkeypatch):
    memory = [{"current": 1e9, "peak": 3e9}, {"current": 2e9, "peak": 4e9}]
    monkeypatch.setattr(measurement_module, "gpu_memory", lambda _: memory)
    finish = measurement_module.Measurement.finish_epoch
    sampled = [
        {
            "gpu_utilization_mean": 0.75 + number / 8,
            "gpu_temperature_celsius_max": 61,
            "gpu_power_watts_mean": np.nan,
        }
        for number in range(2)
    ]
    monkeypatch.setattr(Sampler, "take_gpus", lambda self: sampled)
    flops = {"flops_per_second": 8e12, "mfu": 0.25}
    monkeypatch.setattr(
        measurement_module.Measurement,
        "finish_epoch",
        lambda self: {**finish(self), **flops},
    )
    fit(compiled(kerasmgpu.strategy(2)), Monitors(tmp_path), epochs=1)
    found = event_files.values(tmp_path)
    for tag, value in {
        "memory/current_allocated_mem/Rank_0": 1,
        "memory/peak_allocated_mem/Rank_0": 3,
        "memory/current_allocated_mem/Rank_1": 2,
        "memory/peak_allocated_mem/Rank_1": 4,
        "gpu_percentage/Rank_0": 75,
        "gpu_percentage/Rank_1": 87.5,
        "gpu_temperature_C/Rank_1": 61,
        "throughput/flops_per_sec": 8e12,
        "throughput/device/flops_per_sec": 4e12,
        "throughput/device/mfu": 0.25,
    }.items():
        assert found[tag] == {7: pytest.approx(value)}
    assert not any("power" in tag for tag in found)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_profile_has_the_ops_of_its_steps(replicas, tmp_path, num_replicas):
    monitors = Monitors(tmp_path, profile_steps=(3, 5))
    fit(compiled(replicas(num_replicas)), monitors)
    (path,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    steps, names = [], set()
    for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
        names |= {each.name for each in plane.event_metadata.values()}
        for line in plane.lines:
            for event in line.events:
                if plane.event_metadata[event.metadata_id].name == "train":
                    steps += [
                        stat.int64_value
                        for stat in event.stats
                        if plane.stat_metadata[stat.metadata_id].name
                        == "step_num"
                    ]
    assert steps == [3, 4, 5]
    assert any("MatMul" in name for name in names)


def test_an_interrupted_fit_ends_its_profile(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(compiled(), Monitors(tmp_path, profile_steps=(3, 99)), Interrupt())
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))
    tf.profiler.experimental.start(str(tmp_path / "next"))
    tf.profiler.experimental.stop(save=False)


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ({"every": 0}, "every must be an integer of at least 1"),
        ({"norms": "all"}, "norms must be one of global, variables"),
        ({"norms": True}, "norms must be one of global, variables"),
        ({"profile_steps": 5}, "a pair of the first and the last step"),
        ({"profile_steps": (0, 5)}, r"profile_steps\[0\] must be"),
        (
            {"profile_steps": (5, 4)},
            r"at least 5. Received: profile_steps\[1\]=4",
        ),
    ],
)
def test_wrong_arguments(tmp_path, arguments, problem):
    with pytest.raises(InputError, match=problem):
        Monitors(tmp_path, **arguments)


def test_a_folder_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(InputError, match="log_dir=.*can't be written"):
        fit(compiled(), Monitors(path))


@pytest.mark.slow
def test_norms_under_a_strategy_of_tensorflow(tmp_path):
    model = compiled(tf.distribute.MirroredStrategy(device_names(2)))
    with pytest.raises(InputError, match="norms need a strategy of kerasmgpu"):
        fit(model, Monitors(tmp_path, norms="global"))
    fit(model, Monitors(tmp_path))
    assert event_files.values(tmp_path)["throughput/samples_per_sec"]


def test_norms_wait_for_the_choice_of_xla(tmp_path):
    model = compiled()
    callbacks = [Monitors(tmp_path, every=1, norms="global"), ChooseXla(2)]
    fit(model, *callbacks, epochs=3)
    steps = list(event_files.values(tmp_path)["l2_norm/grad/global"])
    # Four blocks of an execution, each after two that warm up.
    assert steps == list(range(13, 22))
