"""Reading the folders of runs."""

import json
import math

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.report import run_files
from tests.report import samples


def test_a_complete_folder(tmp_path):
    (run,) = run_files.read([samples.complete(tmp_path / "run", replicas=2)])
    assert run.name == "run"
    assert run.replicas == 2
    assert [record["epoch"] for record in run.history] == list(range(1, 13))
    assert len(run.steps) == 12
    assert len(run.devices) == 120 * 3
    assert run.problems == []


def test_an_old_folder_has_flags_history_and_result(tmp_path):
    folder = samples.write(
        tmp_path / "old",
        flags_txt="--epochs=2\n--dataset=ml-1m\n",
        history_jsonl=[{"epoch": 1, "seconds": 2.0, "loss": 0.5}],
        result_json={"replicas": 4, "devices": ["CPU:0"], "loss": 0.5},
    )
    (run,) = run_files.read([folder])
    assert run.flags == {"epochs": "2", "dataset": "ml-1m"}
    assert run.replicas == 4
    assert run.facts["devices"] == ["CPU:0"]
    assert run.problems == []


def test_the_half_line_of_a_run_that_goes_on_is_no_problem(tmp_path):
    text = "".join(json.dumps(r) + "\n" for r in samples.epochs(3))
    folder = samples.write(tmp_path, history_jsonl=text + '{"epoch": 4, "lo')
    (run,) = run_files.read([folder])
    assert len(run.history) == 3
    assert run.problems == []


def test_damaged_lines_are_named_once_and_left_out(tmp_path):
    lines = [json.dumps(r) for r in samples.epochs(4)]
    lines[1] = "\x00\x00"
    lines[2] = "[1, 2]"
    folder = samples.write(tmp_path, history_jsonl="\n".join(lines) + "\n")
    (run,) = run_files.read([folder])
    assert [record["epoch"] for record in run.history] == [1, 4]
    assert run.problems == [
        "history.jsonl: not a JSON object, left out: line 2, 3"
    ]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[]", b"{", b"3"])
def test_a_damaged_file_leaves_the_others(tmp_path, content):
    folder = samples.complete(tmp_path / "run")
    (folder / "run.json").write_bytes(content)
    (run,) = run_files.read([folder])
    (problem,) = run.problems
    assert problem.startswith("run.json can't be read (")
    assert len(run.history) == 12


def test_entries_of_another_type_are_left_out(tmp_path):
    folder = samples.complete(tmp_path / "run")
    facts = samples.facts(strategy=[1]) | {"replicas": "two", "workers": True}
    samples.write(folder, run_json=facts)
    (run,) = run_files.read([folder])
    assert run.replicas == 1
    assert [problem.split()[1] for problem in run.problems] == [
        "replicas",
        "workers",
        "strategy",
    ]


def test_an_epoch_that_ran_again_counts_once(tmp_path):
    lines = [
        {"epoch": 2, "loss": 5.0},
        {"epoch": 1, "loss": 3.0},
        {"epoch": 2, "loss": 2.0},
    ]
    (run,) = run_files.read([samples.write(tmp_path, history_jsonl=lines)])
    assert run.values("loss") == [(1, 3.0), (2, 2.0)]


def test_null_and_nan_are_nan(tmp_path):
    text = '{"epoch": 1, "loss": null}\n{"epoch": 2, "loss": NaN}\n'
    (run,) = run_files.read([samples.write(tmp_path, history_jsonl=text)])
    assert all(math.isnan(value) for _, value in run.values("loss"))


def test_names_are_as_long_as_makes_them_unique(tmp_path):
    folders = [
        samples.complete(tmp_path / "a" / "run"),
        samples.complete(tmp_path / "b" / "run"),
    ]
    assert [r.name for r in run_files.read(folders)] == ["a/run", "b/run"]


def test_a_folder_of_a_scaling_report_stands_for_its_runs(tmp_path):
    samples.write(tmp_path, report_json={"runs": []})
    for count in (10, 2, 1):
        samples.complete(tmp_path / f"replicas-{count}", count)
    names = [run.name for run in run_files.read([tmp_path])]
    assert names == ["replicas-1", "replicas-2", "replicas-10"]


def test_a_folder_of_runs_stands_for_them(tmp_path):
    """As the one of DeepCoNN, which trains with each placement."""
    samples.write(tmp_path, flags_txt="--placement=all")
    (tmp_path / "notes").mkdir()
    for name in ("dual", "single"):
        samples.complete(tmp_path / name, 1)
    names = [run.name for run in run_files.read([tmp_path])]
    assert names == ["dual", "single"]


def test_each_worker_has_samples_of_its_own(tmp_path):
    samples.write(
        tmp_path,
        run_json={},
        devices_jsonl=[{"time": 1, "worker": 0}, {"time": 3, "worker": 0}],
    )
    text = '{"time": 2, "worker": 1}\n'
    (tmp_path / "devices.worker1.jsonl").write_text(text)
    (run,) = run_files.read([tmp_path])
    assert [one["worker"] for one in run.devices] == [0, 1, 0]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="give the folder of a run"):
        run_files.read([])
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(InputError, match=f"no run in .*{name}. Expected"):
            run_files.read([tmp_path / name])
    folder = samples.complete(tmp_path / "run")
    with pytest.raises(
        InputError, match="given twice. Received: .*/run/../run"
    ):
        run_files.read([folder, folder / ".." / "run"])


def test_a_folder_in_a_store_tells_the_same(tmp_path):
    pytest.importorskip("tests.faulty_store")
    local = samples.complete(tmp_path / "runs" / "1", replicas=2)
    (expected,) = run_files.read([local])
    for url in (f"faulty://{local}", f"faulty://{tmp_path}/runs"):
        (run,) = run_files.read([url])
        assert str(run.folder) == f"faulty://{local}"
        assert vars(run) | {"folder": local} == vars(expected) | {
            "name": run.name
        }
    with pytest.raises(InputError, match="no run in faulty://.*/nowhere"):
        run_files.read([f"faulty://{tmp_path}/nowhere"])
