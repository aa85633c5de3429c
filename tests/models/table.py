"""Records of measured models, as text."""

import math

HEAD = (
    "model",
    "operations",
    "with rule",
    "gathered",
    "largest difference",
)


def worst(figures):
    """The largest distance, and of what it is."""
    return max(
        (math.inf if math.isnan(distance) else distance, what)
        for what, distance in figures["distances"].items()
    )


def complaints(record):
    """What is wrong with a record, as a list of texts."""
    if "missing" in record:
        return []
    if "error" in record:
        return [record["error"]]
    found = []
    for count, figures in record["figures"].items():
        distance, what = worst(figures)
        if distance > record["tolerance"]:
            found.append(f"{what} differs by {distance:.1e} on {count}")
        if figures["copies"]:
            found.append(f"copies differ on {count}: {figures['copies'][:3]}")
        if figures["data_changed"]:
            found.append(f"fit changed the user's arrays on {count}")
    return found


def progress(record):
    """One line for a record."""
    name = f"{record['group']}: {record['name']}"
    if "missing" in record:
        return f"-   {name}: needs {record['missing']}, which is not installed"
    found = complaints(record)
    if found:
        return f"BAD {name}: {'; '.join(found)}"
    differences = ", ".join(
        f"{worst(figures)[0]:.0e} on {count}"
        for count, figures in record["figures"].items()
    )
    return f"ok  {name}: {differences}"


def head(counts):
    """The table's first two lines, for these numbers of replicas."""
    cells = (*HEAD[:4], *(f"{HEAD[4]}, N={count}" for count in counts))
    return f"{_line(cells)}\n{_line(['---'] * len(cells))}"


def row(record, counts):
    """The line of a record that `child.measure` printed."""
    return _line(_cells(record, counts))


def _cells(record, counts):
    name = f"{record['group']}: {record['name']}"
    if record["precision"] != "float64":
        name += f" ({record['precision']})"
    if "figures" not in record:
        why = record.get("error") or f"needs {record['missing']}"
        return [name, "", "", "", *[why.split("\n")[0][:60]] * len(counts)]
    all_figures = [record["figures"][str(count)] for count in counts]
    first = all_figures[0]
    types = ", ".join(
        f"{count} {name}" for name, count in sorted(first["types"].items())
    )
    return [
        name,
        first["operations"],
        first["with_rule"],
        f"{first['gathered']} ({types})" if types else "0",
        *(f"{worst(figures)[0]:.0e}" for figures in all_figures),
    ]


def _line(cells):
    return f"| {' | '.join(map(str, cells))} |"
