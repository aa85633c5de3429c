"""Computes a job's figures from its records, and formats them as a table."""

from benchmarks.machinery import record

_ROWS = {
    "all met, after the last was there (s)": "met_seconds",
    "a loss told to all others (s)": "notice_seconds",
    "from the loss until all met again (s)": "restart_seconds",
    "from the last one's end to the launcher's (s)": "end_seconds",
    "worker 0's CPU: start (s)": "start_cpu",
    "worker 0's CPU: a quiet minute (s)": "quiet_cpu",
    "worker 0's CPU: a loss (s)": "loss_cpu",
    "worker 0's CPU: the end (s)": "end_cpu",
    "worker 0 sent and received: start (kB)": "start_bytes",
    "worker 0 sent and received: a quiet minute (kB)": "quiet_bytes",
    "worker 0 sent and received: a loss (kB)": "loss_bytes",
    "worker 0 sent and received: the end (kB)": "end_bytes",
    "rank 0's launcher: CPU, two runs (s)": "launcher_cpu",
    "rank 0's launcher sent and received (kB)": "launcher_bytes",
}


def figures(folder, num_workers, began, ended):
    """Returns the figures of one job.

    Args:
        folder: `pathlib.Path` of its records.
        num_workers: Integer.
        began: Number, time of the start of its launchers, in seconds.
        ended: Number, time at which all had ended, in seconds.

    Returns:
        Dictionary from names to numbers, in seconds and kB.
    """
    runs = [
        [
            record.read(folder / f"worker-{run}-{index}.jsonl")
            for index in range(num_workers)
        ]
        for run in (0, 1)
    ]
    first, again = runs[0][0], runs[1][0]
    launcher = record.read(folder / "launcher-0.jsonl")
    lost = runs[0][-1]["dies"]["time"]
    minutes = (first["was quiet"]["time"] - first["watched"]["time"]) / 60
    return {
        "workers": num_workers,
        "seconds": ended - began,
        "met_seconds": latest(runs[0], "met") - latest(runs[0], "up"),
        "notice_seconds": latest(runs[0][:-1], "noticed") - lost,
        "restart_seconds": latest(runs[1], "met") - lost,
        "end_seconds": ended - latest(runs[1], "leaves"),
        "start_cpu": first["watched"]["cpu"] - first["up"]["cpu"],
        "quiet_cpu": spent(first, "watched", "was quiet", "cpu") / minutes,
        "loss_cpu": spent(first, "was quiet", "ends", "cpu"),
        "end_cpu": spent(again, "leaves", "left", "cpu"),
        "start_bytes": traffic(first, "up", "watched"),
        "quiet_bytes": traffic(first, "watched", "was quiet") / minutes,
        "loss_bytes": traffic(first, "was quiet", "ends"),
        "end_bytes": traffic(again, "leaves", "left"),
        "launcher_cpu": spent(launcher, "up", "ends", "cpu"),
        "launcher_bytes": traffic(launcher, "up", "ends"),
    }


def latest(workers, moment):
    """Returns the time at which the last worker reached a moment."""
    return max(moments[moment]["time"] for moments in workers)


def spent(moments, begin, end, what):
    """Returns the difference of a counter between two moments of a process."""
    return moments[end][what] - moments[begin][what]


def traffic(moments, begin, end):
    """Returns the bytes sent and received between two moments, in kB."""
    return sum(
        spent(moments, begin, end, what) / 1000 for what in ("sent", "received")
    )


def markdown(jobs):
    """Formats a Markdown table with a column for each job.

    Args:
        jobs: Sequence of return values of `figures`.

    Returns:
        String.
    """
    lines = [
        ["workers", *(str(job["workers"]) for job in jobs)],
        ["---", *("---:" for _ in jobs)],
        *(
            [row, *(_short(job[key]) for job in jobs)]
            for row, key in _ROWS.items()
        ),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.2g}"
