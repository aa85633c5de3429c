"""Digests of what the partitioner writes, for changes that must change nothing.

    python -m tests.partitioner.oracle --store       # before a change
    python -m tests.partitioner.oracle               # after it
    python -m tests.partitioner.oracle --programs=40 # a sample, in two minutes

Writes random programs, with sharded variables and micro-batches among them, for
devices that share memory, for GPUs, for both workers of a job, and for XLA;
those with variables also on meshes of two axes, and in groups of replicas. And
the steps of small Keras models, with all that a strategy divides, offloads and
recomputes; see `oracle_steps.py`. Nothing runs.

`--store` keeps digests and instructions in a folder outside of the repository
(`--folder`); a later call compares with them, and prints the first instruction
that differs. The exit status is 1 if anything differs.

A program that can't be written counts by its error line.
"""

import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import tempfile

from absl import app, flags

from tests.devices import device_name, device_names
from tests.partitioner import oracle_steps

_ALL = 360

_PROGRAMS = flags.DEFINE_integer(
    "programs",
    _ALL,
    f"Number of random programs. With fewer than {_ALL}, so many fewer steps.",
    lower_bound=1,
)
_FOLDER = flags.DEFINE_string(
    "folder",
    os.path.join(tempfile.gettempdir(), "kerasmgpu_oracle"),
    "Folder of the stored digests and instructions.",
)
_STORE = flags.DEFINE_bool("store", False, "Store instead of comparing.")
_SHOWN = flags.DEFINE_integer("shown", 5, "Differences to print.")

_OF_ONE_SEED = 10
_IN_A_PROCESS = 6
"""Seeds per process: TensorFlow keeps all traced graphs in memory."""

XLA_FORM = "xla form"

SETTINGS = ("memory", "gpus", "worker 0", "worker 1", "xla", XLA_FORM)

GROUPS = {
    "mesh": (4, 0, 1, {"axes": (2, 2)}),
    "mesh, worker 1": (4, 1, 2, {"axes": (2, 4), "shares_memory": False}),
    "groups": (4, 0, 1, {"axes": (2, 2), "joins_axes": True}),
    "groups, worker 1": (
        *(4, 1, 2),
        {"axes": (4, 2), "joins_axes": True, "shares_memory": False},
    ),
    "groups over workers": (2, 1, 4, {"axes": (2, 4), "joins_axes": True}),
}
"""Settings of programs with variables: a worker's replicas, its index, workers,
and fields of the `Mesh`. Variables are divided along random axes of a mesh, or
within each group."""


def main(argv):
    """Stores, or compares and prints what differs."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    folder = pathlib.Path(_FOLDER.value)
    stored = folder / "written.jsonl"
    if not _STORE.value and not stored.exists():
        raise app.UsageError(f"{stored} does not exist: run --store before")
    found = _written(_PROGRAMS.value)
    if _STORE.value:
        folder.mkdir(parents=True, exist_ok=True)
        with open(stored, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in found.items())
        print(f"{len(found)} written functions are stored in {folder}.")
        return 0
    with open(stored, encoding="utf-8") as file:
        before = dict(json.loads(line) for line in file)
    return compared(before, found, _SHOWN.value)


def compared(before, found, shown):
    """Prints the differences of what is in both; returns the exit status.

    Args:
        before: `{key: (digest, lines)}` of the stored functions.
        found: The same of today's.
        shown: Number of differences to print.
    """
    from tests.partitioner.canonical import difference

    both = [key for key in found if key in before]
    differ = [key for key in both if before[key][0] != found[key][0]]
    for key in differ[:shown]:
        print(f"{key}\n{difference(before[key][1], found[key][1])}\n")
    print(
        f"{len(both)} functions compared, {len(differ)} differ; "
        f"{len(found) - len(both)} were not stored."
    )
    return 1 if differ or len(both) < len(found) else 0


def _written(number):
    seeds = range(-(-number // _OF_ONE_SEED))
    steps = oracle_steps.chosen()[:: max(1, _ALL // number)]
    tasks = [
        (work, seeds[first : first + _IN_A_PROCESS])
        for first in range(0, len(seeds), _IN_A_PROCESS)
    ] + [
        (work_on_steps, [step for step in steps if step[0] == name])
        for name in oracle_steps.MODELS
    ]
    context = multiprocessing.get_context("spawn")
    found = {}
    for target, given in tasks:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(given, send))
        process.start()
        send.close()
        with contextlib.suppress(EOFError):
            while True:
                found.update(receive.recv())
                print(f"{len(found)} functions are written.", flush=True)
        process.join()
        if process.exitcode:
            raise RuntimeError(f"A process ended with {process.exitcode}")
    return found


def work(seeds, send):
    """Sends `{key: (digest, lines)}` of each seed's programs."""
    from tests import conftest  # noqa: F401 - Eight logical CPU devices.

    for seed in seeds:
        for number, program in enumerate(drawn(seed, _OF_ONE_SEED)):
            send.send(
                {
                    f"program {seed}.{number}, {setting}": digest_and_lines(
                        library, program, setting
                    )
                    for setting in (*SETTINGS, *GROUPS)
                    if program.variables or setting in SETTINGS
                }
            )


def work_on_steps(steps, send):
    """Sends the same of each model's step and key; see `oracle_steps.chosen`."""
    from tests import conftest  # noqa: F401 - Two logical CPU devices and more.

    for name, key in steps:
        made = digest_and_lines(oracle_steps.library, name, key)
        send.send({f"{name}, {key}": made})


def drawn(seed, number):
    """Returns random programs that fit a job of two workers."""
    from unittest import mock

    import hypothesis

    from tests.partitioner.programs import programs
    from tests.partitioner.search import SETTINGS as QUIET

    found = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        QUIET, max_examples=number, phases=[hypothesis.Phase.generate]
    )
    @hypothesis.given(programs())
    def keep(program):
        found.append(program)

    # It also draws numbers that it finds in the project's code: a change of any
    # module would change the programs.
    providers = "hypothesis.internal.conjecture.providers"
    with mock.patch(f"{providers}.is_local_module_file", return_value=False):
        keep()
    return found[:number]


def digest_and_lines(write, *arguments):
    """Returns the digest and the instructions of a step as written.

    Args:
        write: `library`, or that of `oracle_steps`; the rest is its arguments.
    """
    from tests.partitioner.canonical import Canonical

    try:
        canonical = Canonical(write(*arguments))
    except Exception as error:
        # Some are refused on one device, too.
        line = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
        return line, [line]
    return canonical.digest(), canonical.lines()


def library(program, setting):
    """The `FunctionDef`s of a program's step.

    Args:
        program: `program.Program`.
        setting: One of `SETTINGS` or `GROUPS`.
    """
    import functools
    from unittest import mock

    import tensorflow as tf

    import kerasmgpu
    from kerasmgpu.partitioner.planning import planner as planning
    from tests.partitioner.checking import specifications
    from tests.strategies.sharded import (
        RandomAxes,
        pretended_devices,
        pretended_worker,
    )

    own = program.setting
    devices = device_names(own.num_replicas)
    shard = "weights" if own.shard else None
    fields = {}
    if setting in GROUPS:
        count, *worker, fields = GROUPS[setting]
        context = pretended_worker(*worker, **fields)
        devices, shard = device_names(count), "weights"
    elif setting.startswith("worker"):
        context = pretended_worker(int(setting[-1]), 2)
        devices = [device_name(1), device_name(2)]
    else:
        context = pretended_devices(shares_memory=setting != "gpus")
    tf.random.set_seed(0)
    # Programs are small: shard even products of few elements.
    with context, mock.patch.object(planning, "LEAST_SHARED", 0):
        strategy = kerasmgpu.MirroredStrategy(
            devices,
            shard=shard,
            min_shard_bytes=0,
            micro_batches=own.micro_batches,
        )
        has_axes = bool(fields) and "joins_axes" not in fields
        if has_axes:
            same = random.Random(program.function_text())
            strategy.extended.axis_to_shard = RandomAxes(
                fields["axes"], lambda variable: same
            )
        with strategy.scope():
            variables = [one.make() for one in program.variables.values()]
        partitioned = strategy.partitioned(
            functools.partial(program.function(), *variables),
            jit_compile=setting == "xla",
            name="step",
        )
        in_shares = tuple(
            own.shares and given.is_batch and not has_axes
            for given in program.inputs.values()
        )
        made = partitioned.program(
            tuple(specifications(program.inputs, own)), in_shares
        )
        written = (
            made.written_as(made.xla_form(True))
            if setting == XLA_FORM
            else made.written()
        )
    return written.library


if __name__ == "__main__":
    app.run(main)
