"""Runs the commands that ask for GPUs on a machine of `eight_gpus`.

The commands' own code runs, in this process; three things are false: NVIDIA's
library (`recorded_nvml`), the program `nvidia-smi`, and what TensorFlow would
tell of its GPUs: the results of doctor's child processes, and for `DeviceStats`
the numbers, UUIDs and memory of its devices.
"""

import contextlib
import io
import json
import logging
import os
import sys

import tensorflow as tf
from absl import flags

from kerasmgpu.callbacks import device_sampler
from kerasmgpu.doctor import examination
from kerasmgpu.errors import InputError
from kerasmgpu.hardware import cuda_devices
from kerasmgpu.launch.__main__ import run as launch_run
from kerasmgpu.plan import __main__ as plan_main
from tests.doctor.test_checks import VERSIONS
from tests.doctor.test_gpu_checks import BUILD
from tests.doctor.test_host_checks import SOUND
from tests.hardware.recorded_nvml import GIB, Library, install, uuid

RESNET = (
    "--step_seconds=0.3",
    "--batch_size_per_replica=64",
    "--parameters=25.6e6",
    "--replica_counts=8",
)


def prepare(patch, machine):
    """Installs a machine's driver and environment; returns its `Library`."""
    patch.delenv(cuda_devices.VARIABLE, raising=False)
    for name, value in machine.environment.items():
        patch.setenv(name, value)
    return install(patch, Library(machine.gpus, **machine.system))


def doctor(patch, machine):
    """Returns the report of `kerasmgpu doctor`."""
    prepare(patch, machine)
    seen = 1 if machine.workers > 1 else len(machine.seen)

    def child(module, job, folder, environment):
        folder.mkdir()
        if module == "tensorflow_checks":
            (folder / "log.txt").write_text("\n".join(machine.log))
            return tensorflow(machine, seen)
        return measured(machine, job)

    host = SOUND | {"environment": machine.environment}
    patch.setattr(examination, "_child", child)
    patch.setattr(examination, "host_facts", lambda _: host)
    patch.setattr(examination.tensorflow_checks, "versions", lambda: VERSIONS)
    return examination.run()


def tensorflow(machine, count):
    """What TensorFlow's process returns of `count` GPUs."""
    gpu = {"name": "", "capability": machine.capability}
    return {
        "warning": None,
        "backend": "tensorflow",
        "xla": {"seconds": 0.3},
        "build": BUILD | machine.build,
        "gpus": [gpu] * count,
        "devices": [f"/device:GPU:{number}" for number in range(count)],
        "libraries": list(machine.libraries),
    }


def measured(machine, job):
    """What the process of the collectives returns."""
    kind = "CPU" if job["virtual_devices"] else "GPU"
    count = max(len(machine.seen), 2)
    all_reduce = {"collective": "all_reduce", "bytes": 256 << 20}
    return {
        "devices": [f"/device:{kind}:{number}" for number in range(count)],
        "replicas": count,
        "engine": "TensorFlow's collectives (NCCL between GPUs)",
        "facts": [of_worker(job["facts"], n) for n in range(machine.workers)]
        if machine.workers > 1
        else [job["facts"]],
        "clocks": [0.0] * machine.workers,
        "times": [all_reduce | {"seconds": machine.seconds, "is_right": True}],
    }


def of_worker(facts, number):
    """The facts of a job's worker, whose launcher gave it one GPU."""
    facts = json.loads(json.dumps(facts))
    facts["host"]["environment"][cuda_devices.VARIABLE] = str(number)
    return facts


def device_stats(patch, machine):
    """Returns what `DeviceStats` logs, and its figures of each GPU."""
    prepare(patch, machine)
    names = [f"GPU:{number}" for number in range(len(machine.seen))]
    uuids = [uuid(index + 1) for index in machine.seen]
    numbers = {name: number for number, name in enumerate(names)}
    memory = {"current": GIB, "peak": 3 * GIB}
    replace = patch.setattr
    replace(device_sampler.devices, "physical_gpus", lambda: numbers)
    replace(cuda_devices, "uuids", lambda ordinal: [uuids[ordinal]])
    replace(tf.config.experimental, "get_memory_info", lambda name: memory)
    with logged() as lines:
        sampler = device_sampler.Sampler(names, 0.1, None, 0)
        sampler.take()
        sampler.stop()
    return lines, sampler.take_gpus()


@contextlib.contextmanager
def logged():
    """Context of a list that gets what absl logs."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("absl")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def launch(patch, machine, folder, script=None):
    """Returns what `kerasmgpu launch --dry_run` prints, or its error."""
    environ = {"PATH": str(folder), **machine.environment}
    if script is None:
        script = f"#!/bin/sh\ncat <<'E'\n{machine.listing}\nE\n"
        script += f"exit {machine.status}\n"
        environ["PATH"] += f":{os.environ['PATH']}"
    if script:
        path = folder / "nvidia-smi"
        path.write_text(script)
        path.chmod(0o755)
    command = [sys.executable, "-c", "pass"]
    output = io.StringIO()
    patch.setenv("COLUMNS", "200")
    with contextlib.redirect_stdout(output):
        try:
            launch_run(command, dry_run=True, environ=environ)
        except InputError as error:
            return str(error)
    return output.getvalue()


def plan(patch, machine, *arguments):
    """Returns what `kerasmgpu plan` prints."""
    prepare(patch, machine)
    values = flags.FlagValues()
    plan_main.define_flags(values)
    values(["plan", *RESNET, *arguments])
    patch.setattr(plan_main.flags, "FLAGS", values)
    patch.setenv("COLUMNS", "200")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        plan_main.main(["plan"])
    return output.getvalue()
