"""Counts FLOPs, as `python -m kerasmgpu.commands.flops_counting FOLDER`.

It is a child process, so that no parent imports TensorFlow.
"""

from collections.abc import Collection
from typing import Any

from kerasmgpu.commands import child_processes, user_errors
from kerasmgpu.hardware import data_sheets


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Traces the model of a job, and counts its operations."""
    # Imported here, so that errors name the user's function.
    from kerasmgpu.commands.traced_step import num_parameters, trace_job
    from kerasmgpu.flops.counting import count
    from kerasmgpu.flops.step_flops import layers_in

    model, step = trace_job(job)
    flops, rows = count(step.program.trace.graph), step.rows
    total = flops.total(rows)
    report = {
        "model": model.name,
        "parameters": num_parameters(model),
        "global_batch_size": rows,
        "flops_per_step": total,
        "hardware_flops_per_step": flops.total(rows, recomputed=True),
        "flops_per_example": None if total is None else total / rows,
        "formula": flops.formula(),
        "by_dtype": flops.by_dtype(rows),
        "layers": _layers(flops, dict(layers_in(model)), rows),
        "uncounted": dict(flops.uncounted.most_common()),
        "elementwise": dict(flops.elementwise.most_common()),
        "unknown": flops.unknown(),
        "device": job["device"],
    }
    if job["device"] is not None:
        device = data_sheets.required(job["device"])
        report["seconds_at_peak"] = flops.seconds_at_peak(device, rows)
        report["peak_source"] = device.source
    return report


def _layers(
    flops: Any, paths: Collection[str], rows: int
) -> list[dict[str, Any]]:
    """A row for each layer, with its share of the model FLOPs."""
    from kerasmgpu.flops.step_flops import text, value
    from kerasmgpu.partitioner.step import sizes

    def number(products: list[Any]) -> float | str:
        """Operations of a batch, or as text where they are unknown."""
        total = sizes.sum_of(one.flops for one in products)
        known = value(total, rows)
        return text(total) if known is None else known

    whole = flops.total(rows)
    table = []
    for path, products in flops.by_layer(paths).items():
        once = [one for one in products if not one.is_recomputed]
        row = {
            "layer": path.partition("/")[2] or path,
            "forward": number([one for one in once if not one.is_backward]),
            "backward": number([one for one in once if one.is_backward]),
            "recomputed": number([p for p in products if p.is_recomputed]),
        }
        row["share"] = number(once) / whole if whole else None
        table.append(row)
    return table


if __name__ == "__main__":
    child_processes.do_job(user_errors.naming_the_function(main))
