"""What the commands say of machines with eight GPUs, sound and not.

The tables have the lines that a user must get, and no others: of doctor the
findings that aren't good, as `key, subject, words of the text`.
"""

import pytest

from kerasmgpu.doctor import doctor_report
from tests.hardware import false_driver
from tests.hardware.eight_gpus import MACHINES
from tests.hardware.false_machine import Machine, eight
from tests.hardware.recorded_nvml import LOST, uuid

ALL = "GPUs 0, 1, 2, 3, 4, 5, 6, 7"
DOCTOR = {
    "sound_box": [],
    "bridged_pairs": [
        (
            "no_nvlink",
            "links",
            "NV12 (that many NVLinks): 0–1, 2–3, 4–5, 6–7; PHB (a PCIe host "
            "bridge, in the CPU): 0–2, 0–3, 1–2, 1–3, 4–6, 4–7, 5–6, 5–7; SYS "
            "(the link between CPUs: the slowest): 0–4, 0–5, 0–6, 0–7, 1–4, "
            "1–5, 1–6, 1–7 and 8 more",
        )
    ],
    "no_nvlink": [
        (
            "no_nvlink",
            "links",
            "NODE (PCIe host bridges of one NUMA node): 0–3; SYS (the link "
            "between CPUs: the slowest): 0–4, 0–5, 0–6, 1–4, 1–5, 1–6, 1–7, "
            "2–4 and 7 more; ? (unknown): 0–7; PXB (several PCIe "
            "switches): 4–7",
        ),
        ("collective_slow", "collectives", "4.7 GB/s of 63 GB/s"),
    ],
    "fallen_off": [
        ("gpu_lost", "GPUs", "GPU 3 can't be reached: Unknown Error. Look for")
    ],
    "lost_now": [
        (
            "gpus_not_seen",
            "GPUs",
            "the driver sees 8 GPUs, TensorFlow 0: failed call to cuInit: "
            "CUDA_ERROR_UNKNOWN",
        ),
        ("gpu_lost", "GPUs", f"GPU 3 ({uuid(4)}) is lost: it fell off the bus"),
        ("gpu_lost", "GPUs", f"GPU 5 ({uuid(6)}) needs a reset"),
    ],
    "lost_between_two_questions": [
        ("gpu_lost", "GPUs", f"GPU 3 ({uuid(4)}) is lost: it fell off the bus")
    ],
    "lost_since_tensorflow": [
        ("gpu_lost", "GPUs", "GPU 3 is lost: it fell off the bus")
    ],
    "unknown_since_tensorflow": [
        ("gpu_lost", "GPUs", "GPU 3 can't be reached: Unknown Error")
    ],
    "silent": [
        ("gpu_lost", "GPUs", f"GPU 3 ({uuid(4)}) gives no answer any more")
    ],
    "no_power": [
        ("gpu_lost", "GPUs", "GPU 3 has too little power. Connect its external")
    ],
    "hot": [
        ("throttled", "GPU 0", "its clock is lowered: HW thermal slowdown"),
        ("throttled", "GPU 1", "its clock is lowered: SW power cap"),
        ("throttled", "GPU 2", "its clock is lowered: HW power brake"),
        ("throttled", "GPU 3", "its clock is lowered: HW slowdown"),
        ("throttled", "GPU 4", "its clock is lowered: SW thermal slowdown"),
        ("throttled", "GPU 5", "its clock is lowered: sync boost"),
    ],
    "held": [
        ("gpu_in_use", "GPU 0", "39.5 GiB are in use, by 1 process"),
        ("gpu_in_use", "GPU 1", "39.5 GiB are in use, by 2 processes"),
        ("gpu_in_use", "GPU 2", "in use, by processes that can't be seen from"),
    ],
    "faulty_memory": [
        ("ecc_errors", "GPU 0", "3 uncorrected memory errors since"),
        ("ecc_errors", "GPU 1", "; a row could not be replaced"),
        ("rows_pending", "GPU 2", "faulty rows of its memory wait"),
        ("rows_pending", "GPU 3", "faulty pages of its memory wait"),
    ],
    "divided": [("mig", ALL, "MIG is on: the GPU is divided")],
    "mixed": [
        (
            "gpus_differ",
            "GPUs",
            "the GPUs are not alike: 4 NVIDIA H100 80GB HBM3, 4 NVIDIA GeForce "
            "RTX 4090",
        ),
        ("no_nvlink", "links", "NV18 (that many NVLinks): 0–1, 0–2, 0–3, 1–2"),
        ("collective_slow", "collectives", "9.4 GB/s of 63 GB/s"),
    ],
    "old_driver": [
        ("driver_too_old", "GPUs", "driver 384.81; TensorFlow was built with"),
        ("gpus_not_seen", "GPUs", "the driver sees 8 GPUs, TensorFlow 0"),
    ],
    "no_versions": [],
    "minor_version": [
        ("driver_older_than_cuda", "GPUs", "535.54.03, for CUDA up to 12.2;"),
        ("blackwell", ALL, "compute capability 12.0; this TensorFlow is built"),
    ],
    "slow_pcie": [
        ("pcie_narrow", "GPU 0", "PCIe runs with 4 of 16 lanes"),
        ("pcie_slow", ALL, "PCIe runs as generation 3, the GPU has 5"),
        (
            "nvlink_down",
            "GPU 5",
            "16 NVLinks are active, where other GPUs of this machine have 18",
        ),
        ("collective_slow", "collectives", "14.2 GB/s of 400 GB/s"),
    ],
    "denied": [
        (
            "counters_denied",
            "GPUs",
            "this user has no permission for nvmlDeviceGetPcieThroughput, "
            "nvmlDeviceGetTotalEccErrors",
        )
    ],
    "allotted_two": [],
    "chosen_three": [
        ("gpus_hidden", "GPUs", "TensorFlow 3: CUDA_VISIBLE_DEVICES=0,1,5"),
        ("variable", "environment", "CUDA_VISIBLE_DEVICES=0,1,5"),
    ],
    "chosen_and_missing": [
        ("gpus_not_seen", "GPUs", "TensorFlow 2: CUDA_VISIBLE_DEVICES=0,1,9"),
        ("variable", "environment", "CUDA_VISIBLE_DEVICES=0,1,9"),
    ],
    "job_of_eight": [
        # Once, not by each of eight workers.
        ("throttled", "worker 0: GPU 4", "HW thermal slowdown")
    ],
    "without_cuda": [
        ("tensorflow_without_cuda", "GPUs", "is built without CUDA")
    ],
    "without_cudnn": [
        ("libraries_missing", "GPUs", "it does not find libcudnn")
    ],
    "newer_gpus": [("capability_from_ptx", ALL, "12.0; this TensorFlow is")],
    "older_gpus": [("capability_not_built", ALL, "5.2; this TensorFlow is")],
}
NO_DRIVER = [("no_nvml", "GPUs", ", the driver did not answer")]


@pytest.mark.parametrize("name", MACHINES)
def test_doctor(monkeypatch, name):
    report = false_driver.doctor(monkeypatch, MACHINES[name]())
    bad = [one for one in report["findings"] if one["status"] != "ok"]
    expected = DOCTOR.get(name, NO_DRIVER)
    keys = [(one["key"], one["subject"]) for one in bad]
    assert keys == [(key, subject) for key, subject, _ in expected]
    for one, (_, _, words) in zip(bad, expected):
        assert words in one["text"] and one["advice"]
    assert uuid(4)[:12] not in doctor_report.to_text(report)


@pytest.mark.parametrize(
    ("name", "key", "text"),
    [
        ("allotted_two", "gpus_visible", "2; this user may not use 6 more"),
        ("fallen_off", "gpus_visible", "TensorFlow 7, all that answer"),
        ("divided", "gpus_visible", "TensorFlow 1: one part of one of them"),
        ("job_of_eight", "gpus_visible", "1: CUDA_VISIBLE_DEVICES=0"),
        ("no_versions", "driver", "driver of an unknown version, for CUDA up"),
        ("sound_box", "collectives", "391 GB/s of 450 GB/s that its slowest"),
        # Over PCIe: bridges join pairs only.
        ("bridged_pairs", "collectives", "33.6 GB/s of 63 GB/s that its"),
        ("sound_box", "links", "NV18 (that many NVLinks): 0–1, 0–2, 0–3"),
        ("old_driver", "links", "? (unknown): 0–1"),
        # Numbers are the driver's, also beside a lost one.
        ("fallen_off", "links", "0–1, 0–2, 0–4, 0–5, 0–6, 0–7, 1–2, 1–4 and"),
    ],
)
def test_doctor_of_what_is_well(monkeypatch, name, key, text):
    report = false_driver.doctor(monkeypatch, MACHINES[name]())
    (found,) = [one for one in report["findings"] if one["key"] == key]
    assert found["status"] == "ok" and text in found["text"]


LOOK = "Look for Xid errors in `dmesg`, and restart the machine."
SLOWED = "Check its cooling and power supply."
LOGGED = {
    "fallen_off": [f"Worker 0: GPU 3 can't be reached: Unknown Error. {LOOK}"],
    "no_power": [
        "Worker 0: GPU 3 has too little power. Connect its external power "
        "cables."
    ],
    "lost_since_tensorflow": [
        "Worker 0: GPU 3 is lost: it fell off the bus. Look for Xid 79 in "
        "`dmesg`, and restart the machine.",
        f"Worker 0: GPU:3: GPU {uuid(4)} is lost: it fell off the bus. Look "
        "for Xid 79 in `dmesg`, and restart the machine.",
    ],
    "unknown_since_tensorflow": [
        f"Worker 0: GPU 3 can't be reached: Unknown Error. {LOOK}",
        "DeviceStats without counters of GPU:3: NVML does not know it.",
    ],
    "hot": [
        f"Worker 0: GPU:0 is slowed down: HW thermal slowdown. {SLOWED}",
        f"Worker 0: GPU:2 is slowed down: HW power brake. {SLOWED}",
        f"Worker 0: GPU:3 is slowed down: HW slowdown. {SLOWED}",
    ],
    "job_of_eight": [
        f"Worker 0: GPU:4 is slowed down: HW thermal slowdown. {SLOWED}"
    ],
    "denied": [
        "DeviceStats without some counters of GPUs: this user has no "
        "permission for nvmlDeviceGetPcieThroughput."
    ],
}


@pytest.mark.parametrize("name", [n for n in MACHINES if n[:4] != "nvml"])
def test_device_stats(monkeypatch, name):
    machine = MACHINES[name]()
    lines, figures = false_driver.device_stats(monkeypatch, machine)
    assert lines == LOGGED.get(name, [])
    assert len(figures) == len(machine.seen)
    known = [one["gpu_utilization_mean"] >= 0 for one in figures]
    lost = {"lost_since_tensorflow", "unknown_since_tensorflow"}
    place = 3 if name in lost else len(known)
    if name != "divided":  # The driver doesn't count the use of parts.
        assert known == [number != place for number in range(len(known))]


def test_device_stats_of_gpus_that_are_lost_one_by_one(monkeypatch):
    machine = Machine(eight())
    machine.gpus[2]["nvmlDeviceGetMemoryInfo"] = machine.gpus[2][
        "nvmlDeviceGetTemperature"
    ] = LOST
    lines, figures = false_driver.device_stats(monkeypatch, machine)
    assert lines == [
        f"Worker 0: GPU:2: GPU 2 ({uuid(3)}) is lost: it fell off the bus. "
        "Look for Xid 79 in `dmesg`, and restart the machine."
    ]
    assert sum(one["gpu_power_watts_mean"] > 0 for one in figures) == 7


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LIBRARY_NOT_FOUND", "no NVIDIA driver: libnvidia-ml.so.1 was not"),
        ("DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
        ("NO_PERMISSION", "no permission to read the NVIDIA driver's counters"),
        ("LIB_RM_VERSION_MISMATCH", "the NVIDIA driver's library and"),
        ("UNKNOWN", "NVML failed: Unknown Error. See what `nvidia-smi` and"),
    ],
)
def test_device_stats_without_nvml(monkeypatch, name, words):
    machine = MACHINES[f"nvml_{name.lower()}"]()
    machine.seen = [0, 1]
    (line,), figures = false_driver.device_stats(monkeypatch, machine)
    assert line.startswith(f"DeviceStats without counters of GPUs: {words}")
    assert figures[1]["gpu_memory_peak_bytes_max"] > 0
