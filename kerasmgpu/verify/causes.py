"""Likely causes of a difference between runs, in words."""


def why_not_reproducible(one, again):
    """Returns the reason why two one-device runs differ.

    Args:
        one: `Outcome` of the first run.
        again: `Outcome` of the second.

    Returns:
        String.
    """
    first, second = one.facts["batches"], again.facts["batches"]
    pairs = zip(first, second)
    at = [
        index + 1
        for index, (a, b) in enumerate(pairs)
        if a["checksum"] != b["checksum"]
    ]
    if not at and len(first) == len(second):
        return (
            "its batches are the same each time, so something else is drawn "
            "anew: unseeded randomness in build(), in a layer or in "
            "train_step (numpy's default_rng(), tf.random's generators, "
            "os.urandom, the time, the order of a set). Seed it."
        )
    rows = [_rows(batches) for batches in (first, second)]
    where = f"batch {at[0]} is the first to differ" if at else "their number"
    what = "other rows"
    if None not in rows and rows[0] & rows[1]:
        what = "its rows in another order"
    return (
        f"the data set gives {what} each time ({where}): give its shuffle a "
        "seed, and any random number that it draws."
    )


def _rows(batches):
    """Returns the set of all rows' checksums, or `None` if a batch has none."""
    rows = set()
    for batch in batches:
        if batch["row_checksums"] is None:
            return None
        rows.update(batch["row_checksums"])
    return rows


def other_data(one, many):
    """Returns why the replicas' batches differ, or `None` if they are equal."""
    checksums = [
        [batch["checksum"] for batch in outcome.facts["batches"]]
        for outcome in (one, many)
    ]
    if checksums[0] == checksums[1]:
        return None
    return (
        "the data set gave other batches than on one device: it depends on "
        "the number of devices, or draws unseeded random numbers."
    )


def is_rounding(comparison, rounding):
    """Whether rounding errors on one device cause as large a difference.

    Args:
        comparison: `Comparison` of a run on replicas.
        rounding: `Comparison` of a run on one device whose initial weights
            were perturbed by one rounding error.
    """
    for name, (value, limit) in comparison.checks.items():
        if value > max(limit, 10 * rounding.checks[name][0]):
            return False
    return True


def likely_causes(comparison, one, many, rounding=None):
    """Returns likely causes of a difference between replicas and one device.

    Args:
        comparison: `Comparison` of the two runs.
        one: `Outcome` on one device.
        many: `Outcome` on the replicas.
        rounding: See `is_rounding`, or `None`.

    Returns:
        List of strings.
    """
    data = other_data(one, many)
    if data is not None:
        return [data]
    if rounding is not None and is_rounding(comparison, rounding):
        return [
            "rounding: one device differs as much from itself "
            f"(W {rounding.weights:.0e}) when its weights start one rounding "
            "error aside, as where an optimizer such as Adam divides a "
            "gradient of nearly 0 by its own size (a bias before batch "
            "normalisation). Probably no fault; --float64 settles it."
        ]
    return [_cause(comparison, many)]


def _cause(comparison, many):
    """Returns the cause when neither the data nor rounding explain it."""
    if comparison.spread:
        path = next(iter(comparison.spread))
        who = f"the variable {path!r} of layer {_owner(path, many)!r} has"
        what = "copies that differ between replicas"
    elif comparison.weights <= comparison.tolerance:
        who = "the weights are those of one device, what is reported isn't: "
        what = "a metric, a loss or a callback"
    else:
        layer = comparison.first_layer()
        who = "the step" if layer is None else f"layer {layer['name']!r}"
        what = "computes something else"
        ratio = comparison.update_ratio
        if ratio is not None and abs(ratio - 1) > comparison.tolerance:
            what += (
                f" (the first update is {ratio:.2g} times that of one device)"
            )
    return (
        f"{who} {what}. Replicas run what one device runs, so the program "
        "itself does something else there: it asks how many devices, replicas "
        "or workers there are, keeps state in Python, reads a clock or files. "
        "If it does none of these, please report this with the file that "
        "--output writes."
    )


def _owner(path, outcome):
    variables = outcome.facts["variables"]
    return next(v["layer"] for v in variables if v["path"] == path)
