"""Which numbers of replicas fit, and the setting that makes them fit."""

import json

import pytest

from kerasmgpu.memory import memory, memory_prediction
from kerasmgpu.plan import fitting
from tests import console
from tests.verify import programs

BUILD = "tests.verify.programs:masked_tokens"


def row(replicas, shard, parts, total, fits, whole=None):
    return {
        "replicas": replicas,
        "shard": shard,
        "offload": None,
        "recompute": None,
        "micro_batches": parts,
        "total": total,
        "fits": fits,
        "whole_total": total if whole is None else whole,
    }


@pytest.fixture
def counted(monkeypatch):
    """Rows that memory counts, instead of a process; its arguments."""
    given = {}
    rows = [
        row(1, "none", 4, 90, False, whole=400),
        # Not an answer: one replica shards nothing.
        row(1, "weights", 1, 10, True),
        row(2, "none", 1, 70, False),
        row(2, "optimizer", 2, 50, True, whole=80),
        row(2, "weights", 1, 40, True),
        row(4, "none", 2, 45, True, whole=60),
        row(4, "optimizer", 1, 30, True),
        row(8, "none", 1, 20, True),
    ]

    def run(module, **keywords):
        given.update(keywords, module=module)
        return {"rows": rows}

    monkeypatch.setattr(memory_prediction, "run", run)
    return given


PREDICTIONS = [{"replicas": n, "global_batch_size": 64} for n in (1, 2, 4, 8)]


def test_the_cheapest_setting_that_fits(counted):
    found = fitting.fits(
        "a:b", "24GiB", PREDICTIONS, is_weak=True, replicas_per_machine=8
    )
    assert counted["replicas"] == [1, 2, 4, 8]
    assert counted["batch_size_per_replica"] == 64
    assert "global_batch_size" not in counted
    one, two, four, eight = found
    assert (one["fits_with"], one["memory_bytes"]) == (None, 400)
    assert one["least_bytes"] == 90
    assert two["fits_with"] == "--shard=optimizer --micro_batches=2"
    assert (two["memory_bytes"], two["least_bytes"]) == (70, 40)
    assert (four["fits_with"], four["memory_bytes"]) == (
        "--micro_batches=2",
        60,
    )
    assert (eight["fits_with"], eight["memory_bytes"]) == ("", 20)


def test_strong_scaling_keeps_the_global_batch(counted):
    fitting.fits(
        "a:b", "24GiB", PREDICTIONS, is_weak=False, replicas_per_machine=8
    )
    assert counted["global_batch_size"] == 64
    assert "batch_size_per_replica" not in counted


def test_a_number_that_does_not_fit_is_not_recommended_without_its_setting(
    counted,
):
    found = fitting.fits(
        "a:b", "T4", PREDICTIONS, is_weak=True, replicas_per_machine=8
    )
    assert fitting.verdict(found, 8, "T4") == (
        "T4: a step on 8 replicas fits, with 20 B each."
    )
    assert "does not fit; it fits with --micro_batches=2, whose time" in (
        fitting.verdict(found, 4, "T4")
    )
    no = fitting.verdict(found, 1, "T4")
    assert no.startswith("T4: a step on 1 replica needs 400 B each, which does")
    assert "nor does 90 B" in no and "Numbers that can fit: 2, 4, 8." in no
    assert "No number fits" in fitting.verdict(found[:1], 1, "T4")


@pytest.mark.slow
def test_the_command_asks_memory_for_the_rows_of_each_replica(tmp_path):
    console.put_module(programs, tmp_path)
    flags = ["--step_seconds=0.1", "--parameters=1e3"]
    flags += ["--module=my_module:masked_tokens"]
    flags += ["--batch_size_per_replica=512", "--replica_counts=2"]
    flags += ["--device_memory=600KiB", f"--output_dir={tmp_path / 'out'}"]
    done = console.run("plan", *flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "plan.json").read_text())
    _, two = report["memory"]
    (plain,) = memory(BUILD, replicas=[2], global_batch_size=1024, show=False)[
        "rows"
    ]
    assert two["memory_bytes"] == plain["total"]
    assert two["fits_with"].startswith("--micro_batches=")
    assert "600KiB: a step on 2 replicas needs" in report["verdict"]
    assert two["fits_with"] in report["verdict"]
    assert two["fits_with"].removeprefix("--") in done.stdout
