"""What DeviceStats records of the host and of GPUs with recorded answers."""

import errno
import json
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.callbacks import DeviceStats, device_sampler, device_stats
from kerasmgpu.callbacks.json_lines import JsonLines
from kerasmgpu.errors import InputError
from kerasmgpu.hardware import cuda_devices
from tests.hardware.recorded_nvml import (
    GIB,
    LOST,
    Library,
    geforce,
    h100,
    install,
    uuid,
)

ROWS = np.ones((8, 2))
HOST = {"host_cpu_utilization_mean", "host_memory_bytes_max"}
SAMPLED = 10.0  # Seconds within which a thread has certainly taken samples.


def build_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def threads():
    return [
        thread
        for thread in threading.enumerate()
        if thread.name == "kerasmgpu-device-stats"
    ]


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Until(keras.callbacks.Callback):
    """Waits at the end of each epoch until a condition holds."""

    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def on_epoch_end(self, epoch, logs=None):
        end = time.monotonic() + SAMPLED
        while not self.condition():
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.fixture
def gpus(monkeypatch):
    """Function that lets TensorFlow have GPUs with recorded answers."""

    def have(*answers, **system):
        names = [f"GPU:{number}" for number in range(len(answers))]
        library = install(monkeypatch, Library(list(answers), **system))
        # CUDA counts them in the reverse order of NVML.
        uuids = [gpu["nvmlDeviceGetUUID"] for gpu in reversed(answers)]
        numbers = {name: i for i, name in enumerate(names)}
        memory = {"current": GIB, "peak": 3 * GIB}
        replace = monkeypatch.setattr
        replace(device_stats, "local_devices", lambda strategy: names)
        replace(device_sampler.devices, "physical_gpus", lambda: numbers)
        replace(cuda_devices, "uuids", lambda ordinal: [uuids[ordinal]])
        replace(tf.config.experimental, "get_memory_info", lambda name: memory)
        return library

    return have


@pytest.mark.parametrize("verbose", [0, 2])
def test_without_gpus_the_process_is_recorded(tmp_path, verbose):
    path = tmp_path / "devices.jsonl"
    # The second epoch ends before the second sample.
    callbacks = [DeviceStats(path, seconds=60)]
    logged = {}
    callbacks.append(
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logged.update(logs)
        )
    )
    before = time.time()
    history = build_model().fit(
        ROWS, ROWS, epochs=2, verbose=verbose, callbacks=callbacks
    )
    assert set(history.history) == {"loss", *HOST}
    assert all(len(values) == 2 for values in history.history.values())
    assert HOST.issubset(logged) == (verbose == 0)
    first = records(path)[0]
    assert (first["worker"], first["device"]) == (0, "host")
    assert before <= first["time"] <= time.time()
    total = first["memory_total_bytes"]
    assert 50 << 20 < first["memory_bytes"] < total
    assert first["memory_bytes"] <= first["memory_peak_bytes"] + (4 << 20)
    assert threads() == []


def test_the_host_counts_the_cores_that_it_keeps_busy():
    host = device_sampler.Host()
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    busy = host.sample()["cpu_utilization"]
    time.sleep(0.3)
    idle = host.sample()["cpu_utilization"]
    assert busy > 0.1  # Other programs may take most of the core.
    assert idle < busy / 3


def test_gpus_in_the_order_of_tensorflow(tmp_path, gpus):
    path = tmp_path / "devices.jsonl"
    idle = {"gpu": 1, "memory": 0}
    gpus(
        geforce(1, nvmlDeviceGetTemperature=80),
        h100(
            2,
            nvmlDeviceGetUtilizationRates=idle,
            nvmlDeviceGetCurrentClocksEventReasons=0x1,
        ),
    )
    history = build_model().fit(
        ROWS, ROWS, verbose=0, callbacks=[DeviceStats(path)]
    )
    by_device = {record["device"]: record for record in records(path)}
    assert set(by_device) == {"host", "GPU:0", "GPU:1"}
    assert by_device["GPU:0"]["utilization"] == 0.01
    assert by_device["GPU:0"]["memory_peak_bytes"] == 3 * GIB
    assert by_device["GPU:0"]["nvlink_rx_bytes"] == 7 * 1024
    assert by_device["GPU:1"]["name"] == "NVIDIA GeForce RTX 4090"
    assert "nvlink_rx_bytes" not in by_device["GPU:1"]
    figures = {key: value[0] for key, value in history.history.items()}
    assert set(figures) == {"loss", *device_sampler.FIGURES}
    assert figures["gpu_utilization_mean"] == pytest.approx((0.97 + 0.01) / 2)
    assert figures["gpu_throttled_mean"] == 0.5  # Idle is no throttling.
    assert figures["gpu_memory_bytes_max"] == 30 * GIB
    assert figures["gpu_memory_peak_bytes_max"] == 3 * GIB
    assert figures["gpu_temperature_celsius_max"] == 80
    assert figures["gpu_power_watts_mean"] == pytest.approx(652.15)


def test_means_and_maxima_are_of_all_workers(monkeypatch):
    def gather(strategy, own):
        others = [value + 2 for value in own]
        unknown = [np.nan] * len(own)
        gathered.append(np.array([own, others, unknown]))
        return gathered[-1]

    gathered = []
    monkeypatch.setattr(device_stats.workers, "gather", gather)
    history = build_model().fit(
        ROWS, ROWS, verbose=0, callbacks=[DeviceStats()]
    )
    own = dict(zip(device_sampler.FIGURES, gathered[0][0]))
    figures = {key: history.history[key][0] for key in HOST}
    assert figures == pytest.approx(
        {
            "host_cpu_utilization_mean": own["host_cpu_utilization_mean"] + 1,
            "host_memory_bytes_max": own["host_memory_bytes_max"] + 2,
        },
        rel=1e-12,
    )


def test_a_gpu_that_is_lost_is_named_once_and_the_others_go_on(
    tmp_path, gpus, caplog
):
    path = tmp_path / "devices.jsonl"
    answers = h100(1)
    library = gpus(answers, h100(2))

    def sampled_after_the_loss():
        seen = records(path) if path.exists() else []
        if len(seen) >= 3:  # All have been sampled.
            answers.update(dict.fromkeys(answers, LOST))
        lost = [i for i, record in enumerate(seen) if "lost" in record]
        return lost and len(seen) >= lost[0] + 5

    build_model().fit(
        ROWS,
        ROWS,
        verbose=0,
        callbacks=[
            Until(sampled_after_the_loss),
            DeviceStats(path, seconds=0.1),
        ],
    )
    lost = [record for record in records(path) if "lost" in record]
    assert len(lost) == 1
    assert lost[0]["device"] == "GPU:1"
    assert f"GPU 0 ({uuid(1)}) is lost" in lost[0]["lost"]
    assert caplog.text.count("is lost") == 1
    assert [record["device"] for record in records(path)][-2:] == [
        "host",
        "GPU:0",
    ]
    assert library.calls["nvmlShutdown"] == 1


def test_without_nvml_tensorflow_knows_its_own_memory(
    gpus, caplog, monkeypatch
):
    gpus(h100(1))
    missing = None, "no NVIDIA driver"
    monkeypatch.setattr(device_sampler, "open_nvml", lambda: missing)
    history = build_model().fit(
        ROWS, ROWS, epochs=2, verbose=0, callbacks=[DeviceStats()]
    )
    assert set(history.history) == {"loss", "gpu_memory_peak_bytes_max", *HOST}
    assert caplog.text.count("no NVIDIA driver") == 1


def test_a_full_disk_is_said_once_and_training_goes_on(
    tmp_path, monkeypatch, caplog
):
    def full(self, *records, sync=True):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JsonLines, "append", full)
    said = Until(lambda: "No space left" in caplog.text)
    stats = DeviceStats(tmp_path / "devices.jsonl", seconds=0.1)
    history = build_model().fit(
        ROWS, ROWS, epochs=2, verbose=0, callbacks=[said, stats]
    )
    assert caplog.text.count("No space left on device") == 1
    assert HOST <= set(history.history)


def test_the_thread_ends_when_fit_raises():
    def fail(epoch, logs):
        assert len(threads()) == 1
        raise RuntimeError("of a callback")

    failing = keras.callbacks.LambdaCallback(on_epoch_end=fail)
    with pytest.raises(RuntimeError, match="of a callback"):
        build_model().fit(
            ROWS, ROWS, verbose=0, callbacks=[DeviceStats(), failing]
        )
    assert threads() == []


def test_a_driver_that_does_not_answer_does_not_keep_fit(gpus, monkeypatch):
    monkeypatch.setattr(device_sampler, "_SECONDS_TO_START", 0.1)
    monkeypatch.setattr(device_sampler, "_SECONDS_TO_END", 0.1)
    answers = threading.Event()
    gpus(h100(1, nvmlDeviceGetPowerUsage=lambda: answers.wait() and 1))
    history = build_model().fit(
        ROWS, ROWS, verbose=0, callbacks=[DeviceStats()]
    )
    (thread,) = threads()
    assert thread.daemon
    answers.set()
    thread.join(SAMPLED)
    assert not thread.is_alive()
    assert "gpu_power_watts_mean" not in history.history


def test_a_sample_of_eight_gpus_takes_little_of_a_core(gpus, tmp_path):
    """CPU time of the sampling thread, without the driver's own."""
    gpus(*[h100(number) for number in range(8)])
    sampler = device_sampler.Sampler.__new__(device_sampler.Sampler)
    sampler._lines = JsonLines(tmp_path / "devices.jsonl")
    sampler._epoch, sampler._worker = device_sampler._Epoch(), 0
    sampler._opened = {}
    sampler._of_gpu = {f"GPU:{number}": sampler._epoch for number in range(8)}
    nvml, _ = device_sampler.open_nvml()
    sources = {"host": device_sampler.Host().sample}
    for gpu in nvml.gpus:
        name = f"GPU:{gpu.index}"
        sources[name] = lambda name=name, gpu=gpu: device_sampler.sample_gpu(
            name, gpu
        )
    start = time.thread_time()
    for _ in range(20):
        sampler._sample(sources)
    taken = (time.thread_time() - start) / 20
    print(f"{taken * 1e3:.2f} ms of CPU per sample")
    assert len(records(tmp_path / "devices.jsonl")) == 20 * 9
    assert taken < 0.02


@pytest.mark.parametrize("seconds", [0, -1, 0.09, float("nan")])
def test_too_many_samples(seconds):
    with pytest.raises(InputError, match=f"seconds={seconds}"):
        DeviceStats(seconds=seconds)


def test_each_gpu_has_figures_of_its_own(gpus):
    slow = {"nvmlDeviceGetUtilizationRates": {"gpu": 12, "memory": 1}}
    gpus(h100(0), h100(1, **slow))
    sampler = device_sampler.Sampler(["GPU:0", "GPU:1"], 0.1, None, 0)
    try:
        figures = sampler.take_gpus()
    finally:
        sampler.stop()
    # CUDA counts them in the reverse order.
    assert [each["gpu_utilization_mean"] for each in figures] == pytest.approx(
        [0.12, 0.97]
    )
