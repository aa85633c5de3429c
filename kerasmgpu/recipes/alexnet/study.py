"""A study of accuracy against the global batch.

More devices mean a larger global batch, so fewer steps in an epoch and less
noise in each. The study trains the same network for the same number of epochs
with each batch size and each rule for the learning rate: that of the smallest
batch, scaled by the square root, scaled linearly, and scaled linearly with
gradual warm-up (Goyal et al., arXiv:1706.02677). It ends with a table, and a
plot in the folder; `--resume` continues with the remaining runs.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kerasmgpu import replica_arithmetic
from kerasmgpu.commands import plots, reports
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.alexnet import image_flags
from kerasmgpu.recipes.shared import run_folder
from kerasmgpu.recipes.shared.flag_definitions import integers

if TYPE_CHECKING:
    import tensorflow as tf

    from kerasmgpu.recipes.alexnet.left_out import LeftOutImages
    from kerasmgpu.recipes.datasets.image_data import ImageData

Records = Sequence[Mapping[str, Any]]

# Flags that the study decides itself, for each of its runs.
_NOT_OF_A_STUDY = (
    "global_batch_size batch_size_per_replica learning_rate_scaling "
    "warmup_steps steps steps_per_epoch seed"
).split()


class Rule(NamedTuple):
    """Scaling of the learning rate with the batch, with or without warm-up."""

    label: str
    scaling: str
    warms_up: bool


RULES = (
    Rule("unscaled", "none", False),
    Rule("sqrt", "sqrt", False),
    Rule("linear", "linear", False),
    Rule("linear, warm-up", "linear", True),
)


BuildModel: TypeAlias = Callable[..., Any]
"""`build_model` of the recipe."""


def batch_sizes(settings: SimpleNamespace) -> list[int]:
    """The batch sizes to compare, increasing."""
    sizes = sorted(set(integers(settings.batch_sizes)))
    if len(sizes) < 2 or sizes[0] < 1 or any(size % sizes[0] for size in sizes):
        raise InputError(
            "--batch_sizes must be two or more integers, multiples of the "
            "smallest, such as 16,128. Received: "
            f"{','.join(map(str, settings.batch_sizes))}"
        )
    return sizes


def check(settings: SimpleNamespace, defaults: SimpleNamespace) -> None:
    """Validates the settings of a study."""
    batch_sizes(settings)
    if settings.dataset == "synthetic" or settings.compare_input:
        raise InputError(
            "The study is about accuracy. Received: --dataset=synthetic or "
            "--compare_input, which are about speed"
        )
    for name in _NOT_OF_A_STUDY:
        value = getattr(settings, name)
        if value != getattr(defaults, name):
            raise InputError(
                f"--batch_sizes and --epochs decide instead of --{name}; leave "
                f"it out. Received: --{name}={value}"
            )
    if settings.warmup_epochs >= settings.epochs:
        raise InputError(
            "The warm-up must be shorter than the run. Received: "
            f"--warmup_epochs={settings.warmup_epochs} of {settings.epochs}"
        )


def cells(sizes: Sequence[int]) -> list[tuple[int, Rule]]:
    """Batch sizes and rules to train; at the smallest all rules agree."""
    larger = [(size, rule) for size in sizes[1:] for rule in RULES]
    return [(sizes[0], RULES[0]), *larger]


def run(
    settings: SimpleNamespace,
    defaults: SimpleNamespace,
    build_model: BuildModel,
) -> list[dict[str, Any]]:
    """Trains the remaining runs, compares all, and returns their records.

    Args:
        settings: The recipe's settings.
        defaults: Its default settings.
        build_model: `build_model` of the recipe.
    """
    check(settings, defaults)
    # Only runs of one length can be compared.
    run_folder.require_place(settings, may_grow=())
    image_flags.require_packages(settings)
    import keras

    from kerasmgpu.recipes.alexnet import left_out
    from kerasmgpu.recipes.datasets import images
    from kerasmgpu.recipes.shared import run_report, training_run

    sizes = batch_sizes(settings)
    folder = run_folder.RunFolder(settings.output_dir, settings, may_grow=())
    strategy = training_run.make_strategy(settings)
    records: list[dict[str, Any]] = []
    if folder.path is not None and (folder.path / "runs.json").exists():
        records = folder.read_json("runs.json")
    left_out_images = left_out.LeftOutImages(folder)
    done = {(r["global_batch_size"], r["rule"], r["seed"]) for r in records}
    for seed in range(settings.num_seeds or 3):
        one = SimpleNamespace(**vars(settings) | {"seed": seed})
        data = images.load(one)
        if sizes[-1] > len(data.train):
            raise InputError(
                "A batch can't have more rows than there are images to train "
                f"on. Received: --batch_sizes up to {sizes[-1]} for "
                f"{len(data.train)}"
            )
        if not seed:
            run_report.print_line(data.description)
            folder.start()
        for size, rule in cells(sizes):
            if (size, rule.label, seed) in done:
                continue
            record = train(
                one, build_model, strategy, data, size, rule, left_out_images
            )
            records.append(record)
            run_report.print_line(
                f"batch {size}, {rule.label}, seed {seed}: learning rate "
                f"{record['learning_rate']:.3g}, {record['steps']} steps, "
                f"held-out accuracy {record['accuracy']:.4f}"
            )
            if folder.path is not None:
                folder.write_json("runs.json", records)
            # Dozens of models would add up.
            keras.utils.clear_session(free_memory=True)
    labels = [rule.label for rule in RULES]
    print_table(records, sizes, labels)
    if folder.path is not None:
        draw(folder.path / "accuracy_by_batch.png", records, sizes, labels)
    return records


def train(
    settings: SimpleNamespace,
    build_model: BuildModel,
    strategy: "tf.distribute.Strategy",
    data: "ImageData",
    size: int,
    rule: Rule,
    left_out_images: "LeftOutImages",
) -> dict[str, Any]:
    """Trains once with a global batch of `size` rows; returns its record."""
    from kerasmgpu.recipes.alexnet import networks
    from kerasmgpu.recipes.datasets import image_batches
    from kerasmgpu.recipes.shared import training_plan

    learning_rate = replica_arithmetic.scale_learning_rate(
        settings.learning_rate, size // batch_sizes(settings)[0], rule.scaling
    )
    decided = dict(
        global_batch_size=size,
        learning_rate=learning_rate,
        warmup_epochs=settings.warmup_epochs * rule.warms_up,
    )
    plan = training_plan.make(
        SimpleNamespace(**vars(settings) | decided),
        strategy.num_replicas_in_sync,
        len(data.train),
    )
    shape = networks.image_shape(settings, data)
    batches = image_batches.ImageBatches(
        data,
        shape[0],
        size,
        settings.seed,
        settings.augment,
        left_out_images.add,
    )
    with strategy.scope():
        model = build_model(settings, shape, data.num_classes, plan)
    model.fit(
        batches.training(),
        epochs=plan.epochs,
        steps_per_epoch=plan.steps_per_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[left_out_images],
    )
    scores = model.evaluate(batches.held_out(), verbose=0, return_dict=True)
    return {
        "global_batch_size": size,
        "rule": rule.label,
        "seed": settings.seed,
        "learning_rate": learning_rate,
        "steps": plan.steps,
        "accuracy": scores["accuracy"],  # Of the last weights, from 0 to 1.
    }


def summary(records: Records, size: int, label: str) -> tuple[float, ...]:
    """Mean and deviation of the accuracy over seeds; empty without runs."""
    values = [
        record["accuracy"]
        for record in records
        if (record["global_batch_size"], record["rule"]) == (size, label)
    ]
    if not values:
        return ()
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.mean(values), spread


def rows(
    records: Records, sizes: Sequence[int], labels: Sequence[str]
) -> Iterator[list[str]]:
    """Rows of the table: texts for a batch size and the rules' accuracies."""
    for size in sizes:
        row = [f"{size}"]
        for label in labels:
            found = summary(records, size, label)
            # At the smallest batch all rules agree: it was trained once.
            mean, spread = found or summary(records, size, labels[0]) or (0, 0)
            row.append(f"{100 * mean:.1f} ± {100 * spread:.1f}")
        yield row


def print_table(
    records: Records, sizes: Sequence[int], labels: Sequence[str]
) -> None:
    title = "held-out accuracy (%), mean ± deviation over seeds"
    table = reports.table(title, right=("global batch", *labels))
    for row in rows(records, sizes, labels):
        table.add_row(*row)
    reports.console().print(table)


def draw(
    path: Any, records: Records, sizes: Sequence[int], labels: Sequence[str]
) -> None:
    """Plots accuracy over batch size, as a PNG file."""
    figure = plots.new_figure()
    if figure is None:
        return
    axes = figure.add_subplot()
    smallest = summary(records, sizes[0], labels[0])
    for label in labels:
        points = [summary(records, size, label) for size in sizes[1:]]
        # In per cent: all means, all deviations.
        means, spreads = (
            [100 * value for value in values]
            for values in zip(*filter(None, [smallest, *points]))
        )
        axes.errorbar(sizes, means, spreads, label=label, marker="o", capsize=3)
    plots.count_axis(axes, sizes, "global batch (rows)")
    axes.set_ylabel("held-out accuracy (%)")
    axes.legend()
    plots.save(figure, path)
