"""Prints the page of a proof: a line for each claim, and what isn't proved."""

from collections.abc import Iterator
from typing import Any

from rich.markup import escape

from kerasmgpu.commands import reports
from kerasmgpu.memory.memory_report import size
from kerasmgpu.verify import parity_report

NOT_PROVED = (
    "NCCL and cuDNN themselves, and which of their algorithms they choose",
    "XLA of TensorFlow's own version on a GPU",
    "speed: see kerasmgpu plan",
)
"""What no machine without the GPUs can tell."""

_MOST_NAMED = 5


def faults(report: dict[str, Any]) -> list[str]:
    """Returns what speaks against the step, a sentence each.

    Args:
        report: Dictionary, see `kerasmgpu.prove`.
    """
    found = list(report["order"]["faults"])
    if report["xla"] is not None:
        found += report["xla"]["faults"]
    if report["kernels"] is not None:
        found += report["kernels"]["faults"]
    if report["memory"] is not None and not report["memory"]["fits"]:
        found.append(f"a replica's memory does not fit: {_memory(report)}")
    if report["numbers"] is not None and not report["numbers"]["in_parity"]:
        found.append(_numbers(report["numbers"]))
    return found


def print_proof(report: dict[str, Any]) -> None:
    """Prints the page.

    Args:
        report: Dictionary, see `kerasmgpu.prove`.
    """
    console = reports.console()
    table = reports.table(
        f"{report['model']}, {report['parameters']:,} parameters, global batch "
        f"{report['global_batch_size']:,}: {_setting(report)}",
        "claim",
        "verdict",
        "what was checked",
    )
    for row in _rows(report):
        table.add_row(*map(escape, row))
    console.print(table)
    for fault in faults(report):
        reports.say(console, f"FAULT: {fault}")
    for line in _notes(report):
        reports.say(console, line)
    reports.say(console, f"Not proved: {'; '.join(NOT_PROVED)}.")
    reports.say(console, _verdict(report))


def _setting(report: dict[str, Any]) -> str:
    """What the step runs on, and how."""
    device = report["gpu"] or "GPU"
    text = f"{report['replicas']} × {device}"
    if report["workers"] > 1:
        text += f" of {report['workers']} workers"
    said = {
        name: value
        for name, value in report["settings"].items()
        if name != "min_shard_bytes" and value not in (None, "none", 1)
    }
    if report["mesh"] is not None:
        axes = report["mesh"].items()
        said["mesh"] = ", ".join(f"{name}={size}" for name, size in axes)
    return ", ".join(
        [text, *(f"{name}={value}" for name, value in said.items())]
    )


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    kernels, order = report["kernels"], report["order"]
    if kernels is None:
        yield (
            "kernels",
            "unknown",
            "this TensorFlow lists no kernels of GPUs: tensorflow on Linux does, "
            "tensorflow-cpu doesn't",
        )
    else:
        yield (
            "kernels",
            "FAULT" if kernels["faults"] else "proved",
            f"{kernels['on_gpus']:,} operations on GPUs have a kernel for their "
            f"types; {len(kernels['moved']) or 'none'} must run on the host",
        )
        yield (
            "copies",
            "counted",
            f"{kernels['copies']:,} per step between the host and a GPU, of "
            f"{size(kernels['copied_bytes'])} as far as sizes are known",
        )
    yield "order", "FAULT" if order["faults"] else "proved", _order(order)
    if report["xla"] is not None:
        yield _xla(report["xla"], report["gpu"])
    if report["numbers"] is None:
        yield "numbers", "left out", report["why_no_numbers"]
    else:
        is_good = report["numbers"]["in_parity"]
        yield (
            "numbers",
            "proved" if is_good else "FAULT",
            _numbers(report["numbers"]),
        )
    if report["memory"] is not None:
        fits = report["memory"]["fits"]
        yield "memory", "predicted" if fits else "FAULT", _memory(report)


def _order(order: dict[str, Any]) -> str:
    """What the chains of collectives have shown."""
    if not order["collectives"]:
        return "there is no collective"
    plural = "s" if order["collectives"] > 1 else ""
    return (
        f"{order['collectives']:,} collective{plural}, at most "
        f"{order['longest_chain']:,} on one device, run one after the other, in an "
        "order on which all devices agree"
    )


def _xla(xla: dict[str, Any], gpu: str | None) -> tuple[str, str, str]:
    """The line on what XLA makes of the step's clusters."""
    plural = "s" if xla["clusters"] > 1 else ""
    what = f"{xla['clusters']:,} cluster{plural}"
    verdict = "FAULT" if xla["faults"] else "lowered"
    if xla["why_not"] is not None:
        what += f" lowered for GPUs, none compiled: {xla['why_not']}"
        return "xla", verdict, what
    if xla["unknown"]:
        what += (
            f", of which {len(xla['unknown'])} can't be tried before they run"
        )
    elif not xla["faults"]:
        verdict = "compiled"
    calls = ", ".join(xla["libraries"]) or "none of cuBLAS and cuDNN"
    return (
        "xla",
        verdict,
        f"{what}, compiled for {gpu} in {xla['seconds']:.1f} s by {xla['compiler']}; "
        f"at most {size(xla['temporary_bytes'])} temporary; calls: {calls}",
    )


def _numbers(result: dict[str, Any]) -> str:
    """What comparing the program of GPUs on logical CPUs has shown."""
    if result["not_reproducible"]:
        return f"one device isn't reproducible: {result['not_reproducible']}"
    (run,) = result["runs"]
    if "failed" in run:
        return f"the program of GPUs, on logical CPUs, failed: {run['failed']}"
    what = f"{run['replicas']} logical CPUs run the program of GPUs: "
    if not run["in_parity"]:
        return f"{what}{'; '.join(run['causes']) or 'out of parity'}"
    return what + parity_report.verdict(result)


def _memory(report: dict[str, Any]) -> str:
    row = report["memory"]
    return (
        f"{size(row['total'])} of a replica in a step, of the "
        f"{size(report['usable'])} of {report['gpu']} that a program can have"
    )


def _notes(report: dict[str, Any]) -> Iterator[str]:
    for key, axes in (report["layouts"] or {}).items():
        yield f"found: layouts[{key!r}] = {tuple(axes)}"
    for line in (report["xla"] or {"unknown": []})["unknown"][:_MOST_NAMED]:
        yield f"note: {line}"
    kernels = report["kernels"] or {"moved": [], "copied": {}}
    for one in kernels["moved"][:_MOST_NAMED]:
        yield (
            f"note: {one['operation']} in {one['where']} runs on the host, "
            f"{one['times']:,} times per step: GPUs have no kernel for it"
        )
    left = len(kernels["moved"]) - _MOST_NAMED
    if left > 0:
        yield f"note: {left} more such operations are in --output"
    largest = list(kernels["copied"].items())[:_MOST_NAMED]
    if largest:
        texts = (f"{name} {size(number)}" for name, number in largest)
        yield f"note: copied between the host and a GPU: {', '.join(texts)}"
    if report["workers"] > 1 and report["numbers"] is not None:
        yield (
            "note: numbers are those of one process with all replicas; between "
            "workers, kerasmgpu launch --num_workers=2 on this machine shows them"
        )


def _verdict(report: dict[str, Any]) -> str:
    found = faults(report)
    if found:
        return f"NOT PROVED: {len(found)} fault{'s' if len(found) > 1 else ''}."
    claims = ("kernels", "numbers")
    left = [claim for claim in claims if report[claim] is None]
    if left:
        return (
            f"No fault found; {' and '.join(left)} were not checked: see above."
        )
    return "PROVED as far as the lines above say."
