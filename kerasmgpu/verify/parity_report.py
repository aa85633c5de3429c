"""Prints the result of a verification: tables, causes and the verdict."""

from typing import Any

from kerasmgpu.commands import reports
from kerasmgpu.commands.fitted_table import FittedTable
from kerasmgpu.distances import nudge_units
from kerasmgpu.verify.comparison import WEIGHTS
from kerasmgpu.verify.judging import DIFFERENT, ROUNDING

_LAYERS_SHOWN = 12


def print_tables(result: dict[str, Any]) -> None:
    """Prints the comparisons, and likely causes of differences."""
    console = reports.console()
    if result["not_reproducible"]:
        reports.say(
            console,
            "NOT REPRODUCIBLE on one device: " + result["not_reproducible"],
        )
        return
    good = [run for run in result["runs"] if "checks" in run]
    if good:
        rows = ", ".join(map(str, result["batch_rows"]))
        title = f"{result['model']} ({result['dtype']}), batches of {rows} rows"
        console.print(_checks(title, good, good))
    fine = [run for run in good if _has_exact(run)]
    if fine:
        exact = [run["float64"] for run in fine]
        console.print(_checks("The same in float64", fine, exact))
    if result["partition"]:
        _print_partition(console, result)
    for run in result["runs"]:
        if "failed" in run:
            reports.say(console, f"{_name(run)} failed: {run['failed']}")
    different = [run for run in good if not run["in_parity"]]
    for run in different[:1]:
        if _decisive(run)["first_layer"]:
            console.print(_layers(run))
    _print_causes(console, different)
    reports.say(console, verdict(result))


def _print_causes(console: Any, different: list[dict[str, Any]]) -> None:
    """Prints where runs differ first, and each likely cause once."""
    told: dict[str, str] = {}
    for run in different:
        reports.say(console, _where(run))
        for cause in _decisive(run)["causes"]:
            name = told.setdefault(cause, _name(run))
            again = name != _name(run)
            words = f"the same as with {name}" if again else cause
            reports.say(console, f"  likely cause: {words}")


def _decisive(run: dict[str, Any]) -> dict[str, Any]:
    """Returns the comparison, of a run's two, that is out of parity."""
    exact: dict[str, Any] = run.get("float64", {})
    return exact if exact.get("verdict") == DIFFERENT else run


def _checks(
    title: str, runs: list[dict[str, Any]], compared: list[dict[str, Any]]
) -> FittedTable:
    """Returns a table of comparisons, with a column for each run."""
    table = reports.table(
        title,
        "difference from one device",
        right=("tolerance", *map(_name, runs)),
    )
    for name, check in compared[0]["checks"].items():
        cells = [_cell(one["checks"][name], one["verdict"]) for one in compared]
        limit = check["tolerance"]
        table.add_row(name, f"{limit:.0e}" if limit else "identical", *cells)
    return table


def _cell(check: dict[str, float], verdict: str) -> str:
    distance, tolerance = check["distance"], check["tolerance"]
    is_good = distance <= tolerance
    if tolerance == 0 and is_good:
        return "identical [green]✓[/]"
    mark = "[green]✓[/]" if is_good else "[red]✗[/]"
    if not is_good and verdict == ROUNDING:
        mark = "[yellow]≈[/]"
    return f"{distance:.1e} {mark}"


def _layers(run: dict[str, Any]) -> FittedTable:
    """Returns the table of layers, from two before the first that differs."""
    name, run = _name(run), _decisive(run)
    step = run["first_step"]
    when = "the last step" if step is None else f"step {step}"
    table = reports.table(
        f"Layers on {name}",
        "layer",
        right=("output in step 1", f"weights after {when}", "state"),
    )
    names = [layer["name"] for layer in run["layers"]]
    first = run["first_layer"]
    begin = max(0, min(names.index(first) - 2, len(names) - _LAYERS_SHOWN))
    for layer in run["layers"][begin : begin + _LAYERS_SHOWN]:
        mark = " ← first to differ" if layer["name"] == first else ""
        table.add_row(
            layer["name"] + mark,
            *(_number(layer[key]) for key in ("output", "trainable", "state")),
        )
    left = len(names) - begin - _LAYERS_SHOWN
    if left > 0:
        table.caption = f"and {left} more layers"
    return table


def _print_partition(console: Any, result: dict[str, Any]) -> None:
    """Prints the table of each layer's operations and their communication."""
    table = reports.table(
        "A training step on replicas",
        "layer",
        right=("operations", "on own rows", "summed", "gathered", "no rule"),
        caption="summed, gathered: bytes that a replica exchanges with the "
        f"others in a step of {result['batch_rows'][0]} rows",
    )
    for part in result["partition"]:
        if part["sharded"] or part["summed"] or part["gathered"]:
            table.add_row(
                part["name"],
                str(part["operations"]),
                str(part["sharded"]),
                *(f"{part[what]:,}" for what in ("summed", "gathered")),
                ", ".join(part["no_rule"]) or "–",
            )
    console.print(table)
    if result["unsharded"]:
        reports.say(console, f"Note: {result['unsharded']}.")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def _where(run: dict[str, Any]) -> str:
    replicas, exact = _name(run), run.get("float64", {})
    if exact.get("verdict") == DIFFERENT:
        replicas, run = f"{replicas}, in float64", exact
    if run["first_step"] is None:
        return f"{replicas}: the weights are those of one device"
    layer = run["first_layer"]
    return f"{replicas}: step {run['first_step']} is the first to differ" + (
        f", and in it layer {layer!r}" if layer else ""
    )


def verdict(result: dict[str, Any]) -> str:
    """Returns the verdict on all runs, as a sentence."""
    if result["in_parity"]:
        return _in_parity(result)
    crashed = [run for run in result["runs"] if "failed" in run]
    different = [
        run
        for run in result["runs"]
        if "checks" in run and not run["in_parity"]
    ]
    verdicts = []
    if different:
        verdicts.append(f"OUT OF PARITY with {_counts(different)}.")
    if crashed:
        verdicts.append(
            f"CRASHED with {_counts(crashed)}, so there is nothing to "
            "compare: see the line above."
        )
    return " ".join(verdicts)


def _in_parity(result: dict[str, Any]) -> str:
    """Returns the verdict on runs that are in parity, with what it rests on."""
    begin = "IN PARITY: replicas train the same model as one device, within "
    why_not = result["no_float64"]
    rounded = [run for run in result["runs"] if run["verdict"] == ROUNDING]
    if not rounded:
        words = f"{begin}W {result['tolerance']:.0e}."
        if why_not:
            words += f" They aren't compared in float64: {why_not}"
        return words
    largest = max(map(_weights, rounded))
    words = f"{begin}rounding: W {largest:.0e} in {result['dtype']}"
    exact = [_weights(run["float64"]) for run in rounded if _has_exact(run)]
    if len(exact) == len(rounded):
        return f"{words}, {max(exact):.0e} in float64."
    return (
        f"{words}, as much as one device's own when its weights, and what its "
        f"layers give, change by {nudge_units(result['dtype'])} units in the last "
        "place. Smaller "
        "faults would not show"
        + (
            f", since it isn't compared in float64: {why_not}"
            if why_not
            else "."
        )
    )


def _has_exact(run: dict[str, Any]) -> bool:
    return "checks" in run.get("float64", {})


def _weights(compared: dict[str, Any]) -> float:
    distance: float = compared["checks"][WEIGHTS]["distance"]
    return distance


def _counts(runs: list[dict[str, Any]]) -> str:
    if any(run["mesh"] for run in runs):
        return " and ".join(map(_name, runs))
    return " and ".join(str(run["replicas"]) for run in runs) + " replicas"


def _name(run: dict[str, Any]) -> str:
    """Returns the replicas of a run, or its mesh."""
    if run["mesh"]:
        return f"mesh {reports.mesh_text(run['mesh'])}"
    return f"{run['replicas']} replicas"
