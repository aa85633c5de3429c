"""What a distance between runs means, in words."""

from kerasmgpu.verify.comparison import differs


def why_not_reproducible(one, again):
    """Why the one-device program differs from itself.

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
    """Set of the checksums of all rows, or `None` where there are none."""
    rows = set()
    for batch in batches:
        if batch["row_checksums"] is None:
            return None
        rows.update(batch["row_checksums"])
    return rows


def other_data(one, many):
    """Why replicas were given other data than one device, or `None`."""
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
    """Whether rounding errors alone drive one device as far.

    Args:
        comparison: `Comparison` of a run on replicas.
        rounding: `Comparison` of a run on one device whose weights started
            one rounding error aside.
    """
    for name, (value, limit) in comparison.checks.items():
        if value > max(limit, 10 * rounding.checks[name][0]):
            return False
    return True


def likely_causes(comparison, one, many, rounding=None):
    """Why replicas ended with another model than one device.

    Args:
        comparison: `Comparison` of the two.
        one: `Outcome` on one device.
        many: `Outcome` on the replicas.
        rounding: See `is_rounding`, or `None`.

    Returns:
        List of strings, the most certain first.
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
    found = _layer_causes(comparison, many)
    # Whatever a layer did wrong, the step's own arithmetic shows it too.
    found = found or _own_step(comparison, one)
    return [*found, *_metrics(comparison, one)] or [
        "none of the known ones. The first layer to differ is named above; "
        "what it computes must not depend on which rows come together. If it "
        "doesn't, please report this with the file that --output writes."
    ]


def _layer_causes(comparison, many):
    """What the layer did where the runs part, if a layer did it."""
    layer = comparison.first_layer()
    if comparison.spread:
        path = next(iter(comparison.spread))
        owner = _owner(path, many)
        return [_state(owner, path, "its copies differ between replicas")]
    if layer is None:
        return []
    output_differs = differs(layer["output"], comparison.log_tolerance)
    state_differs = differs(layer["state"], comparison.tolerance)
    if layer["state"] is not None and (output_differs or state_differs):
        path = next(
            variable["path"]
            for variable in many.facts["variables"]
            if variable["layer"] == layer["name"]
            and variable["kind"] == "state"
        )
        what = "state" if state_differs else "output in the first step"
        return [_state(layer["name"], path, f"its {what} differs")]
    if output_differs:
        return [
            f"the output of layer {layer['name']!r} for a row depends on the "
            "other rows of its replica (a mean, maximum or count over the "
            "batch): it differs in the first step, before any update. Take "
            "such values over all replicas "
            '(`tf.distribute.get_replica_context().all_reduce("SUM", …)`), or '
            "make them per row."
        ]
    return []


def _owner(path, outcome):
    variables = outcome.facts["variables"]
    return next(v["layer"] for v in variables if v["path"] == path)


def _state(layer, path, evidence):
    return (
        f"layer {layer!r} has batch-dependent state ({path}), computed from "
        f"each replica's own rows: {evidence}. After the step all replicas get "
        "the mean of what each assigned, which is right for a running mean "
        "that the step itself does not use, not for a sum, a count or a "
        "maximum. Reduce over the replicas before the state is assigned or "
        "used, with `all_reduce` or `all_gather` of "
        "`tf.distribute.get_replica_context()`."
    )


def _own_step(comparison, one):
    """A train_step or loss of the user's, scaled for itself."""
    found = []
    failing = not comparison.in_parity and (
        comparison.weights > comparison.tolerance
        or comparison.losses > comparison.log_tolerance
        or comparison.step_logs > comparison.log_tolerance
    )
    only_metrics = comparison.weights <= comparison.tolerance and (
        comparison.losses <= comparison.log_tolerance
    )
    if failing and one.facts["row_wise_losses"] and not only_metrics:
        names = ", ".join(map(repr, one.facts["row_wise_losses"]))
        found.append(
            f"the loss {names} says `row_wise = True`, which promises that "
            "each row's value depends on that row only; remove it where that "
            "is not so."
        )
    if failing and one.facts["own_train_step"]:
        found.append(
            "the model's own train_step scales its loss by itself: "
            f"{_scaled(comparison)}. kerasmgpu takes what a step computes by "
            "hand for a mean over the rows that train_step was given, and "
            "weighs it by their share of the global batch. Divide by the rows "
            "that it was given (not by the global batch size or the number of "
            "replicas), or use `self.compute_loss`."
        )
    return found


def _scaled(comparison):
    parts = []
    for what, ratio in (
        ("first update", comparison.update_ratio),
        ("first loss", comparison.loss_ratio),
    ):
        if ratio is not None:
            parts.append(f"the {what} is {ratio:.2g} times that of one device")
    return ", ".join(parts) or "its steps differ from those of one device"


def _metrics(comparison, one):
    """Metrics that differ although the model doesn't."""
    if comparison.weights > comparison.tolerance:
        return
    for name, distance in comparison.metrics.items():
        if distance <= comparison.log_tolerance:
            continue
        if name in one.facts["row_wise_metrics"]:
            yield (
                f"metric {name!r} says `row_wise = True`, which promises that "
                "its state is a sum of what each row contributes; it is not "
                "(a maximum, a mean of means). Remove `row_wise`, and it is "
                "given the whole global batch."
            )
        elif not one.facts["own_train_step"]:
            yield (
                f"metric {name!r} differs although the weights don't: its "
                "result is no function of the global batch's rows."
            )
