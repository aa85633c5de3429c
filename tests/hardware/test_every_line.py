"""Every line that the commands can say of GPUs is said here once.

`texts` reads the strings with blanks, but for docstrings, from the code of
`FILES`. Each must be among what the commands say of the machines of
`eight_gpus`, and of what `elsewhere` gives them: a line that no machine brings
about is either dead or not tested.
"""

import ast
import errno
import pathlib
import re

import pytest

import kerasmgpu
from kerasmgpu.callbacks import DeviceStats, device_sampler
from kerasmgpu.doctor import examination
from kerasmgpu.doctor.collective_checks import judge_collectives
from kerasmgpu.doctor.host_checks import judge_host
from kerasmgpu.doctor.tensorflow_checks import judge_versions
from kerasmgpu.doctor.trials import judge_trials
from kerasmgpu.errors import InputError
from kerasmgpu.hardware import device_memory, nvml
from kerasmgpu.launch import gpus as launch_gpus
from tests.doctor.test_checks import GOOD, VERSIONS
from tests.doctor.test_collective_checks import measured
from tests.doctor.test_host_checks import SOUND
from tests.hardware import false_driver
from tests.hardware.eight_gpus import MACHINES, sound_box

ROOT = pathlib.Path(kerasmgpu.__file__).parent
FILES = """
    callbacks/device_sampler.py callbacks/device_stats.py
    doctor/card_checks.py doctor/findings.py doctor/gpu_checks.py
    hardware/cuda_devices.py hardware/device_memory.py hardware/gpu.py
    hardware/gpu_links.py hardware/nvml.py
    launch/gpus.py plan/own_links.py
""".split()


def texts(tree):
    """Yields `(line, regular expression)` of each text in a module."""
    skipped = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # A docstring.
        elif isinstance(node, ast.Call) and is_pattern(node.func):
            skipped.update(map(id, node.args))
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            skipped.update(map(id, ast.walk(node.returns)))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, ast.walk(node)))
            yield node.lineno, "".join(map(pattern_of, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, pattern_of(node)


def is_pattern(function):
    return isinstance(function, ast.Attribute) and function.attr == "compile"


def pattern_of(node):
    """A regular expression of a part of a text."""
    if not isinstance(node, ast.Constant):
        return ".*"
    # The catalogue of findings and absl's logging have values in them.
    return re.sub(r"\\\{\w+\\\}|%s", ".*", re.escape(node.value))


def has_words(pattern):
    return " " in pattern.replace("\\ ", " ").strip()


def is_said(pattern, said):
    return any(re.search(pattern, line) for line in said)


def unsaid(file, said):
    """The texts of a file that are in none of the lines `said`."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return [
        f"{file}:{line}: {pattern}"
        for line, pattern in texts(tree)
        if has_words(pattern) and not is_said(pattern, said)
    ]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """A set of what is said of all machines."""
    lines = []
    for make in MACHINES.values():
        with pytest.MonkeyPatch.context() as patch:
            report = false_driver.doctor(patch, make())
            lines += findings(report["findings"])
            lines += [report["devices"], report["verdict"]]
            for gpu in report["facts"][0]["driver"].get("gpus", ()):
                lines += gpu.get("throttle_reasons", ())
            logged, _ = false_driver.device_stats(patch, make())
            lines += logged
            folder = tmp_path_factory.mktemp("launch")
            lines.append(false_driver.launch(patch, make(), folder))
    with pytest.MonkeyPatch.context() as patch:
        lines.append(false_driver.plan(patch, sound_box()))
        lines += launched(patch, tmp_path_factory.mktemp("launch"))
        lines += elsewhere(patch)
    return set(lines)


def findings(found):
    return [one[key] for one in found for key in ("text", "advice")]


def launched(patch, folder):
    """What the launcher says without `nvidia-smi`, and without its answer."""
    patch.setattr(launch_gpus, "_DEVICES", folder)
    yield false_driver.launch(patch, sound_box(), folder, script="")
    (folder / "nvidia0").touch()
    said = false_driver.launch(patch, sound_box(), folder, script="")
    yield " ".join(said.split())
    patch.setattr(launch_gpus, "_SECONDS_TO_LIST", 0.1)
    script = "#!/bin/sh\nexec /bin/sleep 60\n"
    yield false_driver.launch(patch, sound_box(), folder, script)


def elsewhere(patch):
    """What doctor finds that is not of GPUs, and errors of users."""
    poor = {
        "cgroup_cpus": 2.5,
        "cgroup_memory": 8 << 30,
        "shared_memory": None,
        "open_files": 1024,
        "environment": {"CUDA_LAUNCH_BLOCKING": "1"},
    }
    slow = {"free": 1, "write_bytes_per_second": 1, "read_bytes_per_second": 1}
    one = {"distance": 1.0, "tolerance": 1e-5, "rounding": None}
    trials = {
        "a": {"error": "killed"},
        "b": one,
        "c": one | {"distance": 3e-5, "rounding": 1e-5},
    }
    facts = GOOD | {"backend": "torch", "xla": {"error": "no ptxas"}}
    worker = {"versions": VERSIONS, "driver": {"missing": "x"}}
    other = {"versions": {"keras": "3.10"}, "driver": {"missing": "x"}}
    for found in (
        judge_host(SOUND | poor | {"data_dir": slow}),
        judge_host(SOUND | {"data_dir": {"free": 1, "error": "Read-only"}}),
        judge_versions({}, facts),
        judge_trials(trials),
        judge_collectives({"error": "x"}, {}, False),
        judge_collectives(measured(1.0, is_right=False), {}, False),
        examination.judge_workers([worker, other], [0.0, 9.0]),
        examination.judged(lambda facts: facts["none"], "host", {}),
    ):
        for each in found:
            yield from (each.text, each.advice)
    for wrong in (
        lambda: device_memory.parse("24"),
        lambda: DeviceStats(seconds=0),
        lambda: launch_gpus.Gpus(("0", "1"), "a test").require(2, 2),
    ):
        with pytest.raises(InputError) as raised:
            wrong()
        yield str(raised.value)
    full = FullDisk()
    with false_driver.logged() as logged:
        sampler = device_sampler.Sampler([], 0.1, full, 0)
        sampler.take()
        sampler.stop()
    yield from logged
    patch.setitem(nvml.__builtins__, "__import__", refuse)
    yield nvml.open_nvml()[1]


class FullDisk:
    """`JsonLines` of a disk without room."""

    def append(self, *records, sync):
        raise OSError(errno.ENOSPC, "No space left on device")


def refuse(name, *arguments):
    raise ImportError(name)


@pytest.mark.parametrize("file", FILES)
def test_every_line_is_said(file, said):
    assert unsaid(file, said) == []


def test_a_line_that_nothing_says_is_found(said):
    """And each form that a text may have."""
    code = '''
"""A docstring is no line."""
found("key", f"GPU {n} has melted")
found("key", "GPU {n} is on " "fire")
logging.info("GPU %s is %s", 1, 2)
PATTERN = re.compile("of GPU .*")
name = "one_word"
'''
    patterns = [p for _, p in texts(ast.parse(code)) if has_words(p)]
    assert patterns == [
        r"GPU\ .*\ has\ melted",
        r"GPU\ .*\ is\ on\ fire",
        r"GPU\ .*\ is\ .*",
    ]
    assert [is_said(p, said) for p in patterns] == [False, False, True]
