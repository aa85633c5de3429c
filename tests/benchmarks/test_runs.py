"""Rounds, failures and flags, with a made-up child."""

import json

import pytest

from benchmarks import contenders, runs
from benchmarks.figures import FIGURES, SECOND_START
from kerasmgpu.commands import child_processes
from kerasmgpu.errors import InputError


@pytest.fixture
def made_up_child(monkeypatch):
    """Replaces the process of a run; returns the jobs that were run."""
    jobs = []

    def run_job(module, job, folder, timeout_seconds, environment):
        jobs.append({**job, "environment": environment})
        if job["contender"] == "stock" and job["replicas"] == 4:
            raise InputError("ValueError: shapes differ")
        result = dict.fromkeys(FIGURES, 1.0)
        rate = {"one_device": 100.0, "stock": 40.0}
        result["examples_per_second"] = rate.get(job["contender"], 60.0)
        result.update(first_loss=0.5, global_batch_size=64, parameters=9)
        return result

    monkeypatch.setattr(child_processes, "run_job", run_job)
    monkeypatch.setattr(child_processes, "visible_gpus", lambda: [])
    return jobs


THREE = ("one_device", "stock", "kerasmgpu")


def benchmark(tmp_path, **changes):
    settings = dict(
        workloads=["deep_narrow"],
        contenders=THREE,
        replica_counts=(4, 1),
        rounds=2,
        steps=5,
        output_dir=tmp_path / "out",
    )
    return runs.run(**{**settings, **changes})


def test_contenders_take_turns(tmp_path, made_up_child):
    benchmark(tmp_path)
    turns = [(job["contender"], job["replicas"]) for job in made_up_child]
    one_round = [
        ("one_device", 1),
        ("stock", 1),
        ("kerasmgpu", 1),
        ("stock", 4),
        ("kerasmgpu", 4),
    ]
    assert turns == one_round * 2
    assert [job["round"] for job in made_up_child] == [1] * 5 + [2] * 5
    assert {job["global_batch_size"] for job in made_up_child} == {64}
    assert {job["steps"] for job in made_up_child} == {5}


def test_a_second_start_finds_what_the_first_compiled(tmp_path, made_up_child):
    report = benchmark(tmp_path, starts=2, rounds=1)
    first, second, *_ = [job["environment"] for job in made_up_child]
    assert first["KERASMGPU_XLA_CACHE"] == second["KERASMGPU_XLA_CACHE"]
    assert len(made_up_child) == 2 * 5 - 1  # One fails.
    assert all(SECOND_START in row for row in report["rows"] if row["runs"])
    assert "second start" in (tmp_path / "out/benchmark.md").read_text()


def test_a_failure_is_in_its_row_and_the_others_go_on(
    tmp_path, made_up_child, capsys
):
    report = benchmark(tmp_path)
    failed = [row for row in report["rows"] if "failed" in row]
    assert [(r["contender"], r["replicas"]) for r in failed] == [("stock", 4)]
    assert failed[0]["failed"] == "ValueError: shapes differ"
    ours = report["rows"][-1]
    assert (ours["contender"], ours["runs"]) == ("kerasmgpu", 2)
    assert ours["ratios"]["one_device"]["median"] == 0.6
    printed = " ".join(capsys.readouterr().out.split())
    assert "[10/10] deep_narrow-kerasmgpu-4-round-2" in printed
    assert (
        "failed: deep_narrow, stock, 4 replicas: ValueError: shapes differ"
        in printed
    )
    assert "share the same cores" in printed


def test_caution_where_the_model_is_not_the_same(
    tmp_path, made_up_child, monkeypatch, capsys
):
    monkeypatch.setattr(runs.figures, "disagreements", lambda _: ["two models"])
    benchmark(tmp_path)
    assert "CAUTION: two models" in capsys.readouterr().out
    table = (tmp_path / "out" / "benchmark.md").read_text()
    assert "CAUTION: two models" in table


def test_files(tmp_path, made_up_child):
    report = benchmark(tmp_path)
    folder = tmp_path / "out"
    assert json.loads((folder / "benchmark.json").read_text()) == report
    picture = (folder / "benchmark.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    table = (folder / "benchmark.md").read_text()
    # Nobody is compared with who did not take part.
    assert "first step s | peak MB | × one_device | × stock |\n" in table
    # Examples per second, and 60 by 100 and 60 by 40.
    ours = "| kerasmgpu | 1 | 60 | 1.0 | 1.0 | 1.0 | 1 | 0.60 | 1.50 |"
    assert ours in table
    assert "| stock | 4 | failed |" in table and "shapes differ" in table
    assert report["versions"]["tensorflow"][0] == "2"
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["memory_gb"] > 0
    with pytest.raises(InputError, match="must be new or empty"):
        benchmark(tmp_path)


def test_what_is_not_installed_is_left_out_and_told(
    tmp_path, made_up_child, monkeypatch, capsys
):
    absent = contenders.Contender(
        "x", backend="jax", needs=("no_such_module",), install="pip install x"
    )
    monkeypatch.setitem(contenders.CONTENDERS, "jax", absent)
    report = benchmark(tmp_path, contenders=("stock", "jax"))
    assert {job["contender"] for job in made_up_child} == {"stock"}
    line = "no_such_module can't be imported (pip install x)"
    assert report["left_out"] == {"jax": line}
    assert f"left out: jax: {line}" in capsys.readouterr().out


def test_without_names_the_default_ones_take_part(
    tmp_path, made_up_child, monkeypatch, capsys
):
    monkeypatch.setattr(contenders.Contender, "is_installed", lambda _: True)
    runs.run(
        ["convnet"], replica_counts=(1,), rounds=1, output_dir=tmp_path / "out"
    )
    turns = tuple(job["contender"] for job in made_up_child)
    assert turns == contenders.BY_DEFAULT
    # Its own variant is compared with kerasmgpu, so there is a column.
    assert "× kerasmgpu" in (tmp_path / "out" / "benchmark.md").read_text()


def job(contender, virtual_devices=True):
    return {
        "contender": contender,
        "replicas": 4,
        "virtual_devices": virtual_devices,
    }


def test_environment_chooses_backend_and_devices(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--other")
    variables = runs.environment(job("jax"), "kept")
    assert variables["KERAS_BACKEND"] == "jax"
    assert variables["XLA_FLAGS"] == (
        "--other --xla_force_host_platform_device_count=4"
    )
    ours = runs.environment(job("kerasmgpu"), "kept")
    assert ours["KERAS_BACKEND"] == "tensorflow"
    assert ours["KERASMGPU_XLA_CACHE"] == "kept"
    stock = runs.environment(job("stock"), "kept")
    assert stock["CUDA_VISIBLE_DEVICES"] == "-1"
    kept = runs.environment(job("jax_kept"), "kept")
    assert kept["JAX_COMPILATION_CACHE_DIR"] == "kept"
    on_gpus = runs.environment(job("jax", virtual_devices=False), "kept")
    assert not {"XLA_FLAGS", "CUDA_VISIBLE_DEVICES"} & set(on_gpus)


def test_gpus_are_used_where_there_are_enough(
    tmp_path, made_up_child, monkeypatch
):
    monkeypatch.setattr(child_processes, "visible_gpus", lambda: ["A", "B"])
    with pytest.raises(InputError, match="has 4, but 2 GPUs are visible"):
        benchmark(tmp_path)
    report = benchmark(tmp_path, replica_counts=(2,))
    assert report["machine"]["gpus"] == ["A", "B"]
    assert {job["virtual_devices"] for job in made_up_child} == {False}
    benchmark(
        tmp_path,
        replica_counts=(4,),
        virtual_devices=True,
        output_dir=tmp_path / "other",
    )
    assert made_up_child[-1]["virtual_devices"] is True


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"workloads": ["nope"]}, "workloads must be some of deep_narrow"),
        ({"workloads": []}, "Received: none"),
        ({"contenders": ["stock", "stock"]}, "each once"),
        ({"replica_counts": [0]}, "replica_counts must be"),
        ({"replica_counts": []}, "replica_counts must have"),
        ({"rounds": 0}, "rounds must be"),
        ({"steps": 1.5}, "steps must be"),
        ({"global_batch_size": 0}, "global_batch_size must be"),
        ({"timeout_seconds": 0}, "timeout_seconds must be"),
    ],
)
def test_bad_settings(tmp_path, made_up_child, changes, message):
    with pytest.raises(InputError, match=message):
        benchmark(tmp_path, **changes)
    assert not (tmp_path / "out").exists()


def test_without_any_contender_nothing_is_begun(monkeypatch, tmp_path):
    monkeypatch.setattr(contenders.Contender, "is_installed", lambda _: False)
    with pytest.raises(InputError, match="pytorch: torch can't be imported"):
        runs.run(contenders=["pytorch"], output_dir=tmp_path / "new")
    assert not (tmp_path / "new").exists()
