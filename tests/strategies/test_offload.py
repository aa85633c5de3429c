"""With slots in host memory, steps end as those of one device."""

import itertools

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.errors import InputError
from tests.devices import device_names
from tests.strategies.sharded import mirrored, pretended_devices

ROWS = 29
HOST = "CPU:0"

pytestmark = pytest.mark.usefixtures("float64")


def adam():
    return keras.optimizers.Adam(0.01, amsgrad=True)


def averaged():
    return keras.optimizers.AdamW(
        0.01, global_clipnorm=0.1, use_ema=True, ema_overwrite_frequency=2
    )


def scaled():
    inner = keras.optimizers.Adam(0.01)
    return keras.optimizers.LossScaleOptimizer(inner, 16.0, 2)


def accumulated():
    return keras.optimizers.SGD(
        0.01, 0.9, clipnorm=0.1, gradient_accumulation_steps=3
    )


def compiled(optimizer, **settings):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,), dtype="int32")
    x = keras.layers.Embedding(23, 8)(inputs)
    x = keras.layers.Dense(12, "tanh", kernel_regularizer="l2")(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile(optimizer(), "mse", **settings)
    return model


def data():
    numbers = np.random.default_rng(0)
    x = numbers.integers(0, 23, (ROWS, 3))
    return x.astype("int32"), numbers.normal(size=(ROWS, 3))


def trained(model, callbacks=(), epochs=2):
    x, y = data()
    history = model.fit(
        x, y, 8, epochs, verbose=0, shuffle=False, callbacks=list(callbacks)
    )
    state = [np.asarray(slot) for slot in model.optimizer.variables]
    return [*history.history["loss"], *model.get_weights(), *state]


def slots_on_host(model):
    """Whether all slots that are divided are on the host; there must be some."""
    slots = [
        one.value
        for one in model.optimizer.variables
        if hasattr(one.value, "parts")
    ]
    places = {part.device[-5:] for slot in slots for part in slot.parts}
    return places == {HOST}


def check(strategy, optimizer, **settings):
    with strategy.scope():
        model = compiled(optimizer, **settings)
    found = trained(model)
    expected = trained(compiled(optimizer, **settings))
    for one, many in zip(expected, found, strict=True):
        np.testing.assert_allclose(many, one, rtol=0, atol=1e-12)
    assert slots_on_host(model)


def offloaded(num_replicas, shard="optimizer", **settings):
    """A strategy whose replicas are elsewhere than the host."""
    devices = device_names(num_replicas + 1)[1:]
    settings = {"devices": devices, "offload": "optimizer", **settings}
    return mirrored(num_replicas, shard, **settings)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "strategy, optimizer",
    [
        (dict(num_replicas=2, shard="weights", micro_batches=2), averaged),
        (dict(num_replicas=4, shard="weights", shard_over=2), adam),
        (dict(num_replicas=1), scaled),
        (dict(num_replicas=3), accumulated),
    ],
    ids=["micro-batches", "groups", "one", "accumulation"],
)
def test_offloaded_slots_follow_one_device(strategy, optimizer):
    check(offloaded(**strategy), optimizer)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name, shard",
    list(
        zip(
            "Adadelta Adafactor Adagrad Adamax Ftrl Lamb Lion Muon Nadam "
            "RMSprop".split(),
            itertools.cycle(["optimizer", "weights"]),
        )
    ),
)
def test_all_optimizers(name, shard):
    optimizer = getattr(keras.optimizers, name)
    with pretended_devices(shares_memory=False):
        check(offloaded(2, shard), lambda: optimizer(0.01))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        dict(jit_compile=True),
        dict(steps_per_execution=3),
        dict(run_eagerly=True),
    ],
    ids=str,
)
def test_ways_to_run(settings):
    for optimizer in (averaged, scaled):
        check(offloaded(2), optimizer, **settings)


LAYOUT = {"dense.*kernel": (None, "model"), "embeddings": ("model",)}


@pytest.mark.slow
@pytest.mark.parametrize("layout", [LAYOUT, "auto"], ids=["given", "auto"])
def test_layouts(layout):
    strategy = kerasmgpu.strategy(
        mesh=(2, 2), layout=layout, offload="optimizer"
    )
    check(strategy, averaged)


@pytest.mark.parametrize(
    "sharded",
    [
        pytest.param(True, marks=pytest.mark.slow),
        pytest.param(False, marks=pytest.mark.nightly),
    ],
)
def test_checkpoints_continue_under_other_settings(tmp_path, sharded):
    strategies = [offloaded(2), mirrored(3, None), offloaded(1, "weights")]
    for number, strategy in enumerate(strategies):
        with strategy.scope():
            model = compiled(averaged)
        saving = kerasmgpu.callbacks.Checkpoint(tmp_path, sharded=sharded)
        trained(model, [saving], epochs=number + 1)
    expected = compiled(averaged)
    trained(expected, epochs=3)
    for one, many in zip(
        expected.get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(many, one, rtol=0, atol=1e-12)


def test_report_says_what_is_on_the_host():
    with offloaded(2).scope():
        model = compiled(keras.optimizers.Adam)
    report = kerasmgpu.layout_report(model, data())
    elements = 23 * 8 + 8 * 12 + 12 + 12 * 3 + 3
    halves = 23 * 4 + 8 * 6 + 6 + 6 * 3 + 2  # A bias of 3 is divided unevenly.
    assert report.on_host == 2 * 8 * halves
    assert report.held < 8 * elements + 200  # Weights, counters, metrics.
    # Gradients, and changes. Of a table, whose gradient is rows, Keras makes
    # the squares of these, too.
    expected = 8 * (halves + 23 * 4), 8 * halves
    assert report.linked == pytest.approx(expected, abs=8)
    assert f"on the host: {report.on_host:,} of slots" in str(report)


def test_errors():
    with pytest.raises(InputError, match='give shard="optimizer" or'):
        kerasmgpu.MirroredStrategy(["CPU:1"], offload="optimizer")
    with pytest.raises(InputError, match="one of none, optimizer"):
        offloaded(2, offload="weights")
    strategy = kerasmgpu.MirroredStrategy(["CPU:1"], offload="none")
    assert strategy.settings.offload is None
