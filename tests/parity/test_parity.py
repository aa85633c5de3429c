"""N replicas end with what one device gives, case by case.

A case meets one setting or a few: `python -m tests.parity.table` measures all
of them on several replica counts, and under `tf.distribute.MirroredStrategy`,
where most fail.
"""

import keras
import pytest

from benchmarks.exactness import harness
from benchmarks.exactness.registry import cases
from tests.parity.one_device import is_predicted
from tests.strategies.sharded import mirrored

CASES = cases("parity")

DOUBLE_PRECISION = [
    "uneven last batch",
    "masked loss per token",
    "loss mean with sample weight",
    "weight and activity regularisers",
    "global clipnorm",
    "loss scale with overflow on one replica",
    "gradient accumulation",
    "batch normalisation",
    "batch normalisation with a mask",
    "dropout",
    "several inputs and outputs",
]

# On devices that have memory of their own, too.
LIKE_GPUS = [
    "uneven last batch",
    "static batch size",
    "static batch size in python",
    "steps per execution",
    "masked loss with weights per token",
    "batch normalisation with empty replicas",
    "dropout",
    "data of unknown length and xla",
    "strings",
    "sparse tensors",
]

QUICK = {
    "first batch of one row",
    "own train step with a mean",
    "batch normalisation",
    "data of unknown length",
    "sparse tensors",
}
"""Cases of the quick tier, on their fewest replicas."""

ON_REPLICAS = QUICK | {
    "uneven last batch",
    "masked loss per token",
    "global clipnorm",
    "loss scale with overflow on one replica",
    "dropout",
    "metric that is no sum",
}
"""Cases that run undivided; those of the quick tier that aren't in `QUICK` are
divided there, or in micro-batches."""


QUICK_SHARDED = {
    ("uneven last batch", "sharded_optimizer", 8),
    ("masked loss per token", "sharded_weights", 3),
    ("global clipnorm", "sharded_optimizer", 4),
    ("clipnorm of sparse gradients", "sharded_optimizer", 2),
    ("loss scale with overflow on one replica", "sharded_optimizer", 4),
}


ALTERNATING = ("replicas", "sharded_weights", "like_gpus", "sharded_optimizer")
"""Settings of the other cases: one for each, the next for the next."""


def _settings(number, case):
    """Pairs of a fixture and a number of replicas, most often a single one."""
    found = [
        (shard, n) for name, shard, n in QUICK_SHARDED if name == case.name
    ]
    if found or case.name in ON_REPLICAS or len(case.replica_counts) > 1:
        found += [("replicas", count) for count in case.replica_counts]
    if case.name in LIKE_GPUS:
        found.append(("like_gpus", 3))
    fixture = ALTERNATING[number % 4]
    is_sharded = fixture.startswith("sharded")
    count = 2 + number % 3 if is_sharded else case.replica_counts[0]
    return found or [(fixture, count)]


def _marks(case, fixture, count):
    is_quick = case.name in QUICK and count == min(case.replica_counts)
    is_quick = is_quick and fixture == "replicas"
    if is_quick or (case.name, fixture, count) in QUICK_SHARDED:
        return ()
    return pytest.mark.slow


RUNS = [
    pytest.param(
        case,
        fixture,
        count,
        id=f"{case.name}, {count} {fixture}",
        marks=_marks(case, fixture, count),
    )
    for number, case in enumerate(CASES.values())
    for fixture, count in _settings(number, case)
]


@pytest.fixture
def sharded_optimizer():
    return lambda num_replicas: mirrored(num_replicas, "optimizer")


@pytest.fixture
def sharded_weights():
    """Weights are divided over all replicas; of 4, in groups of 2."""

    def made(num_replicas):
        over = 2 if num_replicas == 4 else None
        return mirrored(num_replicas, "weights", shard_over=over)

    return made


@pytest.mark.nightly(but=20)
@pytest.mark.parametrize("case, fixture, num_replicas", RUNS)
def test_replicas_follow_one_device(
    case, fixture, num_replicas, on_one_device, request
):
    one = on_one_device(case)
    strategy = request.getfixturevalue(fixture)(num_replicas)
    many = harness.run(case, strategy, predicts=is_predicted(case))
    for what, distance in harness.distances(one, many).items():
        assert distance <= case.tolerance, f"{what}: {distance:.1e}"
    assert many.spread == 0.0, "the replicas' copies differ"
    assert not many.data_changed, "fit changed the user's arrays"


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("name", DOUBLE_PRECISION)
def test_double_precision_agrees_to_its_last_digits(name, replicas):
    keras.config.set_floatx("float64")
    try:
        # Weights are what is compared, so weights are all that is made.
        one, many = (
            harness.run(CASES[name], strategy, evaluates=False, predicts=False)
            for strategy in (None, replicas(3))
        )
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    assert harness.weight_distance(one, many) <= 1e-12
