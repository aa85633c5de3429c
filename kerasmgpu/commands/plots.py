"""The style of all plots; without matplotlib, none is drawn."""

import importlib.util
import os
from collections.abc import Iterable, Sequence
from typing import Any

from kerasmgpu.atomic_files import atomic_write
from kerasmgpu.stores.store_path import StorePath

_told = False

_FEW_POINTS = 30
"""Up to so many points, a line gets markers: a single point needs one."""


def tell_if_missing() -> None:
    """Prints what to install if matplotlib is missing; call before a run."""
    if importlib.util.find_spec("matplotlib") is None:
        _tell_missing()


def _tell_missing() -> None:
    """Prints what to install, once per process."""
    global _told
    if not _told:
        _told = True
        print(
            "no plot: matplotlib is not installed (pip install matplotlib)",
            flush=True,
        )


def new_figure(width: float = 6, height: float = 4) -> Any:
    """Returns an empty figure, which needs no display; `None` without matplotlib.

    Without matplotlib, prints what to install, once per process.

    Args:
        width: Inches.
        height: Inches.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        _tell_missing()
        return None
    return Figure(figsize=(width, height), layout="constrained")


def line(
    axes: Any, x: Sequence[float], y: Sequence[float], **style: Any
) -> None:
    """Draws a line, with markers if it has few points.

    Args:
        axes: `matplotlib.axes.Axes`.
        y: Sequence of numbers; a NaN is a gap.
    """
    if len(x) <= _FEW_POINTS:
        style.setdefault("marker", "o")
    axes.plot(x, y, **style)


def epoch_axis(axes: Any) -> None:
    """Labels the x axis "epoch", with ticks at integers only."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def count_axis(axes: Any, counts: Iterable[int], label: str) -> None:
    """Labels the x axis, with a tick at each of the given counts only.

    Counts that grow by factors (replicas, rows of a batch) get a logarithmic
    scale.
    """
    counts = sorted(set(counts))
    by_factors = all(b >= 1.5 * a for a, b in zip(counts, counts[1:]))
    if len(counts) > 3 and by_factors:
        axes.set_xscale("log", base=2)
    axes.set_xticks(counts, counts, rotation=45 if len(counts) > 8 else 0)
    axes.minorticks_off()
    axes.set_xlabel(label)


def save(figure: Any, path: str | os.PathLike[str] | StorePath) -> None:
    """Writes or replaces a PNG file of a figure atomically."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)
