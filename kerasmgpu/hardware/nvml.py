"""The GPUs of this machine, as NVML knows them, through nvidia-ml-py.

Nothing here needs TensorFlow or creates a CUDA context.
"""

from typing import Any

from kerasmgpu.hardware import cuda_devices
from kerasmgpu.hardware.gpu import LOOK, Gpu, GpuLost, ask, lost_line

_NOT_READABLE = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no NVIDIA driver: libnvidia-ml.so.1 was "
    "not found. Install the driver; start a container with `--gpus=all`",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded. Load its "
    "kernel module (`modprobe nvidia`), or install the driver again",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the NVIDIA driver's library and "
    "kernel module have different versions, as after an update. Restart the "
    "machine",
    "NVML_ERROR_NO_PERMISSION": "no permission to read the NVIDIA driver's "
    "counters. Allow this user to read /dev/nvidia*",
}


def open_nvml() -> tuple["Nvml | None", str]:
    """Starts NVML.

    Returns:
        `(Nvml, "")`, or `(None, reason)` with a line that says what is missing
        and what to do.

    Example:

    ```python
    nvml, reason = open_nvml()
    if nvml is None:
        print(f"No counters of GPUs: {reason}.")
    else:
        print([gpu.sample() for gpu in nvml.gpus])
    ```
    """
    try:
        import pynvml
    except ImportError:
        return None, (
            "nvidia-ml-py is not installed. Run `pip install nvidia-ml-py`"
        )
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml), ""
    except pynvml.NVMLError as error:
        for name, reason in _NOT_READABLE.items():
            if error.value == getattr(pynvml, name):
                return None, reason
        return None, (
            f"NVML failed: {error}. See what `nvidia-smi` and `dmesg` say"
        )


class Nvml:
    """The GPUs of this machine, in the order of their PCI buses.

    Args:
        api: The module `pynvml`, initialised.

    Attributes:
        driver_version: String such as `"570.86.15"`; `None` if unknown.
        cuda_version: String, the latest CUDA that the driver supports.
        gpus: List of `Gpu`, without the lost ones.
        lost: List of strings, a line about each GPU that can't be reached.
        denied: List of integers, indices of GPUs that this user may not use,
            as under a scheduler that has allotted others.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self.driver_version = ask(api, api.nvmlSystemGetDriverVersion)
        version = ask(api, api.nvmlSystemGetCudaDriverVersion)
        self.cuda_version = version and (
            f"{version // 1000}.{version % 1000 // 10}"
        )
        self.gpus: list[Gpu] = []
        self.lost: list[str] = []
        self.denied: list[int] = []
        for index in range(api.nvmlDeviceGetCount()):
            try:
                handle = _handle(api, index)
                if handle is None:
                    self.denied.append(index)
                else:
                    self.gpus.append(Gpu(api, handle, index))
            except GpuLost as error:
                self.lost.append(str(error))

    def find(self, uuid: str) -> Gpu | None:
        """Returns the GPU, or the MIG instance of one, with a UUID.

        Args:
            uuid: String such as `"GPU-8f6…"` or `"MIG-c6d…"`.
        """
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        api = self._api
        instance = ask(api, api.nvmlDeviceGetHandleByUUID, uuid, gpu=uuid)
        whole = instance and ask(
            api,
            api.nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
            instance,
            gpu=uuid,
        )
        if not whole:
            return None
        return Gpu(
            api, whole, ask(api, api.nvmlDeviceGetIndex, whole), instance
        )

    def of_cuda_device(self, ordinal: int) -> Gpu | None:
        """Returns the GPU that CUDA has numbered; `None`: NVML doesn't know it.

        Args:
            ordinal: Integer, CUDA's number in this process. It is that in the
                name of TensorFlow's physical device.

        Raises:
            GpuLost: If it can't be reached.
        """
        found = map(self.find, cuda_devices.uuids(ordinal))
        return next(filter(None, found), None)

    def close(self) -> None:
        """Ends NVML; its GPUs can't be read any more."""
        self._api.nvmlShutdown()


def _handle(api: Any, index: int) -> Any:
    """Returns NVML's handle of a GPU; `None` if this user may not use it.

    Raises:
        GpuLost: If it can't be reached. One that fell off its bus before NVML
            was started gives an unknown error, as in `nvidia-smi`.
    """
    try:
        return api.nvmlDeviceGetHandleByIndex(index)
    except api.NVMLError as error:
        if error.value == api.NVML_ERROR_NO_PERMISSION:
            return None
        raise GpuLost(
            lost_line(api, error, index)
            or f"GPU {index} can't be reached: {error}. {LOOK}"
        ) from None
