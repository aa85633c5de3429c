"""One replica's step, from files and from a run."""

import json
import math

import pytest

from kerasmgpu.commands import child_processes
from kerasmgpu.errors import InputError
from kerasmgpu.plan import measuring, sources
from kerasmgpu.plan.step_time import Step
from tests import console

PROGRAM = """
import time
import keras, numpy as np, tensorflow as tf

def build():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model

def data():
    def slow():
        for _ in range(3):
            time.sleep(0.1)  # 50 rows per second.
            yield np.ones((5, 3), "float32"), np.ones((5, 2), "float32")

    shapes = tf.TensorSpec((5, 3)), tf.TensorSpec((5, 2))
    return tf.data.Dataset.from_generator(slow, output_signature=shapes)
"""


def benchmark(tmp_path, virtual_devices=False, **host_by_count):
    """A benchmark.json with rows of kerasmgpu: CPU ms by `n1`, `n2`, …"""
    rows, runs = [], []
    for key, host in host_by_count.items():
        run = {
            "workload": "convnet",
            "contender": "kerasmgpu",
            "replicas": int(key[1:]),
        }
        facts = {"global_batch_size": 128, "parameters": 1000}
        runs.append({**run, "result": facts})
        rows.append(
            {
                **run,
                "runs": 3,
                "wall_ms_per_step": {"median": 40.0},
                "host_cpu_ms_per_step": {"median": host},
            }
        )
    path = tmp_path / "benchmark.json"
    settings = {"virtual_devices": virtual_devices}
    report = {"rows": rows, "runs": runs, "settings": settings}
    path.write_text(json.dumps(report))
    return path


def test_benchmark_on_gpus(tmp_path):
    measured = sources.from_file(benchmark(tmp_path, n1=5.0, n4=11.0))
    assert measured.step == Step(
        rows=128,
        compute_seconds=0.04,
        reduced_bytes=4000,
        host_seconds=0.005,
        # (11 - 5) / 3 ms.
        host_seconds_per_replica=0.002,
    )
    assert measured.notes == ()


def test_benchmark_on_cpus_tells_host_time_from_arithmetic(tmp_path):
    path = benchmark(tmp_path, virtual_devices=True, n1=50.0, n4=56.0)
    measured = sources.from_file(path)
    assert measured.step.host_seconds == pytest.approx(0.002)
    assert "replica added (2.00 ms)" in measured.notes[0]


def test_benchmark_of_one_replica_says_what_it_takes_for_granted(tmp_path):
    measured = sources.from_file(benchmark(tmp_path, n1=5.0))
    assert measured.step.host_seconds_per_replica is None
    assert "only one replica was measured" in measured.notes[0]


def test_benchmark_without_what_is_asked_for(tmp_path):
    path = benchmark(tmp_path, n2=5.0)
    with pytest.raises(InputError, match="no run of kerasmgpu on 1 replica"):
        sources.from_file(path)
    with pytest.raises(InputError, match="must be one of convnet"):
        sources.from_file(path, workload="other")
    with pytest.raises(InputError, match="no run of stock on 1 replica"):
        sources.from_file(path, contender="stock")


def throughput(tmp_path, **changes):
    record = {
        "replicas": 1,
        "steps": 10,
        "examples": 600,
        "step_seconds_median": 0.2,
        "input_wait_share": 0.05,
        **changes,
    }
    path = tmp_path / "throughput.jsonl"
    earlier = json.dumps({**record, "step_seconds_median": 9.0})
    half = '{"epoch": 2, "examp'  # The run was killed as it wrote.
    path.write_text(f"{earlier}\n{json.dumps(record)}\n{half}")
    return path


def test_last_epoch_of_a_throughput_log(tmp_path):
    step = sources.from_file(throughput(tmp_path)).step
    assert (step.rows, step.input_rows_per_second) == (60, math.inf)
    assert step.compute_seconds == pytest.approx(0.19)


def test_a_log_of_version_0_1_is_read_alike(tmp_path):
    path = throughput(tmp_path)
    same = sources.from_file(path)
    path.write_text(path.read_text().replace('"replicas"', '"num_replicas"'))
    assert sources.from_file(path) == same


def test_a_log_that_waited_tells_the_input_rate(tmp_path):
    measured = sources.from_file(throughput(tmp_path, input_wait_share=0.5))
    assert measured.step.compute_seconds == pytest.approx(0.1)
    # 60 rows in each 0.2 s.
    assert measured.step.input_rows_per_second == pytest.approx(300.0)
    assert "50%" in measured.notes[0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"replicas": 2}, "was logged on 2 replicas"),
        ({"step_seconds_median": None}, "has no step time"),
        ({"steps": "x"}, "a value is missing or wrong"),
    ],
)
def test_unusable_log(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        sources.from_file(throughput(tmp_path, **changes))


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b"a,b"])
def test_another_file(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match="file"):
        sources.from_file(path)


def test_more_rows_cost_what_is_not_fixed():
    step = Step(10, compute_seconds=3.0, reduced_bytes=0, fixed_seconds=1.0)
    assert sources.with_rows(step, 30).compute_seconds == 1.0 + 2.0 * 3
    assert sources.with_rows(step, 30).rows == 30


@pytest.mark.slow
def test_a_module_is_run_and_measured(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    measured = sources.from_module(f"{path}:build", steps=4)
    step = measured.step
    assert (step.rows, step.reduced_bytes) == (5, 4 * (3 * 2 + 2))
    # The slow input is seen in its own rate, and not in the step.
    assert 10 < step.input_rows_per_second < 55
    assert step.compute_seconds < 0.05
    assert step.host_seconds == 0 and "no GPU" in measured.notes[1]


def test_data_may_be_a_list_of_arrays(tmp_path):
    path = tmp_path / "program.py"
    arrays = "[np.ones((40, 3)), np.ones((40, 2))]"
    path.write_text(
        PROGRAM.partition("def data")[0] + f"def data(): return {arrays}\n"
    )
    job = {"build": f"{path}:build", "steps": 2, "devices": 4}
    result = measuring.main(job)
    # Batches of 32 rows, as those of `fit`.
    assert result["rows"] == 32
    assert not result["sets_distribution"]


@pytest.mark.nightly
def test_a_mesh_is_counted(tmp_path, monkeypatch):
    path = tmp_path / "on_a_mesh.py"
    distribution = """
from keras import distribution

mesh = distribution.DeviceMesh(
    (2, len(distribution.list_devices()) // 2), ("batch", "model")
)
layouts = distribution.LayoutMap(mesh)
layouts[".*kernel"] = (None, "model")
distribution.set_distribution(
    distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
)
"""
    arrays = "np.ones((40, 3)), np.ones((40, 6))"
    path.write_text(
        PROGRAM.partition("def data")[0].replace("Dense(2)", "Dense(6)")
        + f"def data(): return {arrays}\n{distribution}"
    )

    def run(*more):
        return console.run(
            "plan",
            f"--module={path}:build",
            "--steps=2",
            "--global_batch_size=40",
            "--replica_counts=2,6",
            f"--output_dir={tmp_path}",
            *more,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "plan.json").read_text())
    (row,) = report["predictions"]
    assert row["mesh"] == {"batch": 2, "model": 3}
    # Rows by 2, columns by 3: a device has a sixth of the product.
    step = report["step"]["compute_seconds"]
    assert row["compute_seconds"] == pytest.approx(step / 6)
    assert "bottleneck" in done.stdout and "largest is used" in done.stdout
    axes, share = sources.on_mesh(f"{path}:build", 40, 6, 8)
    assert share == pytest.approx(1 / 6)
    rows, _ = axes
    # A device sums its 3 * 2 elements of the kernel's gradient, the bias's and
    # the loss's: each of two devices sends as many bytes.
    assert rows.divides_rows and 4 * (6 + 2) <= rows.sent_bytes <= 4 * (6 + 10)

    def run_job(child, job, *_):
        return measuring.main(job)

    monkeypatch.setattr(child_processes, "run_job", run_job)
    with pytest.raises(InputError, match="3 devices of --replica_counts"):
        sources.from_module(f"{path}:build", 2, devices=3)


@pytest.mark.slow
def test_a_module_that_can_not_be_measured(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("def build(): return 5\n")
    with pytest.raises(InputError, match=r"^build\(\) must return a compiled"):
        sources.from_module(f"{path}:build")
