"""`kerasmgpu evidence` makes rows of files, and refuses others in a line."""

import json

import pytest
from absl import flags

from kerasmgpu import InputError
from kerasmgpu.callbacks.audit_verdict import DEVICE, EQUAL, FORMAT
from kerasmgpu.commands import evidence_command

RUN = {
    "format": FORMAT,
    "model": "resnet",
    "devices": [f"GPU:{n} (NVIDIA H100 80GB HBM3)" for n in range(4)],
    "replicas": 8,
    "workers": 2,
    "settings": {"shard": "weights", "micro_batches": 2},
    "precision": "mixed_bfloat16",
    "xla": "True",
    "steps_compared": 5,
    "verdict": EQUAL,
    "largest_differences": {"conv": 1.2e-3, "dense": 4e-7},
}


def written(folder, **other):
    path = folder / "evidence.json"
    path.write_text(json.dumps(RUN | other))
    return str(path)


def test_a_row_has_what_the_run_was_and_the_largest_difference(tmp_path):
    run = evidence_command.read(written(tmp_path))
    heading, _, row = evidence_command.table([run]).splitlines()
    assert heading.startswith("| model | devices | replicas | settings |")
    assert row == (
        "| resnet | 4 × NVIDIA H100 80GB HBM3 | 8 | shard=weights, "
        "micro_batches=2, mixed_bfloat16, XLA, 2 workers | 5 | 1e-03 (conv) | "
        "equal |"
    )


def test_what_json_lacks_and_what_tables_mean_otherwise(tmp_path):
    differences = {"a|b": None, "c": 1.0}
    path = written(
        tmp_path, largest_differences=differences, devices=["CPU:0", "CPU:1"]
    )
    row = evidence_command.table([evidence_command.read(path)])
    assert "| 2 × CPU |" in row
    assert "| infinite (a\\|b) |" in row


@pytest.mark.parametrize("verdict, status", [(EQUAL, 0), (DEVICE, 1)])
def test_the_status_says_whether_all_are_equal(
    tmp_path, capsys, monkeypatch, verdict, status
):
    values = flags.FlagValues()
    evidence_command.define_flags(values)
    values(["evidence", f"--output={tmp_path / 'table.md'}"])
    monkeypatch.setattr(flags, "FLAGS", values)
    with pytest.raises(SystemExit) as ended:
        evidence_command.main(["evidence", written(tmp_path, verdict=verdict)])
    assert ended.value.code == status
    printed = capsys.readouterr().out
    assert (tmp_path / "table.md").read_text("utf-8") == printed
    assert f"| {verdict} |" in printed


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "no JSON"),
        ("[]", "which is another file"),
        ('{"format": "kerasmgpu evidence 1"}', "which is another file"),
        (json.dumps(RUN | {"devices": 4}), "which is another file"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path, text, said):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match="evidence takes files") as error:
        evidence_command.read(str(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
