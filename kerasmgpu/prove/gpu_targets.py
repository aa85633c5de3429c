"""GPUs as XLA's compiler has them described: text of a `GpuTargetConfigProto`."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator

from kerasmgpu.errors import InputError
from kerasmgpu.hardware import data_sheets

FILE_SUFFIX = ".txtpb"
"""Ending of files with the description of a GPU."""


@dataclasses.dataclass(frozen=True)
class _Capability:
    """What all GPUs of a compute capability have, per multiprocessor.

    Source: NVIDIA, CUDA C++ Programming Guide, table of technical
    specifications per compute capability.

    Attributes:
        shared: Integer, bytes of shared memory.
        shared_by_block: Integer, bytes of it that a block can ask for.
        threads: Integer, threads at a time.
        units: Integer, floating-point units.
        is_accelerated: Whether code is made for it alone, as `sm_90a`.
    """

    shared: int
    shared_by_block: int
    threads: int
    units: int
    is_accelerated: bool = False


_CAPABILITIES = {
    (7, 5): _Capability(65536, 65536, 1024, 64),
    (8, 0): _Capability(167936, 166912, 2048, 64),
    (8, 6): _Capability(102400, 101376, 1536, 128),
    (8, 9): _Capability(102400, 101376, 1536, 128),
    (9, 0): _Capability(233472, 232448, 2048, 128, True),
    (10, 0): _Capability(233472, 232448, 2048, 128, True),
    (12, 0): _Capability(102400, 101376, 1536, 128, True),
}

# Name in `data_sheets.DEVICES`, compute capability, multiprocessors, KiB of L2
# cache, highest clock in MHz, GB/s of memory; of the makers' data sheets and
# architecture white papers.
_TABLE = """
T4               7.5   40   4096 1590  320
A10              8.6   72   6144 1695  600
A30              8.0   56  24576 1440  933
A40              8.6   84   6144 1740  696
A100-40GB        8.0  108  40960 1410 1555
A100-80GB        8.0  108  40960 1410 2039
L4               8.9   58  49152 2040  300
L40              8.9  142  98304 2490  864
L40S             8.9  142  98304 2520  864
H100-SXM         9.0  132  51200 1980 3352
H100-PCIE        9.0  114  51200 1755 2039
H200             9.0  132  51200 1980 4800
B200            10.0  148 129536 1965 7672
RTX3090          8.6   82   6144 1695  936
RTX4090          8.9  128  73728 2520 1008
RTX5090         12.0  170  98304 2407 1792
RTXA6000         8.6   84   6144 1800  768
"""


def _targets() -> Iterator[tuple[str, str]]:
    for line in _TABLE.strip().splitlines():
        name, version, cores, cache, clock, bandwidth = line.split()
        device = data_sheets.DEVICES[name]
        major, minor = map(int, version.split("."))
        has = _CAPABILITIES[major, minor]
        extension = "ACCELERATED_FEATURES" if has.is_accelerated else "NONE"
        yield (
            name,
            f"""\
gpu_device_info {{
  cuda_compute_capability {{
    major: {major} minor: {minor} feature_extension: {extension}
  }}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {has.shared_by_block}
  shared_memory_per_core: {has.shared}
  threads_per_core_limit: {has.threads}
  core_count: {cores}
  fpus_per_core: {has.units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}000000000
  l2_cache_size: {int(cache) * 1024}
  clock_rate_ghz: {int(clock) / 1000}
  device_memory_size: {device.gigabytes * 10**9}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "{name}"
""",
        )


TARGETS = dict(_targets())
"""Maps a GPU's name, of `data_sheets.DEVICES`, to its description."""


def target_of(gpu: str | None) -> str | None:
    """Returns the description of a GPU; `None` if there is none.

    Args:
        gpu: String, a name, the memory of a GPU, or a file that ends in
            `FILE_SUFFIX`.

    Raises:
        InputError: If the file can't be read, or describes no GPU.
    """
    if gpu is not None and gpu.endswith(FILE_SUFFIX):
        return _read(gpu)
    device = data_sheets.named(gpu) if gpu is not None else None
    return None if device is None else TARGETS.get(device.name)


def memory_of(path: str) -> int:
    """Returns the bytes of the GPU that a file describes."""
    found = re.search(r"\bdevice_memory_size:\s*(\d+)", _read(path))
    if found is None:
        raise InputError(
            f"{path} must be the text of XLA's GpuTargetConfigProto, with a "
            "device_memory_size. It has none"
        )
    return int(found[1])


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read as text: {error}") from error
