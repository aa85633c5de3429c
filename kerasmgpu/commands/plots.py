"""The style of all plots; matplotlib, which draws them, may be missing."""

from kerasmgpu.commands import extras
from kerasmgpu.commands.complete_files import complete

_told = False

_FEW_POINTS = 30
"""So many points of a line have markers: one alone would not be seen."""


def tell_if_missing():
    """Prints what to install if matplotlib is missing: before a long run."""
    if not extras.is_installed("matplotlib"):
        _tell_missing()


def _tell_missing():
    """Prints one line, once in a process."""
    global _told
    if not _told:
        _told = True
        print(
            "no plot: matplotlib is not installed "
            "(pip install kerasmgpu[report])",
            flush=True,
        )


def new_figure(width=6, height=4):
    """Returns an empty figure, or `None` without matplotlib.

    One line has said then what to install.

    Args:
        width: Inches.
        height: Inches.

    Returns:
        A `matplotlib.figure.Figure`, which needs no display.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        _tell_missing()
        return None
    return Figure(figsize=(width, height), layout="constrained")


def line(axes, x, y, **style):
    """Draws a line, with a marker at each point where there are few.

    Args:
        axes: `matplotlib.axes.Axes`.
        x: Sequence of numbers.
        y: Sequence of numbers; a NaN is a gap.
        **style: See `Axes.plot`.
    """
    if len(x) <= _FEW_POINTS:
        style.setdefault("marker", "o")
    axes.plot(x, y, **style)


def epoch_axis(axes):
    """Makes the x axis one of epochs, with ticks at whole ones only.

    Args:
        axes: `matplotlib.axes.Axes`.
    """
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def count_axis(axes, counts, label):
    """Makes the x axis one of counts: whole numbers, and no others.

    All have a tick. Counts that grow by factors (replicas, rows of a batch) are
    set on a logarithmic scale.

    Args:
        axes: `matplotlib.axes.Axes`.
        counts: Sequence of integers, those that are drawn.
        label: What is counted.
    """
    counts = sorted(set(counts))
    by_factors = all(b >= 1.5 * a for a, b in zip(counts, counts[1:]))
    if len(counts) > 3 and by_factors:
        axes.set_xscale("log", base=2)
    axes.set_xticks(counts, counts, rotation=45 if len(counts) > 8 else 0)
    axes.minorticks_off()
    axes.set_xlabel(label)


def save(figure, path):
    """Writes a figure in one piece; what is there before stays till then.

    Args:
        figure: `matplotlib.figure.Figure`.
        path: Path of the PNG file.
    """
    with complete(path) as temporary:
        figure.savefig(temporary, dpi=150)
