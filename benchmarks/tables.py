"""Formats results: a line per run, a table per workload, a plot."""

from benchmarks.contenders import CONTENDERS
from benchmarks.figures import BASELINES, SECOND_START
from benchmarks.workloads import WORKLOADS
from kerasmgpu.commands import plots, reports

SHARED_CORES = (
    "Replicas were logical CPU devices, which share the same cores: compare "
    "contenders, not numbers of replicas; the host's CPU time has the model's "
    "arithmetic in it."
)

_COLUMNS = (
    ("examples/s", "examples_per_second", "{:,.0f}"),
    ("ms/step", "wall_ms_per_step", "{:.1f}"),
    ("host CPU\nms/step", "host_cpu_ms_per_step", "{:.1f}"),
    ("first step\ns", "seconds_to_first_step", "{:.1f}"),
    ("second start\ns", SECOND_START, "{:.1f}"),
    ("peak\nMB", "peak_memory_mb", "{:,.0f}"),
)


def in_words(result):
    """Formats one run's figures as a line."""
    return (
        f"{result['examples_per_second']:,.0f} examples/s, "
        f"{result['wall_ms_per_step']:.1f} ms per step, host CPU "
        f"{result['host_cpu_ms_per_step']:.1f} ms, first step after "
        f"{result['seconds_to_first_step']:.1f} s, "
        f"{result['peak_memory_mb']:,.0f} MB"
    )


def print_tables(report):
    """Prints a table per workload.

    Args:
        report: Dictionary, as `benchmarks.runs.run` returns it.
    """
    console = reports.console()
    console.print(_machine(report), markup=False, soft_wrap=True)
    for workload in dict.fromkeys(row["workload"] for row in report["rows"]):
        console.print(_table(workload, report))
    console.print(
        "Medians, and in brackets the quartiles of the rounds. × is the ratio "
        "of examples/s to that contender's in the same round, at the same "
        "number of replicas where it has any.",
        soft_wrap=True,
    )
    for row in report["rows"]:
        if "failed" in row:
            console.print(_failure(row), markup=False, soft_wrap=True)
    for line in report["disagreements"]:
        console.print(f"CAUTION: {line}", markup=False, soft_wrap=True)
    if report["settings"]["virtual_devices"]:
        console.print(SHARED_CORES, soft_wrap=True)


def _machine(report):
    machine = report["machine"]
    versions = ", ".join(
        f"{name} {version}" for name, version in report["versions"].items()
    )
    gpus = ", ".join(machine["gpus"]) or "no GPU used"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']:g} GB, {gpus}, {machine['os']}; {versions}"
    )


def _table(workload, report):
    head, *rows = _lines(workload, report)
    title, *names = head
    table = reports.table(title, "contender", right=names)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(report):
    """Formats the machine and the tables as Markdown, for a README.

    Args:
        report: Dictionary, as `benchmarks.runs.run` returns it.

    Returns:
        String. With several rounds, quartiles follow the median in brackets.
    """
    lines = [_machine(report) + "."]
    for workload in dict.fromkeys(row["workload"] for row in report["rows"]):
        lines += ["", *_markdown_table(workload, report)]
    for row in report["rows"]:
        if "failed" in row:
            lines += ["", _failure(row)]
    for line in report["disagreements"]:
        lines += ["", f"CAUTION: {line}"]
    return "\n".join(lines) + "\n"


def _markdown_table(workload, report):
    lines = [
        f"| {' | '.join(line)} |".replace("\n", " ")
        for line in _lines(workload, report)
    ]
    columns = lines[0].count(" |") - 1
    return [lines[0], "|---|" + "---:|" * columns, *lines[1:]]


def _lines(workload, report):
    """The cells of a table: title and names of columns, then the rows."""
    rows = [row for row in report["rows"] if row["workload"] == workload]
    baselines = _baselines(rows)
    columns = [
        (title, name, form)
        for title, name, form in _COLUMNS
        if name != SECOND_START or any(name in row for row in rows)
    ]
    return [
        [
            _title(workload, report),
            "replicas",
            *(title for title, _, _ in columns),
            *(f"×\n{baseline}" for baseline in baselines),
        ],
        *(
            [
                row["contender"],
                str(row["replicas"]),
                *_cells(row, columns, baselines),
            ]
            for row in rows
        ),
    ]


def _baselines(rows):
    """Returns the `BASELINES` that occur in the rows' ratios."""
    return [b for b in BASELINES if any(b in row["ratios"] for row in rows)]


def _title(workload, report):
    batch = report["settings"]["global_batch_size"]
    batch = batch or WORKLOADS[workload].global_batch_size
    description = WORKLOADS[workload].description
    return f"{workload}: {description}; global batch {batch}"


def _failure(row):
    replicas = "replica" if row["replicas"] == 1 else "replicas"
    return (
        f"failed: {row['workload']}, {row['contender']}, {row['replicas']} "
        f"{replicas}: {row['failed']}"
    )


def _cells(row, columns, baselines):
    return [
        *(_cell(row, name, form) for _, name, form in columns),
        *(_spread(row["ratios"].get(name), "{:.2f}") for name in baselines),
    ]


def _cell(row, name, form):
    if name in row:
        return _spread(row[name], form)
    return "failed" if name == "examples_per_second" else ""


def _spread(values, form):
    if values is None:
        return "–"
    median = form.format(values["median"])
    if values["lower"] == values["upper"]:
        return median  # One round.
    lower, upper = form.format(values["lower"]), form.format(values["upper"])
    return f"{median}\n({lower}–{upper})"


def draw(report, path):
    """Plots examples per second and host CPU over replicas, by workload.

    Without matplotlib, or without a successful run, prints a message instead.

    Args:
        report: Dictionary, as `benchmarks.runs.run` returns it.
        path: Path of the PNG file.
    """
    rows = [row for row in report["rows"] if row["runs"]]
    if not rows:
        print("no plot: no run ended well")
        return
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    figure = plots.new_figure(8, 3 * len(workloads))
    if figure is None:
        return
    grid = figure.subplots(len(workloads), 2, squeeze=False)
    for axes_of_row, workload in zip(grid, workloads):
        of_it = [row for row in rows if row["workload"] == workload]
        _draw_figure(axes_of_row[0], of_it, "examples_per_second")
        _draw_figure(axes_of_row[1], of_it, "host_cpu_ms_per_step")
        axes_of_row[0].set_ylabel(f"{workload}\nexamples per second")
        axes_of_row[1].set_ylabel("host CPU ms per step")
    grid[0][0].legend(fontsize="small")
    plots.save(figure, path)


def _draw_figure(axes, rows, name):
    """Plots lines over replicas; horizontal for one-device contenders."""
    for number, contender in enumerate(CONTENDERS):
        of_it = [row for row in rows if row["contender"] == contender]
        if not of_it:
            continue
        medians = [row[name]["median"] for row in of_it]
        color = f"C{number}"
        if CONTENDERS[contender].one_device:
            axes.axhline(medians[0], color=color, ls="--", label=contender)
            continue
        errors = [
            [row[name]["median"] - row[name]["lower"] for row in of_it],
            [row[name]["upper"] - row[name]["median"] for row in of_it],
        ]
        counts = [row["replicas"] for row in of_it]
        axes.errorbar(
            counts, medians, errors, fmt="o-", color=color, label=contender
        )
    all_counts = [row["replicas"] for row in rows]
    plots.count_axis(axes, all_counts, "replicas")
    axes.set_ylim(bottom=0)
