"""The command that counts FLOPs."""

import json

import pytest

from kerasmgpu.commands import flops_command
from tests import console
from tests.flops import closed_forms

PER_ROW = 2 * (2 * 100 * 64 + 3 * 64 * 32 + 3 * 32 * 10)


@pytest.mark.slow
def test_the_command_counts_by_layer(tmp_path):
    console.put_module(closed_forms, tmp_path, "forms")
    (tmp_path / "my_module.py").write_text(
        "import forms\n\ndef build():\n    return forms.mlp()[:2]\n"
    )
    flags = ["--json", "--global_batch_size=128", "--device=h100_sxm"]
    done = console.run("flops", "my_module:build", *flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["flops_per_step"] == 128 * PER_ROW
    assert report["hardware_flops_per_step"] == 128 * PER_ROW
    assert report["formula"] == f"{PER_ROW:.4g} · rows"
    assert report["by_dtype"] == {"float32": 128 * PER_ROW}
    assert (report["uncounted"], report["unknown"]) == ({}, [])
    assert report["device"] == "H100-SXM"
    assert report["seconds_at_peak"] == pytest.approx(128 * PER_ROW / 494.7e12)
    first, second, third = report["layers"]
    assert [one["layer"] for one in report["layers"]] == [
        "dense",
        "dense_1",
        "dense_2",
    ]
    # The gradient of the model's input is not computed.
    assert first["forward"] == first["backward"] == 128 * 2 * 6400
    assert second["backward"] == 2 * second["forward"] == 2 * 128 * 2 * 2048
    assert third["share"] == pytest.approx(6 * 320 / PER_ROW)


REPORT = {
    "model": "net",
    "parameters": 1234,
    "global_batch_size": 8,
    "flops_per_step": 4.2e9,
    "hardware_flops_per_step": 5e9,
    "formula": "5.25e+08 · rows",
    "by_dtype": {"bfloat16": 4.2e9},
    "layers": [
        {
            "layer": "dense",
            "forward": 1.4e9,
            "backward": 2.8e9,
            "recomputed": 8e8,
            "share": 1.0,
        }
    ],
    "uncounted": {"Svd": 2},
    "elementwise": {"Mul": 3, "Sum": 2},
    "unknown": [],
    "device": None,
}


def shown(capsys, **changed):
    flops_command.print_flops({**REPORT, **changed})
    return capsys.readouterr().out


def test_the_table_and_what_is_not_counted(capsys):
    text = shown(capsys)
    for part in (
        "net, 1,234 parameters, global batch 8",
        "recomputed",
        "800 M",
        "per step: 4.2 GFLOPs; per example: 525 MFLOPs",
        "with what is computed again: 5 GFLOPs",
        "not counted: 2 Svd\n",
        "not counted, by convention: 5 elementwise operations",
    ):
        assert part in text
    assert "its peak" not in text


def test_a_device_has_a_shortest_time_or_none(capsys):
    line = (
        "one A10 at its peak (a sheet, float32 as TensorFloat-32): 1.5 ms per"
    )
    made = {"device": "A10", "peak_source": "a sheet"}
    assert line in shown(capsys, **made, seconds_at_peak=0.0015)
    line = "A10: its peak for bfloat16 is not known"
    assert line in shown(capsys, **made, seconds_at_peak=None)


def test_unknown_rounds_are_named(capsys):
    text = shown(
        capsys,
        flops_per_step=None,
        formula="128 · rounds of while",
        unknown=["rounds of while"],
        layers=[{**REPORT["layers"][0], "forward": "8 · n", "share": None}],
    )
    assert "known when the step runs only: rounds of while" in text
    assert "8 · n" in text


@pytest.mark.parametrize(
    "flops, text",
    [
        (0, "0 "),
        (999, "999 "),
        (999.6, "1 k"),
        (12.34e9, "12.3 G"),
        (4e18, "4000 P"),
    ],
)
def test_size(flops, text):
    assert flops_command.size(flops) == text


@pytest.mark.parametrize(
    "seconds, text",
    [(12.34, "12.3 s"), (0.0123, "12.3 ms"), (4e-6, "4 µs"), (4e-10, "0.4 ns")],
)
def test_duration(seconds, text):
    assert flops_command.duration(seconds) == text
