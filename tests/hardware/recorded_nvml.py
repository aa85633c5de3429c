"""NVIDIA's library with recorded answers, under the real nvidia-ml-py.

`install` puts a `Library` in the place of `libnvidia-ml.so.1`. Everything above
it is the real package: names, constants, structures, signatures and errors
can't differ from what a user has. A function without an answer doesn't exist,
as in an older driver.
"""

import collections
import ctypes

import pynvml

GIB = 2**30


class Error(int):
    """An error code in the place of an answer."""


MISSING = Error(pynvml.NVML_ERROR_NOT_SUPPORTED)
LOST = Error(pynvml.NVML_ERROR_GPU_IS_LOST)


def h100(number, **changes):
    """Answers of a GPU of a DGX H100 in training: 18 links to NVSwitches."""
    return {
        "nvmlDeviceGetUUID": uuid(number),
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 41},
        "nvmlDeviceGetMemoryInfo": {"total": 80 * GIB, "used": 30 * GIB},
        "nvmlDeviceGetMemoryInfo_v2": {"reserved": GIB // 2},
        "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetPowerUsage": 652_150,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetClockInfo": {1: 1755, 2: 2619}.__getitem__,
        "nvmlDeviceGetMaxClockInfo": {1: 1980, 2: 2619}.__getitem__,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x20,
        "nvmlDeviceGetPcieThroughput": {0: 1200, 1: 340}.__getitem__,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetPciInfo_v3": pci(number),
        "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetEccMode": (1, 1),
        "nvmlDeviceGetTotalEccErrors": lambda kind, counter: 2 * kind + counter,
        "nvmlDeviceGetRemappedRows": (0, 1, 1, 0),
        "nvmlDeviceGetComputeRunningProcesses_v3": [
            {"pid": 4242, "usedGpuMemory": 29 * GIB}
        ],
        # By field and scope, in KiB.
        "nvmlDeviceGetFieldValues": {(138, 2**32 - 1): 8, (139, 2**32 - 1): 7},
        **nvlinks([(2, pci(200))] * 18),
        "nvmlDeviceGetTopologyCommonAncestor": 50,
        **changes,
    }


def idle(number, **changes):
    """Answers of a sound H100 that nobody uses."""
    return h100(number, **IDLE | changes)


IDLE = {
    "nvmlDeviceGetMemoryInfo": {"total": 80 * GIB, "used": GIB // 2},
    "nvmlDeviceGetComputeRunningProcesses_v3": [],
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
}


def geforce(number, **changes):
    """Answers of a workstation's GPU: no NVLink, ECC or MIG."""
    missing = ("MigMode", "EccMode", "TotalEccErrors", "RemappedRows")
    return {
        **h100(number),
        "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
        "nvmlDeviceGetNvLinkState": MISSING,
        "nvmlDeviceGetFieldValues": {},
        **{f"nvmlDeviceGet{name}": MISSING for name in missing},
        **changes,
    }


def nvlinks(ends, version=6):
    """Answers about a GPU's links: a list of `(kind of device, PCI address)`.

    An end that is `None` is that of a link that isn't active.
    """

    def answer(link, what):
        if link >= len(ends):
            return Error(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return what(ends[link])

    return {
        "nvmlDeviceGetNvLinkState": lambda link: answer(
            link, lambda end: int(end is not None)
        ),
        "nvmlDeviceGetNvLinkVersion": lambda link: version,
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda link: ends[link][0],
        "nvmlDeviceGetNvLinkRemotePciInfo_v2": lambda link: ends[link][1],
    }


def uuid(number):
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def pci(bus):
    address = {"domain": 0, "bus": bus, "device": 0}
    return {**address, "busId": b"00000000:%02X:00.0" % bus}


class Library:
    """The C library: each function fills its last arguments.

    Args:
        gpus: List of dictionaries that map a function to its answer: an
            integer, string, or tuple or dictionary of values; an `Error`; or a
            function of the arguments.
        **system: Answers to functions without a GPU.
    """

    def __init__(self, gpus, **system):
        self.gpus = gpus
        self.system = {
            "nvmlInitWithFlags": (),
            "nvmlShutdown": (),
            "nvmlSystemGetDriverVersion": "570.86.15",
            "nvmlSystemGetCudaDriverVersion": 12080,
            "nvmlDeviceGetCount_v2": len(gpus),
            "nvmlDeviceGetHandleByIndex_v2": lambda number: (
                gpus[number] if isinstance(gpus[number], Error) else number + 1
            ),
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetIndex": (
                lambda handle: ctypes.cast(handle, ctypes.c_void_p).value - 1
            ),
            **system,
        }
        self.calls = collections.Counter()

    def __getattr__(self, name):
        answers = [gpu for gpu in self.gpus if isinstance(gpu, dict)]
        if not any(name in known for known in [self.system, *answers]):
            raise AttributeError(name)

        def function(*arguments):
            self.calls[name] += 1
            return self._call(name, arguments)

        return function

    def _by_uuid(self, uuid):
        for number, gpu in enumerate(self.gpus):
            if isinstance(gpu, Error):
                continue
            known = gpu.get("nvmlDeviceGetUUID", "")
            if isinstance(known, str) and known.encode() == uuid:
                return number + 1
        # NVML answers so if any GPU of the machine is lost.
        is_lost = LOST in self.gpus
        return LOST if is_lost else Error(pynvml.NVML_ERROR_NOT_FOUND)

    def _call(self, name, arguments):
        answers = self.system
        if name not in answers:
            handle, *arguments = arguments
            number = ctypes.cast(handle, ctypes.c_void_p).value - 1
            answers = self.gpus[number]
        answer = answers.get(name, MISSING)
        if callable(answer):
            inputs = [one for one in arguments if not hasattr(one, "_obj")]
            answer = answer(*(getattr(one, "value", one) for one in inputs))
        return answer if isinstance(answer, Error) else fill(answer, arguments)


def fill(answer, arguments):
    """Writes an answer into the output arguments; returns the error code."""
    if isinstance(answer, str):
        arguments[0].value = answer.encode()
    elif isinstance(answer, list):  # Processes; the first call gets the number.
        *_, count, processes = arguments
        if processes is None:
            count._obj.value = len(answer)
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE if answer else 0
        count._obj.value = len(answer)
        for process, values in zip(processes, answer):
            fill_structure(process, values)
    elif isinstance(answer, dict):
        target = arguments[-1]._obj
        if isinstance(target, ctypes.Array):  # Field values.
            for field in target:
                key = field.fieldId, field.scopeId
                field.nvmlReturn = 0 if key in answer else MISSING
                field.value.ullVal = answer.get(key, 0)
        else:
            fill_structure(target, answer)
    else:
        values = answer if isinstance(answer, tuple) else (answer,)
        for argument, value in zip(arguments[-len(values) :], values):
            target = argument._obj
            if isinstance(target, pynvml.c_nvmlDevice_t):  # A handle.
                target = ctypes.c_void_p.from_buffer(target)
            target.value = value
    return pynvml.NVML_SUCCESS


def fill_structure(structure, values):
    for key, value in values.items():
        setattr(structure, key, value)


def install(monkeypatch, library):
    """Lets nvidia-ml-py call `library`, of no other test; returns it."""
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return library
