"""The command, and what it says of wrong input."""

import json

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.memory import memory, memory_report
from tests import console
from tests.verify import programs

BUILD = "tests.verify.programs:masked_tokens"


@pytest.mark.slow
def test_the_command_prints_what_fits(tmp_path):
    console.put_module(programs, tmp_path)
    done = console.run(
        "memory",
        "my_module:masked_tokens",
        "--global_batch_size=4096",
        "--replicas=1,4",
        "--shard=none,weights",
        "--device_memory=4.9MiB",
        "--json",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    settings = [(row["shard"], row["replicas"]) for row in report["rows"]]
    assert settings == [
        ("none", 1),
        ("none", 4),
        ("weights", 1),
        ("weights", 4),
    ]
    # Micro-batches make one replica's rows fit.
    assert all(row["fits"] for row in report["rows"])
    # Fewer rows at a time, for only as many parts as are needed.
    parts = [row["micro_batches"] for row in report["rows"]]
    assert parts == [parts[0], 1, parts[0], 1]
    assert parts[0] > 1
    for row in report["rows"]:
        parts = sum(row[part] for part in memory_report.PARTS)
        assert parts == row["total"]
    assert "fits on 1 replica with --shard=none" in report["verdict"]


@pytest.mark.nightly
def test_the_function_prints_a_table(capsys):
    report = memory(BUILD, replicas=[2], device_memory="1KiB")
    shown = capsys.readouterr().out
    assert "memory of a replica" in shown
    assert report["verdict"] in shown
    assert "nothing fits" in report["verdict"]
    assert "the largest part are the" in report["verdict"]
    assert report["global_batch_size"] == 32


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(replicas=[0]), "replicas must be an integer of at least 1"),
        (dict(shard=["rows"]), "shard must be one of none, optimizer"),
        (dict(shard=[]), "shard must be one of none, optimizer"),
        (dict(micro_batches=[0]), "micro_batches must be an integer"),
        (dict(global_batch_size=0), "global_batch_size must be an integer"),
        (dict(device_memory="big"), "device_memory must be a size"),
        (dict(recompute="auto"), "recompute='auto' makes a step fit device_"),
        (dict(recompute="all"), 'recompute must be "none", "elementwise"'),
        (dict(data="nowhere"), "data must be MODULE:FUNCTION"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        memory(BUILD, **arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "give one function that returns your compiled model"),
        (["nowhere:build"], "no module named 'nowhere'"),
        (["json:loads", "--replicas=two"], "Received: replicas='two'"),
    ],
)
def test_one_line_for_wrong_input(arguments, message):
    done = console.run("memory", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and message in line
