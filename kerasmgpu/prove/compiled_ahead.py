"""Lowers the clusters of a step for GPUs, and compiles them ahead for one."""

import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.errors import listed
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.prove import gpu_compiler
from kerasmgpu.prove.called_functions import layer_named
from kerasmgpu.prove.clusters import Cluster, clusters_of, lowered

_NO_COMPILER = (
    'pip install "kerasmgpu[prove]" brings the compiler (1 GB); or give '
    "--jax_python, the interpreter of an environment that has it"
)
_NO_GPU = "--gpu names none of the GPUs that can be described to a compiler"

_TRIVIAL = """\
func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
"""What a compiler takes if it can compile for a GPU at all; program 0."""

_MOST_LAYERS = 3


@dataclasses.dataclass
class CompiledAhead:
    """What is known of a step's clusters.

    Attributes:
        clusters: Integer, clusters that differ in their function or shapes.
        faults: Sentences, why the step can't run.
        unknown: Sentences on clusters that couldn't be compiled ahead.
        temporary: Maps the nodes of the first worker's step that call clusters to
            the bytes that these allocate besides results. Without clusters that
            weren't compiled.
        seconds: Number, what compiling has taken.
        libraries: Functions of CUDA's libraries that clusters call.
        compiler: String, its name and version; `None` if none was called.
        why_not: Sentence, why none was called.
    """

    clusters: int
    faults: list[str] = dataclasses.field(default_factory=list)
    unknown: list[str] = dataclasses.field(default_factory=list)
    temporary: dict[str, int] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    libraries: set[str] = dataclasses.field(default_factory=set)
    compiler: str | None = None
    why_not: str | None = None

    def report(self) -> dict[str, Any]:
        """Returns the `"xla"` of the report."""
        entries = dataclasses.asdict(self)
        del entries["temporary"]
        return {
            **entries,
            "libraries": sorted(self.libraries),
            "temporary_bytes": max(self.temporary.values(), default=0),
        }


def compile_ahead(
    steps: Sequence[WrittenStep],
    paths: Collection[str],
    job: Mapping[str, Any],
    tell: Callable[[str], None],
) -> CompiledAhead | None:
    """Lowers and compiles the clusters of a step; `None` if it has none.

    Args:
        steps: A `WrittenStep` of each worker.
        paths: Paths of the model's layers; see `StepFlops.by_layer`.
        job: Dictionary with `"target"`, the text of a GPU or `None`;
            `"jax_python"`, an interpreter or `None` for this one; and
            `"compiler_seconds"`, its time-out.
        tell: Function that is called with lines on the progress.
    """
    clusters = clusters_of(steps)
    if not clusters:
        return None
    tell(f"lowering {len(clusters)} clusters of XLA for GPUs …")
    found = CompiledAhead(len(clusters))
    names = {one: _name(one, paths) for one in clusters}
    texts = dict(_lowered(clusters, names, found))
    if job["target"] is None:
        found.why_not = _NO_GPU
    elif job["jax_python"] is None and not _has_compiler():
        found.why_not = _NO_COMPILER
    else:
        _compile(texts, names, steps[0], job, found, tell)
    return found


def _has_compiler() -> bool:
    names = ("jax", "jax_cuda12_plugin", "jax_plugins.xla_cuda12")
    try:
        return all(map(importlib.util.find_spec, names))
    except ModuleNotFoundError:
        return False


def _lowered(
    clusters: Sequence[Cluster],
    names: Mapping[Cluster, str],
    found: CompiledAhead,
) -> Iterator[tuple[Cluster, str]]:
    """Yields clusters with their StableHLO; adds why there is none to `found`."""
    for cluster in clusters:
        if not cluster.is_known:
            found.unknown.append(
                f"sizes of {names[cluster]} aren't known before the step runs"
            )
            continue
        try:
            yield cluster, lowered(cluster)
        except (tf.errors.OpError, ValueError) as error:
            if _asks_for_values(error) and not _asks_for_more(cluster):
                found.unknown.append(
                    f"{names[cluster]} depends on integers of the batch"
                )
                continue
            reason = _first_line(str(error))
            found.faults.append(f"XLA refuses {names[cluster]}: {reason}")


def _asks_for_values(error: Exception) -> bool:
    """Whether XLA must know values, such as sizes, that it can't derive."""
    return "compile-time constant" in str(error)


def _asks_for_more(cluster: Cluster) -> bool:
    """Whether XLA must know more values than integers that a cluster takes."""
    if not cluster.takes_integers:
        return True
    try:
        lowered(cluster.with_ones())
    except (tf.errors.OpError, ValueError) as error:
        return _asks_for_values(error)
    return False


def _compile(
    texts: Mapping[Cluster, str],
    names: Mapping[Cluster, str],
    first: WrittenStep,
    job: Mapping[str, Any],
    found: CompiledAhead,
    tell: Callable[[str], None],
) -> None:
    """Compiles clusters in a process of its own; adds what it says to `found`."""
    clusters = list(texts)
    with tempfile.TemporaryDirectory(prefix="kerasmgpu-xla-") as name:
        folder = pathlib.Path(name)
        (folder / "target.txtpb").write_text(job["target"], "utf-8")
        for number, text in enumerate([_TRIVIAL, *texts.values()]):
            (folder / f"{number}.mlir").write_text(text, "utf-8")
        python = job["jax_python"] or sys.executable
        tell(f"compiling {len(clusters)} clusters for the GPU …")
        number = 0
        for said in _said(python, folder, job["compiler_seconds"]):
            if "compiler" in said:
                found.compiler = said["compiler"]
            elif "ended" in said:
                last = f", at {names[clusters[number - 1]]}" if number else ""
                found.unknown.append(
                    f"the compiler ended{last}: {said['ended']}"
                )
            elif "begins" in said:
                number = said["begins"]
            elif not said["program"] and "refused" in said:
                found.compiler = None
                found.why_not = (
                    f"the compiler can't compile for it: {said['refused']}"
                )
                break
            elif "refused" in said:
                found.faults.append(
                    f"XLA refuses {names[clusters[number - 1]]} on this GPU: "
                    f"{said['refused']}"
                )
            elif number:
                cluster = clusters[number - 1]
                found.seconds += said["seconds"]
                found.libraries.update(said["libraries"])
                if cluster.step is first:
                    calls = dict.fromkeys(cluster.calls, said["temporary"])
                    found.temporary.update(calls)


def _said(
    python: str, folder: pathlib.Path, timeout_seconds: float
) -> Iterator[dict[str, Any]]:
    """Yields what the compiler says of each program; `"ended"` if it fails."""
    log = folder / "log.txt"
    command = [python, gpu_compiler.__file__, str(folder)]
    with log.open("wb") as errors:
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as error:
            yield {"ended": f"{python}: {error}"}
            return
    timer = threading.Timer(timeout_seconds, process.kill)
    timer.start()
    try:
        for line in process.stdout or ():
            if line.startswith("{"):
                yield json.loads(line)
        status = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if status:
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
        yield {"ended": lines[-1] if lines else f"exit status {status}"}


def _name(cluster: Cluster, paths: Collection[str]) -> str:
    """Names a cluster by its layers."""
    layers = dict.fromkeys(layer_named(name, paths) for name in cluster.nodes)
    shown = listed(layers, _MOST_LAYERS)
    return f"the cluster of {shown} ({len(cluster.nodes)} operations)"


def _first_line(text: str) -> str:
    """The first line of an error of TensorFlow, without its stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:400] if lines else text
