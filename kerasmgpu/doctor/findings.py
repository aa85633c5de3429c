"""Findings: what a check reports, and those that need something done."""

import dataclasses

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        key: String, stable name of the finding, as in `docs/doctor.md`.
        status: `"ok"`, `"note"` or `"problem"`.
        subject: String, the check's group: "GPUs", "versions", ….
        text: String, what is so, in one line.
        advice: String, what to do; empty if there is nothing to do.
    """

    key: str
    status: str
    subject: str
    text: str
    advice: str = ""


def fine(key: str, subject: str, text: str) -> Finding:
    """Returns a finding that needs nothing done."""
    return Finding(key, OK, subject, text)


_INSTALL = 'pip install "tensorflow[and-cuda]"'

CATALOGUE = {
    # Versions.
    "import_failed": (PROBLEM, "{hint}"),
    "versions_unchecked": (NOTE, "{hint}"),
    "package_missing": (NOTE, "pip install {package}"),
    "backend": (
        PROBLEM,
        "kerasmgpu needs TensorFlow's: set KERAS_BACKEND=tensorflow, or change "
        "~/.keras/keras.json",
    ),
    "xla": (
        PROBLEM,
        "train with jit_compile=False; on GPUs XLA needs ptxas and libdevice: "
        "pip install nvidia-cuda-nvcc-cu12",
    ),
    # GPUs.
    "no_nvml": (
        NOTE,
        "without a GPU that is as it should be; with one: {reason}",
    ),
    "driver_too_old": (
        PROBLEM,
        "CUDA {cuda} needs driver {least} or later: update the driver, or "
        "install a TensorFlow built with an older CUDA",
    ),
    "driver_older_than_cuda": (
        NOTE,
        "compiled kernels run (CUDA's minor version compatibility); what is "
        "compiled from PTX, as by XLA, may fail: update the driver",
    ),
    "gpus_hidden": (NOTE, "unset CUDA_VISIBLE_DEVICES to use all"),
    "tensorflow_without_cuda": (PROBLEM, _INSTALL),
    "libraries_missing": (
        PROBLEM,
        "install what it was built with (CUDA {cuda}, cuDNN {cudnn}): "
        f"{_INSTALL}; if it is elsewhere, set LD_LIBRARY_PATH",
    ),
    "gpus_not_seen": (
        PROBLEM,
        "look at nvidia-smi and dmesg for a GPU that is lost, in exclusive "
        "mode, or has MIG on, at nvidia-fabricmanager on machines with "
        "NVSwitches, and at TensorFlow's log with TF_CPP_MIN_LOG_LEVEL=0; it "
        "leaves out GPUs with far fewer processors "
        "than the first (TF_MIN_GPU_MULTIPROCESSOR_COUNT)",
    ),
    "gpu_lost": (
        PROBLEM,
        "until then training on several GPUs may fail at its start: CUDA does "
        "not always start beside a lost GPU",
    ),
    "gpu_in_use": (
        NOTE,
        "they slow it down and take memory: end them (nvidia-smi lists them), "
        "or choose other GPUs by CUDA_VISIBLE_DEVICES",
    ),
    "mig": (
        NOTE,
        "a process uses one part, and NCCL can't connect parts of one GPU: for "
        "several replicas switch MIG off (nvidia-smi -mig 0)",
    ),
    "ecc_errors": (
        PROBLEM,
        "results can't be trusted: reset the GPU; replace it if they come back",
    ),
    "rows_pending": (
        NOTE,
        "reset the GPU (nvidia-smi --gpu-reset) or restart the machine before "
        "a long run",
    ),
    "throttled": (
        NOTE,
        "check cooling and the power limit (nvidia-smi -q -d PERFORMANCE)",
    ),
    "pcie_narrow": (
        NOTE,
        "input and collectives over PCIe are as much slower: seat the card in "
        "another slot, or check the riser and the BIOS",
    ),
    "pcie_slow": (
        NOTE,
        "input and collectives over PCIe are as much slower: the slot, the "
        "riser or the BIOS allows no more",
    ),
    "nvlink_down": (
        NOTE,
        "collectives are as slow as this GPU: see nvidia-smi nvlink --status, "
        "reset the GPUs, and check the fabric manager's log",
    ),
    "counters_denied": (
        NOTE,
        "what they count is missing here; an administrator can see it",
    ),
    "no_nvlink": (
        NOTE,
        "gradients go over PCIe: models with many parameters and short steps "
        "gain less from more GPUs (docs/plan.md predicts how much)",
    ),
    "capability_not_built": (
        PROBLEM,
        "no kernel runs on it: use another GPU, or an older TensorFlow",
    ),
    "capability_from_ptx": (
        NOTE,
        "kernels are compiled from PTX at first use, which may take half an "
        "hour; CUDA_CACHE_MAXSIZE=4294967296 keeps them",
    ),
    "blackwell": (
        PROBLEM,
        "kernels fail with CUDA_ERROR_INVALID_PTX or INVALID_HANDLE "
        "(tensorflow/tensorflow issues 89272 and 101746): use NVIDIA's "
        "container of TensorFlow, or a build with CUDA 12.8 or later",
    ),
    # The host.
    "cpu_quota": (
        NOTE,
        "TensorFlow starts a thread per CPU, and all stop when the quota is "
        "used up: raise it (docker --cpus), or pin the process to as many CPUs "
        "(taskset, docker --cpuset-cpus)",
    ),
    "memory_limit": (
        NOTE,
        "a process above the limit is killed (exit status 137): keep caches "
        "and shuffle buffers below it, or raise it (docker --memory)",
    ),
    "shared_memory": (
        NOTE,
        "NCCL and workers of data loaders use it: docker --shm-size=8g, or "
        "--ipc=host",
    ),
    "open_files": (NOTE, "data sets of many files need more: ulimit -n 65536"),
    "variable": (NOTE, "{effect}"),
    "disk_space": (
        NOTE,
        "data sets, caches and checkpoints may not fit: free some space",
    ),
    "disk_failed": (PROBLEM, "choose another folder for data and checkpoints"),
    "disk_speed": (
        NOTE,
        "the input may be the limit: copy the data to a local disk, or cache "
        "them in memory (docs/input.md)",
    ),
    # Jobs.
    "workers_differ": (
        PROBLEM,
        "install the same versions everywhere: workers must trace the same step",
    ),
    # Also of one machine.
    "gpus_differ": (
        NOTE,
        "replicas have equal shares of a batch: the slowest GPU sets the pace",
    ),
    "clocks_differ": (
        NOTE,
        "logs and time-outs are hard to compare: synchronise clocks (chrony)",
    ),
    # Collectives and training.
    "collectives_failed": (
        PROBLEM,
        "training on several devices will fail in the same way; with NCCL, "
        "NCCL_DEBUG=INFO tells more",
    ),
    "collective_wrong": (
        PROBLEM,
        "sums between devices can't be trusted: NCCL_P2P_DISABLE=1 works "
        "around broken peer access (ACS, IOMMU); please report it",
    ),
    "collective_slow": (
        NOTE,
        "NCCL_DEBUG=INFO tells which links NCCL uses; check NCCL_* variables, "
        "and that no other process uses them",
    ),
    "trial_failed": (PROBLEM, "please report it with the text of --output"),
    "trial_differs": (
        PROBLEM,
        "results on several devices can't be trusted here: please report it "
        "with the text of --output",
    ),
    "trial_rounds": (
        NOTE,
        "one rounding error grows as large on one device: not a fault; "
        "tf.config.experimental.enable_op_determinism() tells more",
    ),
    # Whatever comes up.
    "check_failed": (NOTE, "the other checks hold; please report this line"),
}
"""Maps the key of each finding that isn't good to its status and what to do.

`docs/doctor.md` explains them.
"""


def found(key: str, subject: str, text: str, **values: object) -> Finding:
    """Returns a finding of the catalogue; `values` are in its advice."""
    status, advice = CATALOGUE[key]
    return Finding(key, status, subject, text, advice.format(**values))
