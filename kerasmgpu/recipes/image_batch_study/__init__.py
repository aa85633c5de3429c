"""Accuracy against the global batch: what a larger one does to training.

    python -m kerasmgpu.recipes.image_batch_study --output_dir=runs/batches

More devices mean a larger global batch, so fewer steps in an epoch and less
noise in each. This study trains the same network for the same number of epochs
with each batch size and each way to choose the learning rate: as it is for the
smallest batch, scaled by the square root, scaled linearly, and scaled linearly
with gradual warm-up (Goyal et al., arXiv:1706.02677). It ends with a table, and
a plot in the folder; `--resume` goes on with the runs that are left.

The default data are the 1,797 scanned digits that ship with scikit-learn.
The 27 runs of the default took 5 minutes on two busy CPU cores: at a batch of
256, 86 % unscaled, 81 % linear, 97 % linear with warm-up; see
`recipes/alexnet/`.
"""

import dataclasses
import types

from absl import flags

from kerasmgpu import replica_arithmetic
from kerasmgpu.errors import InputError, checked_integer
from kerasmgpu.recipes.alexnet import image_flags
from kerasmgpu.recipes.shared import early_checks, shared_flags


@dataclasses.dataclass(frozen=True)
class Rule:
    """A way to choose the learning rate of a larger batch.

    Args:
        label: What it is, in words.
        scaling: Rule of `kerasmgpu.scale_learning_rate`.
        warms_up: Whether the rate rises from that of the smallest batch.
    """

    label: str
    scaling: str
    warms_up: bool


RULES = (
    Rule("unscaled", "none", False),
    Rule("sqrt", "sqrt", False),
    Rule("linear", "linear", False),
    Rule("linear, warm-up", "linear", True),
)


def define_flags(flag_values):
    """Defines the study's flags; each is a keyword of `run`."""
    shared_flags.define_devices(flag_values)
    shared_flags.define_output(flag_values)
    image_flags.define(
        flag_values,
        dataset="digits",
        width=0.125,
        augment=False,
        warmup_epochs=10,
    )
    flags.DEFINE_list(
        "batch_sizes",
        ["16", "64", "256"],
        "Global batches to train with, in rows. The learning rate is that of "
        "the smallest.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "learning_rate",
        0.004,
        "Learning rate for the smallest batch.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "epochs", 30, "Passes over the data in a run.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "num_seeds",
        3,
        "Runs of each kind, with other initial weights, order and split.",
        flag_values=flag_values,
    )


def batch_sizes(settings):
    """The flag's list of texts as rising integers.

    Raises:
        InputError: If there are fewer than two, or one is no multiple of the
            smallest.
    """
    try:
        sizes = sorted({int(text) for text in settings.batch_sizes})
    except ValueError:
        sizes = []
    if len(sizes) < 2 or sizes[0] < 1 or any(size % sizes[0] for size in sizes):
        raise InputError(
            "--batch_sizes must be two or more integers, multiples of the "
            "smallest, such as 16,128. Received: "
            f"{','.join(map(str, settings.batch_sizes))}"
        )
    return sizes


def check(settings):
    """Refuses settings that can't be meant."""
    image_flags.check(settings)
    batch_sizes(settings)
    checked_integer(settings.num_seeds, "--num_seeds", minimum=1)
    if settings.warmup_epochs >= settings.epochs:
        raise InputError(
            "The warm-up must be shorter than the run. Received: "
            f"--warmup_epochs={settings.warmup_epochs} of {settings.epochs}"
        )
    if settings.dataset == "synthetic" or settings.compare_input:
        raise InputError(
            "The study is about accuracy. Received: --dataset=synthetic or "
            "--compare_input, which are about speed"
        )


def cells(sizes):
    """Batch sizes and rules to train: all rules are one at the smallest."""
    yield sizes[0], RULES[0]
    for size in sizes[1:]:
        for rule in RULES:
            yield size, rule


def train(settings, strategy, data, size, smallest, rule, seed, left_out):
    """Trains once, and tells `left_out` of images that can't be decoded.

    Returns:
        Dictionary of the record of this run, with `accuracy` on what was held
        out, from 0 to 1. A run that diverged has that of its last weights.
    """
    from kerasmgpu.recipes import alexnet
    from kerasmgpu.recipes.alexnet import image_batches, image_sources
    from kerasmgpu.recipes.shared import training_plan

    learning_rate = replica_arithmetic.scale_learning_rate(
        settings.learning_rate, size // smallest, rule.scaling
    )
    steps = -(-len(data.train) // size)
    plan = training_plan.TrainingPlan(
        strategy.num_replicas_in_sync,
        size,
        learning_rate,
        steps,
        settings.epochs,
        steps * settings.warmup_epochs * rule.warms_up,
    )
    shape = image_sources.network_shape(settings, data)
    batches = image_batches.ImageBatches(
        data, shape[0], size, seed, settings.augment, left_out.add
    )
    with strategy.scope():
        model = alexnet.build_model(
            types.SimpleNamespace(**vars(settings) | {"seed": seed}),
            shape,
            data.num_classes,
            plan,
        )
    model.fit(
        batches.training(),
        epochs=plan.epochs,
        steps_per_epoch=plan.steps_per_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[left_out],
    )
    scores = model.evaluate(batches.held_out(), verbose=0, return_dict=True)
    return {
        "global_batch_size": size,
        "rule": rule.label,
        "seed": seed,
        "learning_rate": learning_rate,
        "steps": plan.steps,
        "accuracy": scores["accuracy"],
    }


def run(**keywords):
    """Runs the study; every flag is a keyword.

    Args:
        **keywords: See `--help`; what is left out has the flag's default.

    Returns:
        List of the records of all runs; see `train`.

    Raises:
        InputError: If a setting, the data or the output folder can't be used.
    """
    settings = shared_flags.settings(define_flags, keywords)
    check(settings)
    early_checks.require_place(settings, may_grow=())
    image_flags.require_packages(settings)
    import keras

    from kerasmgpu.recipes.alexnet import image_sources, left_out_images
    from kerasmgpu.recipes.image_batch_study import image_batch_report
    from kerasmgpu.recipes.shared import run_folder, run_report, training_run

    sizes = batch_sizes(settings)
    # Runs of other lengths can't be compared.
    folder = run_folder.RunFolder(settings.output_dir, settings, may_grow=())
    strategy = training_run.make_strategy(settings)
    records = _finished(folder)
    left_out = left_out_images.LeftOutImages(folder)
    done = {(r["global_batch_size"], r["rule"], r["seed"]) for r in records}
    for seed in range(settings.num_seeds):
        data = image_sources.load(
            types.SimpleNamespace(**vars(settings) | {"seed": seed})
        )
        _require_smaller(sizes, data)
        if not seed:
            run_report.print_line(data.description)
            folder.start()
        for size, rule in cells(sizes):
            if (size, rule.label, seed) in done:
                continue
            record = train(
                settings, strategy, data, size, sizes[0], rule, seed, left_out
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
    image_batch_report.print_table(records, sizes, labels)
    if folder.path is not None:
        image_batch_report.draw(folder, records, sizes, labels)
    return records


def _finished(folder):
    """Records of the runs that an earlier start has finished."""
    if folder.path is None or not (folder.path / "runs.json").exists():
        return []
    return folder.read_json("runs.json")


def _require_smaller(sizes, data):
    if sizes[-1] > len(data.train):
        raise InputError(
            "A batch can't have more rows than there are images to train on. "
            f"Received: --batch_sizes up to {sizes[-1]} for {len(data.train)}"
        )
