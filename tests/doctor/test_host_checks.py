"""Facts of hosts, and what is made of them."""

import resource

import pytest

from kerasmgpu import stderr_filter
from kerasmgpu.doctor import host_checks
from kerasmgpu.doctor.host_checks import host_facts, judge_host

GIB = 2**30
SOUND = {
    "cpus": 64,
    "usable_cpus": 64,
    "cgroup_cpus": None,
    "memory": {"total": 256 * GIB, "available": 200 * GIB},
    "cgroup_memory": None,
    "shared_memory": {"total": 128 * GIB, "free": 128 * GIB},
    "open_files": 65536,
    "environment": {},
    "data_dir": {
        "free": 900 * GIB,
        "write_bytes_per_second": 1e9,
        "read_bytes_per_second": 2e9,
    },
}


def judged(**changes):
    """Findings that aren't good, by key."""
    found = judge_host(SOUND | changes)
    return {one.key: one for one in found if one.status != "ok"}


def test_a_sound_host():
    assert judged() == {}


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"cgroup_cpus": 2.5}, "cpu_quota", "the time of 2.5"),
        ({"cgroup_memory": 8 * GIB}, "memory_limit", "may use 8 GiB"),
        (
            {"shared_memory": {"total": 64 << 20, "free": 64 << 20}},
            "shared_memory",
            "0.0625 GiB",
        ),
        ({"shared_memory": None}, "shared_memory", "nothing free"),
        ({"open_files": 1024}, "open_files", "1024 files"),
        ({"data_dir": {"free": GIB}}, "disk_space", "1 GiB free"),
        (
            {"data_dir": {"free": 99 * GIB, "error": "Read-only file system"}},
            "disk_failed",
            "Read-only",
        ),
        (
            {"data_dir": SOUND["data_dir"] | {"read_bytes_per_second": 3e7}},
            "disk_speed",
            "reads 30 MB/s",
        ),
        (
            {"environment": {"NCCL_P2P_DISABLE": "1"}},
            "variable",
            "NCCL_P2P_DISABLE=1",
        ),
    ],
)
def test_faults(changes, key, words):
    found = judged(**changes)
    assert list(found) == [key]
    assert words in found[key].text and found[key].advice


def test_facts_of_this_host(tmp_path, monkeypatch):
    monkeypatch.setattr(host_checks, "_TEST_BYTES", 8 << 20)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv(stderr_filter.SHOW_VARIABLE, "2")
    monkeypatch.setattr(stderr_filter, "sets_variable", True)
    monkeypatch.setenv("KERASMGPU_JOB_TOKEN_FILE", "secret")
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", "of another program")
    facts = host_facts(str(tmp_path))
    assert facts["open_files"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert facts["environment"]["NCCL_DEBUG"] == "INFO"
    assert not {
        "KERASMGPU_JOB_TOKEN_FILE",
        "TF_CLI_CONFIG_FILE",
        stderr_filter.SHOW_VARIABLE,
    } & set(facts["environment"])
    assert facts["data_dir"]["read_bytes_per_second"] > 0
    assert list(tmp_path.iterdir()) == []  # Its file is gone.
    assert {one.key for one in judge_host(facts)} >= {"disk_speed"}


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({}, (None, None)),
        ({"cpu.max": "max 100000", "memory.max": "max"}, (None, None)),
        ({"cpu.max": "150000 100000", "memory.max": "1024"}, (1.5, 1024)),
        (
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "2048",
            },
            (0.5, 2048),
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            (None, None),
        ),
    ],
)
def test_limits_of_control_groups(tmp_path, monkeypatch, files, limits):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")
    monkeypatch.setattr(host_checks, "_CGROUPS", tmp_path)
    assert host_checks._cgroup_limits() == limits
