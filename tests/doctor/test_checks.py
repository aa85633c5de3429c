"""Versions, trials, workers; and a text without names."""

import getpass
import pathlib
import re
import socket

import pytest

from kerasmgpu.doctor import doctor_report, examination
from kerasmgpu.doctor.findings import CATALOGUE
from kerasmgpu.doctor.tensorflow_checks import judge_versions
from kerasmgpu.doctor.trials import judge_trials
from tests.docs import pages

VERSIONS = {
    "python": "3.11.7",
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "matplotlib": "3.9",
    "nvidia-ml-py": "13",
    "tensorboard": "2.20",
}
GOOD = {"warning": None, "backend": "tensorflow", "xla": {"seconds": 0.3}}


def bad(found):
    return {one.key: one for one in found if one.status != "ok"}


def test_versions_that_fit():
    assert bad(judge_versions(VERSIONS, GOOD)) == {}


@pytest.mark.parametrize(
    ("facts", "key", "status"),
    [
        (
            {"warning": "checked on Keras 3.10 to …"},
            "versions_unchecked",
            "note",
        ),
        (
            {"warning": "checked on …", "import_error": "ImportError: x"},
            "import_failed",
            "problem",
        ),
        ({"backend": "torch"}, "backend", "problem"),
        ({"xla": {"error": "no ptxas"}}, "xla", "problem"),
    ],
)
def test_versions_that_do_not_fit(facts, key, status):
    found = bad(judge_versions(VERSIONS, GOOD | facts))
    assert list(found) == [key]
    assert found[key].status == status and found[key].advice


def test_tensorflow_that_does_not_start():
    found = bad(judge_versions(VERSIONS, {"error": "ended by signal 4"}))
    assert "ended by signal 4" in found["import_failed"].text


def test_a_package_that_is_missing():
    versions = {k: v for k, v in VERSIONS.items() if k != "matplotlib"}
    found = bad(judge_versions(versions, GOOD))
    assert found["package_missing"].advice == "pip install matplotlib"


def test_trials():
    good = {"distance": 1e-7, "tolerance": 1e-5, "rounding": None}
    rounds = good | {"distance": 3e-5, "rounding": 1e-5}
    differs = good | {"distance": 3e-3, "rounding": 1e-5}
    trials = {"a": good, "b": rounds, "c": differs, "d": {"error": "killed"}}
    keys = ["trial", "trial_rounds", "trial_differs", "trial_failed"]
    found = list(judge_trials(trials))
    assert [one.key for one in found] == keys
    nan = judge_trials({"e": good | {"distance": float("nan")}})
    assert next(nan).key == "trial_differs"


def test_workers_that_differ():
    workers = [
        {"versions": VERSIONS | {"keras": version}, "driver": {"gpus": gpus}}
        for version, gpus in (("3.15", [{"name": "A100"}] * 2), ("3.14", []))
    ]
    found = bad(examination.judge_workers(workers, [100.0, 103.5]))
    assert "keras 3.15, 3.14" in found["workers_differ"].text
    assert found["gpus_differ"].text == "GPUs by worker: 2 A100; none"
    assert found["clocks_differ"].text == "clocks differ by 3.5 s"
    assert not bad(examination.judge_workers(workers[:1], [100.0]))


def test_a_check_that_fails_is_a_finding():
    (found,) = examination.judged(lambda facts: facts["none"], "host", {})
    assert found.key == "check_failed" and "KeyError" in found.text
    facts = {"failed": "OSError: no /proc"}
    (found,) = examination.judged(lambda facts: facts["none"], "host", facts)
    assert found.text.endswith("OSError: no /proc")


def test_text_has_no_names():
    home, host = pathlib.Path.home(), socket.gethostname()
    token = "0123456789abcdef" * 2
    text = (
        f"{home}/data /home/jane/x on {host} and node7 {getpass.getuser()} "
        f'10.1.2.3:29500 fe80::1:2:3 "node8.example.org:29500" {token} 2.21.0'
        " GPU-8f6d1c22-0000-4000-8000-0123456789ab"
    )
    told = doctor_report.anonymous(text, ["node7"])
    for secret in (str(home), "jane", "node7", "node8", "10.1.2.3", token):
        assert secret not in told
    assert f" {host} " not in told and "fe80" not in told
    assert told.startswith("~/data ~/x on <host> and <host> ")
    assert told.endswith("<token> 2.21.0 <GPU>")  # A version is no address.


def test_the_text_has_no_names_where_lines_are_broken():
    long = "TF_CONFIG=" + ", ".join(f'"worker{n}:80"' for n in range(99))
    finding = dict(key="", status="ok", subject="", text=long, advice="")
    report = {
        "devices": "GPUs: GPU:0",
        "findings": [finding],
        "collectives": [],
        "trials": {},
        "verdict": "NO PROBLEM",
        "hosts": ["worker98"],
    }
    said = doctor_report.to_text(report)
    assert "NO PROBLEM" in said and "<host>" in said
    assert "worker" not in "".join(said.split())


def test_the_page_has_every_finding():
    page = (pages.ROOT / "docs/doctor.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, flags=re.MULTILINE)
    assert dict(rows) == {key: kind for key, (kind, _) in CATALOGUE.items()}
