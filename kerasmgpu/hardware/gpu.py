"""The driver's counters and settings of one GPU."""

from collections.abc import Callable
from typing import Any

_THROTTLE_REASONS = {
    "GpuIdle": "idle",
    "ApplicationsClocksSetting": "applications clocks setting",
    "SwPowerCap": "SW power cap",
    "HwSlowdown": "HW slowdown",
    "SyncBoost": "sync boost",
    "SwThermalSlowdown": "SW thermal slowdown",
    "HwThermalSlowdown": "HW thermal slowdown",
    "HwPowerBrakeSlowdown": "HW power brake",
    "DisplayClockSetting": "display clock setting",
}
"""Maps the end of a constant's name to the words of `nvidia-smi`."""
NOT_SLOWED = {"idle", "applications clocks setting", "display clock setting"}
"""Throttle reasons that don't tell of too little power or cooling."""
FAULTY = {"HW slowdown", "HW thermal slowdown", "HW power brake"}
"""Throttle reasons that no healthy machine has: the GPU is too hot, or its power
supply fails. A power cap, in contrast, is usual under load."""
_PCIE = {
    "pcie_generation": "CurrPcieLinkGeneration",
    "pcie_generation_max": "MaxPcieLinkGeneration",
    "pcie_generation_of_gpu": "GpuMaxPcieLinkGeneration",
    "pcie_width": "CurrPcieLinkWidth",
    "pcie_width_max": "MaxPcieLinkWidth",
}
LOOK = "Look for Xid errors in `dmesg`, and restart the machine"
"""What to do about a GPU that can't be reached."""
_ALL_LINKS = 2**32 - 1
"""Scope of a field value: its sum over all NVLinks."""


class GpuLost(Exception):
    """NVML can't reach a GPU any more. The message is one line."""


class Gpu:
    """A GPU, or a MIG instance of one.

    Any query may have no answer: the GPU or the driver doesn't support it, or
    the user has no permission. What has no answer is left out.

    Of an instance, name, UUID, memory and processes are its own; everything
    else is the whole GPU's.

    Args:
        api: The module `pynvml`.
        handle: NVML's handle of the GPU.
        index: Integer, NVML's index of the GPU, as in `nvidia-smi`.
        instance: NVML's handle of the MIG instance. Defaults to `None`: none.

    Attributes:
        api, handle, index: See above.
        uuid: String; empty if unknown.
        name: String such as `"NVIDIA H100 80GB HBM3"`; empty if unknown.
        denied: Set of strings, NVML's functions that this user may not call.
    """

    def __init__(
        self, api: Any, handle: Any, index: int, instance: Any = None
    ) -> None:
        self.api, self.handle, self.index = api, handle, index
        self._own = handle if instance is None else instance
        self.denied: set[str] = set()
        self.uuid: str = ""
        self.uuid = self.ask(api.nvmlDeviceGetUUID, of=self._own) or ""
        self.name: str = self.ask(api.nvmlDeviceGetName, of=self._own) or ""

    def ask(
        self, function: Callable[..., Any], *arguments: Any, of: Any = None
    ) -> Any:
        """Returns the answer of a function of `pynvml`; `None`: none.

        Args:
            function: The function, whose first argument is a handle.
            *arguments: Its other arguments.
            of: The handle. Defaults to `None`: that of the whole GPU.

        Raises:
            GpuLost: If the GPU fell off its bus, or needs a reset.
        """
        return ask(
            self.api,
            function,
            self.handle if of is None else of,
            *arguments,
            gpu=self._place(),
            denied=self.denied,
        )

    def _place(self) -> str:
        return f"{self.index} ({self.uuid})" if self.uuid else str(self.index)

    def sample(self) -> dict[str, Any]:
        """Returns what changes all the time.

        Takes some 40 ms: the driver counts PCIe's bytes over 20 ms in each
        direction.

        Returns:
            Dictionary with those of these keys that are known: `name`,
            `utilization` (0 to 1: the share of the time in which any kernel
            ran), `memory_bytes` (of all processes, and what the driver
            reserves), `memory_total_bytes`, `temperature_celsius`,
            `power_watts`, `sm_clock_mhz`, `memory_clock_mhz`,
            `throttle_reasons` (list of strings, in the words of `nvidia-smi`),
            `nvlink_rx_bytes` and `nvlink_tx_bytes` (counters over all links,
            which only grow), `pcie_rx_bytes_per_second` and
            `pcie_tx_bytes_per_second`.

        Raises:
            GpuLost: If the GPU fell off its bus, needs a reset, or gives no
                answer at all.
        """
        api, ask = self.api, self.ask
        rates = ask(api.nvmlDeviceGetUtilizationRates)
        memory = ask(api.nvmlDeviceGetMemoryInfo, of=self._own)
        received, sent = self._nvlink_bytes()
        clock = api.nvmlDeviceGetClockInfo
        pcie = api.nvmlDeviceGetPcieThroughput
        figures = _known(
            utilization=_scaled(rates and rates.gpu, 0.01),
            memory_bytes=memory and memory.used,
            memory_total_bytes=memory and memory.total,
            temperature_celsius=ask(
                api.nvmlDeviceGetTemperature, api.NVML_TEMPERATURE_GPU
            ),
            power_watts=_scaled(ask(api.nvmlDeviceGetPowerUsage), 0.001),
            sm_clock_mhz=ask(clock, api.NVML_CLOCK_SM),
            memory_clock_mhz=ask(clock, api.NVML_CLOCK_MEM),
            throttle_reasons=self._throttle_reasons(),
            nvlink_rx_bytes=received,
            nvlink_tx_bytes=sent,
            pcie_rx_bytes_per_second=_scaled(
                ask(pcie, api.NVML_PCIE_UTIL_RX_BYTES), 1000
            ),
            pcie_tx_bytes_per_second=_scaled(
                ask(pcie, api.NVML_PCIE_UTIL_TX_BYTES), 1000
            ),
        )
        if not figures and not self.denied:
            raise GpuLost(
                f"GPU {self._place()} gives no answer any more. {LOOK}"
            )
        return _known(name=self.name or None) | figures

    def describe(self) -> dict[str, Any]:
        """Returns what stays the same, and who uses the GPU.

        Returns:
            Dictionary with those of these keys that are known: `index`, `name`,
            `uuid`, `pci_bus_id`, `memory_total_bytes`,
            `memory_reserved_bytes` (by the driver itself), `power_limit_watts`,
            `sm_clock_max_mhz`, `memory_clock_max_mhz`, `pcie_generation` and
            `pcie_width` (as they are now: an idle GPU lowers them) with
            `pcie_generation_max` and `pcie_width_max` (in this machine) and
            `pcie_generation_of_gpu` (in any), `mig_mode` (Boolean),
            `ecc_mode` (Boolean), `ecc_uncorrected_errors` (since the driver was
            loaded), `remapped_rows_pending` and `remapped_rows_failed`
            (Booleans; a failure: replace the GPU), `retired_pages_pending`
            (Boolean; of GPUs before the A100, which remap no rows), and
            `processes` (list of dictionaries of `pid` and `memory_bytes`).

        Raises:
            GpuLost: See `sample`.
        """
        api, ask = self.api, self.ask
        memory = ask(api.nvmlDeviceGetMemoryInfo, of=self._own)
        # The first version, of `sample`, counts the reserved bytes as used.
        second = api.nvmlMemory_v2
        reserved = ask(api.nvmlDeviceGetMemoryInfo, second, of=self._own)
        pci = ask(api.nvmlDeviceGetPciInfo)
        mig = ask(api.nvmlDeviceGetMigMode)
        ecc = ask(api.nvmlDeviceGetEccMode)
        rows = ask(api.nvmlDeviceGetRemappedRows)
        pages = ask(api.nvmlDeviceGetRetiredPagesPendingStatus)
        processes = ask(api.nvmlDeviceGetComputeRunningProcesses, of=self._own)
        errors = (api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, api.NVML_VOLATILE_ECC)
        clock = api.nvmlDeviceGetMaxClockInfo
        return _known(
            index=self.index,
            name=self.name or None,
            uuid=self.uuid or None,
            pci_bus_id=pci and pci.busId,
            memory_total_bytes=memory and memory.total,
            memory_reserved_bytes=reserved and reserved.reserved,
            power_limit_watts=_scaled(
                ask(api.nvmlDeviceGetEnforcedPowerLimit), 0.001
            ),
            sm_clock_max_mhz=ask(clock, api.NVML_CLOCK_SM),
            memory_clock_max_mhz=ask(clock, api.NVML_CLOCK_MEM),
            **{
                key: ask(getattr(api, f"nvmlDeviceGet{name}"))
                for key, name in _PCIE.items()
            },
            mig_mode=mig and bool(mig[0]),
            ecc_mode=ecc and bool(ecc[0]),
            ecc_uncorrected_errors=ask(
                api.nvmlDeviceGetTotalEccErrors, *errors
            ),
            remapped_rows_pending=rows and bool(rows[2]),
            remapped_rows_failed=rows and bool(rows[3]),
            retired_pages_pending=pages if pages is None else bool(pages),
            processes=processes
            and [
                _known(pid=one.pid, memory_bytes=one.usedGpuMemory)
                for one in processes
            ],
        )

    def _throttle_reasons(self) -> list[str] | None:
        bits = self.ask(self.api.nvmlDeviceGetCurrentClocksEventReasons)
        if bits is None:  # A driver before 535 knows the former name only.
            bits = self.ask(self.api.nvmlDeviceGetCurrentClocksThrottleReasons)
        if bits is None:
            return None
        return [
            words
            for name, words in _THROTTLE_REASONS.items()
            if bits & getattr(self.api, f"nvmlClocksEventReason{name}")
        ]

    def _nvlink_bytes(self) -> list[int | None]:
        """Returns the bytes received and sent over all NVLinks."""
        api = self.api
        fields = [
            (api.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
            (api.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        ]
        answers = self.ask(api.nvmlDeviceGetFieldValues, fields)
        return [
            answer.value.ullVal * 1024
            if answer is not None and answer.nvmlReturn == api.NVML_SUCCESS
            else None
            for answer in answers or (None, None)
        ]


def lost_line(api: Any, error: Any, gpu: int | str) -> str:
    """Returns a line on a GPU that can't be reached; empty: it can be.

    Args:
        error: `pynvml.NVMLError`.
    """
    if error.value == api.NVML_ERROR_GPU_IS_LOST:
        return (
            f"GPU {gpu} is lost: it fell off the bus. Look for Xid 79 in "
            "`dmesg`, and restart the machine"
        )
    if error.value == api.NVML_ERROR_RESET_REQUIRED:
        return (
            f"GPU {gpu} needs a reset. Look for Xid errors in `dmesg`, end "
            "its processes and run `nvidia-smi --gpu-reset`"
        )
    if error.value == api.NVML_ERROR_INSUFFICIENT_POWER:
        return (
            f"GPU {gpu} has too little power. Connect its external power cables"
        )
    return ""


def ask(
    api: Any,
    function: Callable[..., Any],
    *arguments: Any,
    gpu: int | str = "",
    denied: set[str] | None = None,
) -> Any:
    """Returns a function's answer; `None` if there is none, see `Gpu.ask`."""
    try:
        return function(*arguments)
    except getattr(api, "NVMLLibraryMismatchError", ()):
        return None  # The driver is older than the function.
    except api.NVMLError as error:
        lost = lost_line(api, error, gpu)
        if lost:
            raise GpuLost(lost) from None
        if error.value == api.NVML_ERROR_UNINITIALIZED:
            raise  # Asked after `Nvml.close`.
        if error.value == api.NVML_ERROR_NO_PERMISSION and denied is not None:
            denied.add(function.__name__)
        return None


def _known(**values: Any) -> dict[str, Any]:
    """Returns the values without those that are `None`."""
    return {key: value for key, value in values.items() if value is not None}


def _scaled(value: Any, factor: float) -> Any:
    return value if value is None else value * factor
