"""Machines of eight GPUs, sound and not.

Each function of `MACHINES` returns a `Machine`; its docstring says what is
wrong with it.
"""

import pynvml

from tests.hardware.false_machine import (
    DENIED,
    NODE,
    SWITCHES,
    Machine,
    eight,
    levels,
    listed,
    over_pcie,
)
from tests.hardware.recorded_nvml import (
    GIB,
    IDLE,
    LOST,
    MISSING,
    Error,
    geforce,
    idle,
    nvlinks,
    pci,
)

UNKNOWN = Error(pynvml.NVML_ERROR_UNKNOWN)
_GPU, _SWITCH = 0, 2  # The device at the other end of an NVLink.


def sound_box():
    """Eight H100 and NVSwitches; all is well."""
    return Machine(eight())


def bridged_pairs():
    """Eight A100 for PCIe, each with a bridge to its neighbour only."""
    gpus = [
        idle(
            number + 1,
            nvmlDeviceGetName="NVIDIA A100 80GB PCIe",
            **levels(number),
            **nvlinks([(_GPU, pci((number ^ 1) + 1))] * 12, version=4),
        )
        for number in range(8)
    ]
    # 33 GB/s over the bus: what PCIe can, and a ninth of the bridges.
    return Machine(gpus, capability=(8, 0), seconds=0.014)


def no_nvlink():
    """Eight GPUs over PCIe, at all levels, one of them not known to NVML."""

    def level(number, other):
        if {number, other} == {0, 7}:
            return 60
        if {number, other} == {0, 3}:
            return NODE
        if {number, other} == {4, 7}:
            return SWITCHES
        return over_pcie(number, other)

    gpus = [
        geforce(number + 1, **IDLE | levels(number, level))
        for number in range(8)
    ]
    return Machine(gpus, capability=(8, 9), seconds=0.1)


def fallen_off():
    """GPU 3 fell off its bus an hour ago: its handle is an unknown error."""
    gpus = eight()
    gpus[3] = UNKNOWN
    return Machine(gpus)


def lost_now():
    """GPU 3 is lost when it is asked for its memory, GPU 5 needs a reset."""
    gpus = eight()
    gpus[3]["nvmlDeviceGetMemoryInfo"] = LOST
    gpus[5]["nvmlDeviceGetMemoryInfo"] = Error(pynvml.NVML_ERROR_RESET_REQUIRED)
    log = ("E0 x] failed call to cuInit: CUDA_ERROR_UNKNOWN",)
    return Machine(gpus, seen=[], log=log)


def lost_between_two_questions():
    """GPU 3 answers all, but not how it is connected."""
    gpus = eight()
    gpus[3]["nvmlDeviceGetPciInfo_v3"] = answers_once(pci(4))
    return Machine(gpus)


def answers_once(answer):
    """An answer of a GPU that is lost behind it."""
    left = [answer]
    return lambda *_: left.pop() if left else LOST


def lost_since_tensorflow():
    """GPU 3 was lost behind TensorFlow's start, before NVML's."""
    gpus = eight()
    gpus[3] = LOST
    return Machine(gpus, seen=list(range(8)))


def unknown_since_tensorflow():
    """The same, where NVML knows it no more."""
    gpus = eight()
    gpus[3] = UNKNOWN
    return Machine(gpus, seen=list(range(8)))


def silent():
    """GPU 3 answers every question with an unknown error."""
    gpus = eight()
    names = ("UUID", "Name")
    kept = {f"nvmlDeviceGet{name}" for name in names}
    gpus[3] = {k: v if k in kept else UNKNOWN for k, v in gpus[3].items()}
    return Machine(gpus, seen=[0, 1, 2, 4, 5, 6, 7])


def no_power():
    """GPU 3 has no power cable."""
    gpus = eight()
    gpus[3] = Error(pynvml.NVML_ERROR_INSUFFICIENT_POWER)
    return Machine(gpus)


def hot():
    """Throttled: GPU 0 by heat, 1 by the cap, 2 by the power supply, and more."""
    gpus = eight()
    bits = (0x40, 0x4, 0x80, 0x8, 0x20, 0x10, 0x2 | 0x100, 0x1)
    for gpu, reasons in zip(gpus, bits):
        gpu["nvmlDeviceGetCurrentClocksEventReasons"] = reasons
    return Machine(gpus)


def held():
    """Memory held: by a process, by two, and by another container's."""
    gpus = eight()
    of = {"usedGpuMemory": 20 * GIB}
    for gpu, pids in zip(gpus, ([1], [1, 2], [])):
        gpu["nvmlDeviceGetMemoryInfo"] = {"total": 80 * GIB, "used": 40 * GIB}
        gpu["nvmlDeviceGetComputeRunningProcesses_v3"] = [
            {"pid": pid, **of} for pid in pids
        ]
    return Machine(gpus)


def faulty_memory():
    """Errors, a row that can't be replaced, and rows and pages that wait."""
    gpus = eight()
    gpus[0]["nvmlDeviceGetTotalEccErrors"] = 3
    gpus[1]["nvmlDeviceGetRemappedRows"] = (0, 1, 0, 1)
    gpus[2]["nvmlDeviceGetRemappedRows"] = (1, 0, 1, 0)
    gpus[3] |= {
        "nvmlDeviceGetRemappedRows": MISSING,
        "nvmlDeviceGetRetiredPagesPendingStatus": 1,
    }
    return Machine(gpus)


def divided():
    """MIG is on for all; TensorFlow gets one part."""
    gpus = eight(
        nvmlDeviceGetMigMode=(1, 1), nvmlDeviceGetUtilizationRates=MISSING
    )
    part = "\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)"
    listing = "".join(f"{listed(*one)}{part}\n" for one in enumerate(gpus))
    return Machine(gpus, seen=[0], listing=listing)


def mixed():
    """Four H100 with NVSwitches beside four RTX 4090 without a link."""
    gpus = eight()
    for number in range(4, 8):
        changes = IDLE | levels(number)
        gpus[number] = geforce(number + 1, **changes)
    return Machine(gpus, seconds=0.05)


def old_driver():
    """A driver of 2018, which has half of the functions."""
    known = (
        *("UUID", "Name", "MemoryInfo", "Temperature", "PciInfo_v3"),
        "UtilizationRates",
    )
    gpus = [
        {
            f"nvmlDeviceGet{name}": idle(number)[f"nvmlDeviceGet{name}"]
            for name in known
        }
        for number in range(1, 9)
    ]
    system = {
        "nvmlSystemGetDriverVersion": "384.81",
        "nvmlSystemGetCudaDriverVersion": Error(
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        ),
    }
    return Machine(gpus, seen=[], system=system)


def no_versions():
    """A driver that tells no version, of a minor CUDA below TensorFlow's."""
    return Machine(eight(), system={"nvmlSystemGetDriverVersion": UNKNOWN})


def minor_version():
    """A driver for CUDA 12.2 under a TensorFlow of 12.5, built for others."""
    system = {
        "nvmlSystemGetDriverVersion": "535.54.03",
        "nvmlSystemGetCudaDriverVersion": 12020,
    }
    return Machine(eight(), capability=(12, 0), system=system)


def slow_pcie():
    """GPU 0 on four lanes; all in slots of generation 3; GPU 5 lacks links."""
    gpus = eight(nvmlDeviceGetMaxPcieLinkGeneration=3)
    gpus[0]["nvmlDeviceGetCurrPcieLinkWidth"] = 4
    ends = [(_SWITCH, pci(200))] * 16 + [None, None]
    gpus[5] |= nvlinks(ends)
    # 14 GB/s: a thirtieth of the links.
    return Machine(gpus, seconds=0.033)


def denied():
    """Counters that only an administrator may read, on all GPUs."""
    names = ("TotalEccErrors", "PcieThroughput")
    answers = {f"nvmlDeviceGet{name}": DENIED for name in names}
    return Machine(eight(**answers))


def allotted_two():
    """A scheduler has allotted GPUs 2 and 3: the others may not be used."""
    gpus = eight()
    return Machine([g if n in (2, 3) else DENIED for n, g in enumerate(gpus)])


def chosen_three():
    """`CUDA_VISIBLE_DEVICES` names three of eight."""
    chosen = {"CUDA_VISIBLE_DEVICES": "0,1,5"}
    return Machine(eight(), seen=[0, 1, 5], environment=chosen)


def chosen_and_missing():
    """It names three, and TensorFlow gets two."""
    chosen = {"CUDA_VISIBLE_DEVICES": "0,1,9"}
    return Machine(eight(), seen=[0, 1], environment=chosen)


def job_of_eight():
    """A job of one worker per GPU, as `kerasmgpu launch` starts it."""
    gpus = eight()
    gpus[4]["nvmlDeviceGetCurrentClocksEventReasons"] = 0x40
    return Machine(gpus, workers=8)


def without_cuda():
    """A TensorFlow for CPUs."""
    build = {"is_cuda_build": False}
    return Machine(eight(), seen=[], build=build, libraries=())


def without_cudnn():
    """A TensorFlow that finds no cuDNN."""
    libraries = ("libcublas.so.12", "libcudart.so.12")
    return Machine(eight(), seen=[], libraries=libraries)


def newer_gpus():
    """GPUs of 2027, for which a TensorFlow of CUDA 12.8 has PTX only."""
    return Machine(
        eight(), capability=(12, 0), build={"cuda_version": "12.8.0"}
    )


def older_gpus():
    """GPUs of 2014, for which TensorFlow has nothing."""
    return Machine(eight(), capability=(5, 2))


def no_library(error):
    """A machine whose NVML does not start, by the name of its error."""
    code = Error(getattr(pynvml, f"NVML_ERROR_{error}"))
    return Machine(
        [],
        seen=[0, 1] if error in ("NO_PERMISSION", "UNKNOWN") else [],
        system={"nvmlInitWithFlags": code},
        listing="NVIDIA-SMI has failed",
        status=9,
    )


MACHINES = {
    one.__name__: one
    for one in (
        *(sound_box, bridged_pairs, no_nvlink, fallen_off, lost_now),
        *(lost_between_two_questions, lost_since_tensorflow, silent),
        *(unknown_since_tensorflow, no_power, hot, held),
        *(faulty_memory, divided, mixed, old_driver, no_versions),
        *(minor_version, slow_pcie, denied, allotted_two, chosen_three),
        *(chosen_and_missing, job_of_eight, without_cuda, without_cudnn),
        *(newer_gpus, older_gpus),
    )
} | {
    f"nvml_{error.lower()}": lambda error=error: no_library(error)
    for error in (
        *("LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "NO_PERMISSION"),
        *("LIB_RM_VERSION_MISMATCH", "UNKNOWN"),
    )
}
"""Maps a name to a function that returns a `Machine`."""
