"""A polynomial fitted through `kerasmgpu.make_parallel`, on any devices.

    python -m kerasmgpu.recipes.polynomial --num_replicas=2 --virtual_devices=2

Fits w to w · [x², x, 1] = y, on 100 samples a step for 1000 steps: a minimal
example of a function split over devices, with one copy of its variables and
gradients through it. Without `--data_path` the samples are y = 5x² + 3 with x
uniform in [-10, 10], so that w ends at [5, 0, 3].

The command takes 6 seconds on two CPU cores and ends with w within 1e-5 of
[5, 0, 3]. More: `recipes/polynomial/`.
"""

import csv
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from absl import flags

from kerasmgpu import _import_on_use
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import run_folder, shared_flags
from kerasmgpu.recipes.shared.training_plan import TrainingPlan
from kerasmgpu.stores.places import local_copy

_import_on_use(__name__)

if TYPE_CHECKING:
    import keras

    from kerasmgpu.recipes.shared.run_report import Result

_LOSS = "mean squared error"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this recipe's flags; each is a keyword of `run`."""
    shared_flags.define_preset(flag_values, define_flags)
    shared_flags.define(
        flag_values,
        # Left out with --global_batch_size: 100 rows on all replicas.
        batch_size_per_replica=None,
        learning_rate=0.1,
        learning_rate_scaling="none",
        # Left out with --steps: 1000 steps.
        epochs=None,
        all_reduce=False,
    )
    shared_flags.define_data(
        flag_values,
        path_help="CSV file, two numbers a line: x,y. A first line that is "
        "not of numbers is a header.",
    )


def fill_in(settings: SimpleNamespace) -> None:
    """Sets batch and length to the published values if left out."""
    if settings.batch_size_per_replica is None:
        # As published: 100 samples a step on all devices together.
        settings.global_batch_size = settings.global_batch_size or 100
    if settings.steps is None and settings.epochs is None:
        settings.steps = 1000
        settings.steps_per_epoch = settings.steps_per_epoch or 100


def load_data(settings: SimpleNamespace) -> SimpleNamespace:
    """Reads the samples, or generates them: `x` and `y`, `[rows, 1]`."""
    import numpy as np

    if settings.data_path:
        pairs = np.array(read_pairs(local_copy(settings.data_path)))
        x, y = pairs[:, :1], pairs[:, 1:]
        description = f"{len(pairs):,} samples of {settings.data_path}"
    else:
        random = np.random.default_rng(settings.seed)
        x = random.uniform(-10, 10, (10_000, 1))
        y = 5 * x**2 + 3
        description = f"generated: {len(x):,} samples of y = 5x² + 3"
    x, y = x.astype("float32"), y.astype("float32")
    return SimpleNamespace(x=x, y=y, description=description)


def read_pairs(path: str) -> list[list[float]]:
    """Reads a CSV file of pairs of numbers as a list of lists `[x, y]`."""
    pairs: list[Any] = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file)
            for fields in filter(None, lines):
                numbers = [_number(field) for field in fields]
                if lines.line_num == 1 and numbers == [None, None]:
                    continue  # The header.
                if len(numbers) != 2 or None in numbers:
                    raise InputError(
                        f"{path}, line {lines.line_num}: expected two numbers, "
                        f"x,y. Received: {','.join(fields)[:80]}"
                    )
                pairs.append(numbers)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} is not a CSV file of numbers, x,y a line: {error}"
        ) from error
    if not pairs:
        raise InputError(
            f"{path} has no samples; expected two numbers a line, x,y"
        )
    return pairs


def _number(text: str) -> float | None:
    """A text as a finite number, or `None`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def build_model(
    settings: SimpleNamespace, plan: TrainingPlan, devices: list[str]
) -> "keras.Model":
    """Builds and compiles the model, which splits its rows over devices."""
    import keras

    from kerasmgpu.recipes.polynomial.model import Polynomial

    keras.utils.set_random_seed(settings.seed)
    model = Polynomial(devices)
    model.build((None, 1))
    model.compile(
        keras.optimizers.Adam(
            plan.schedule("none", settings.learning_rate),
            # 0.999 remembers the huge first gradients, with their x⁴, for
            # 1000 steps: the constant would still be at 3.4 by then.
            beta_2=0.99,
        ),
        loss="mse",
        # XLA would compile the step for one device.
        jit_compile=False,
    )
    return model


def run(**keywords: Any) -> "Result":
    """Fits the polynomial once; every flag is a keyword."""
    settings = shared_flags.settings(define_flags, keywords)
    fill_in(settings)
    run_folder.require_place(settings)
    data = load_data(settings)
    import tensorflow as tf

    from kerasmgpu.engine import devices
    from kerasmgpu.recipes.datasets import row_order
    from kerasmgpu.recipes.shared import run_report, training_run

    names = devices.choose(
        settings.num_replicas, virtual_devices=settings.virtual_devices
    )
    # The function is split over the devices, not the training.
    strategy = tf.distribute.get_strategy()
    experiment = training_run.TrainingRun(settings, strategy, names, len(names))
    # The global batch and its learning rate, the length and the warm-up.
    plan = experiment.plan_for(len(data.x))
    experiment.begin(data.description)
    with experiment.strategy.scope():
        model = build_model(settings, plan, names)
    training = row_order.shuffled(
        (data.x, data.y),
        plan.global_batch_size,
        settings.seed,
        experiment.first_step,
    )
    progress = {"loss": _LOSS}
    model.fit(training, **experiment.fit_settings(progress))
    square, linear, constant = model.w.numpy().flatten().tolist()
    figures = {
        "w_square": ("w of x²", square),
        "w_linear": ("w of x", linear),
        "w_constant": ("w of 1", constant),
    }
    curve = run_report.Curve(_LOSS, {"loss": "training"})
    return experiment.finish(model, "loss", _LOSS, figures, curve)
