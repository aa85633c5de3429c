"""Prints the stages of a check: lines as they end, and the table."""

from typing import Any

from kerasmgpu.commands import reports

_STAGES = {
    "TensorFlow starts": "",
    "import": "the module of build",
    "build()": "",
    "data()": "",
    "step 1": "with tracing and compilation",
    "checkpoint": "",
    "evaluate": "",
    "predict": "",
    "save": "",
    "load": "in a new process",
    "resume": "from the checkpoint, an epoch",
}
"""Stages in their order, and what each includes; steps follow the first one."""


def line(stage: dict[str, Any]) -> str:
    """Returns a stage that has ended in one line."""
    if stage["error"]:
        return f"{stage['stage']} failed: {stage['error']}"
    return f"{stage['stage']}: {_seconds(stage)}"


def print_table(result: dict[str, Any]) -> None:
    """Prints a row per stage, with its seconds on one device and on all."""
    console = reports.console()
    runs = result["runs"]
    by_stage = [{s["stage"]: s for s in run["stages"]} for run in runs]
    failures = _failures(runs)
    table = reports.table(
        f"{result['build']}, once through everything",
        "stage",
        right=map(_heading, runs),
    )
    if failures:
        table.add_column("what went wrong")
    for stage in _order(by_stage):
        note = _STAGES.get(stage)
        cells = [_cell(found.get(stage)) for found in by_stage]
        row = [f"{stage}, {note}" if note else stage, *cells]
        table.add_row(*row, *([failures.get(stage, "")] if failures else []))
    console.print(table)
    reports.say(console, _verdict(result))


def _order(by_stage: list[dict[str, Any]]) -> list[str]:
    """Returns the stages that a run came to, in their order."""
    found = {stage for stages in by_stage for stage in stages}
    steps = sorted(
        (stage for stage in found - _STAGES.keys()),
        key=lambda stage: int(stage.rpartition(" ")[2]),
    )
    order = list(_STAGES)
    place = order.index("step 1") + 1
    order[place:place] = steps
    return order


def _heading(run: dict[str, Any]) -> str:
    """Returns the heading of a run's column."""
    replicas, workers = run["replicas"], run["workers"]
    if run["on"] == "one device" or not replicas:
        return run["on"]
    text = f"{replicas} replica{'s' if replicas > 1 else ''}"
    if run["mesh"]:
        text = f"mesh {reports.mesh_text(run['mesh'])}"
    return f"{text} of {workers} workers" if workers > 1 else text


def _cell(stage: dict[str, Any] | None) -> str:
    if stage is None:
        return "–"
    if stage["error"]:
        return "[red]✗[/]"
    return _seconds(stage)


def _seconds(stage: dict[str, Any]) -> str:
    seconds = stage["seconds"]
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def _failures(runs: list[dict[str, Any]]) -> dict[str, str]:
    """Maps a stage that failed to what went wrong, on which devices."""
    told: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for stage in run["stages"]:
            if stage["error"]:
                by_error = told.setdefault(stage["stage"], {})
                by_error.setdefault(stage["error"], []).append(_heading(run))
    return {
        stage: "\n".join(
            f"{' and '.join(devices)}: {error}"
            for error, devices in by_error.items()
        ).replace("[", r"\[")
        for stage, by_error in told.items()
    }


def _verdict(result: dict[str, Any]) -> str:
    names = [_heading(run) for run in result["runs"]]
    if result["is_well"]:
        return f"ALL WENT WELL on {' and on '.join(names)}."
    failed = [
        f"{stage['stage']} ({_heading(run)})"
        for run in result["runs"]
        for stage in run["stages"]
        if stage["error"]
    ]
    return f"FAILED: {', '.join(failed)}."
