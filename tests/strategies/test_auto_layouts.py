"""Models with `layout="auto"` end like one device, laid out as was found."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable

X = np.random.default_rng(0).integers(0, 30, (22, 6))
Y = np.roll(X, -1, 1)


def built():
    keras.utils.set_random_seed(3)
    tokens = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(30, 24, name="table")(tokens)
    wide = keras.layers.Dense(65, "gelu", name="up")(x)
    narrow = keras.layers.Dense(24, name="down")(
        keras.layers.Dropout(0.1)(wide)
    )
    x = keras.layers.BatchNormalization(name="normal")(x + narrow)
    model = keras.Model(tokens, keras.layers.Dense(30, name="head")(x))
    model.compile(
        keras.optimizers.AdamW(0.01, weight_decay=0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.optimizer.exclude_from_weight_decay(var_names=["bias"])
    return model


def trained(model):
    """Also evaluates and predicts before the layout is found."""
    before = [model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0)]
    history = model.fit(
        X, Y, batch_size=8, epochs=2, verbose=0, validation_data=(X, Y)
    )
    logs = list(history.history.values())
    return [*before, *logs, model.predict(X, verbose=0), *model.get_weights()]


@pytest.fixture(scope="module")
def strategy():
    return kerasmgpu.strategy(mesh=(2, 2), layout="auto")


def axes_of(variable):
    held = variable.value
    return held.shard_axes if isinstance(held, ShardedVariable) else None


def test_it_ends_like_one_device(strategy, float64):
    with strategy.scope():
        model = built()
    assert axes_of(model.get_layer("up").kernel) == (0, 1)  # Divided by all.
    ends = trained(model)
    for own, one in zip(ends, trained(built()), strict=True):
        np.testing.assert_allclose(own, one, rtol=1e-7, atol=1e-9)
    found = strategy.found_layout.layouts
    assert found["up/kernel"] == (None, "model")
    assert found["down/kernel"] == ("model", None)
    kernel = model.get_layer("up").kernel
    assert axes_of(kernel) == (None, 1)
    slots = [v for v in model.optimizer.variables if "up_kernel" in v.path]
    assert len(slots) == 2 and {axes_of(v) for v in slots} == {(None, 1)}
    assert axes_of(model.get_layer("down").bias) is None
    report = kerasmgpu.layout_report(model, (X[:8], Y[:8]))
    assert report.sent == sum(strategy.found_layout.sent.values())


def of_pieces():
    """Layers that work on each piece of long rows; their weights are small."""
    keras.utils.set_random_seed(1)
    pieces = keras.Input((39, 4), name="pieces")
    x = keras.layers.LayerNormalization()(pieces)
    wide = keras.layers.Dense(9, "gelu", name="wide")(x)
    model = keras.Model(pieces, keras.layers.Dense(2)(wide))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    "mesh, rows",
    [
        pytest.param((1, 4), None, marks=pytest.mark.slow),
        ((2, 2), "batch"),
    ],
)
def test_long_rows_are_divided_along_their_inner_axis(float64, mesh, rows):
    x = np.random.default_rng(0).normal(size=(4, 39, 4))
    y = x[..., :2]
    strategy = kerasmgpu.strategy(mesh=mesh, layout="auto")
    with strategy.scope():
        model = of_pieces()
    alone = of_pieces()
    for one in (model, alone):
        one.predict(x, verbose=0)  # Its program is of whole inputs.
        one.fit(x, y, batch_size=3, epochs=2, verbose=0)
    for own, expected in zip(model.get_weights(), alone.get_weights()):
        np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12)
    found = strategy.found_layout
    assert found.layouts["pieces/output"] == (rows, "model", None)
    report = kerasmgpu.layout_report(model, (x[:3], y[:3]))
    assert report.computes == 1 / 4
    assert report.sent == sum(found.sent.values())


def two_layers():
    """An encoder, and the model that trains it."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((24,))
    code = keras.layers.Dense(40, "gelu", name="encode")(inputs)
    encoder = keras.Model(inputs, code)
    model = keras.Model(inputs, keras.layers.Dense(24, name="decode")(code))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return encoder, model


BATCH = np.random.default_rng(1).normal(size=(20, 24))


def another_model_has_predicted():
    encoder, model = two_layers()
    before = encoder.predict(BATCH, verbose=0)
    model.fit(BATCH, BATCH, batch_size=8, verbose=0)
    return before, encoder.predict(BATCH, verbose=0), model.predict(BATCH)


def a_function_of_ones_own_has_captured():
    _, model = two_layers()
    predict = tf.function(lambda x: model(x))
    before = predict(BATCH)
    model.fit(BATCH, BATCH, batch_size=8, verbose=0)
    return before, predict(BATCH), model.predict(BATCH)


def two_models_train_shared_layers():
    encoder, model = two_layers()
    encoder.compile(keras.optimizers.Adam(0.01), "mse")
    code = np.ones((20, 40))
    losses = []
    for _ in range(3):
        losses.append(encoder.train_on_batch(BATCH, code))
        losses.append(model.train_on_batch(BATCH, BATCH))
    return losses, model.predict(BATCH), encoder.predict(BATCH)


def adapters_are_added():
    _, model = two_layers()
    model.fit(BATCH, BATCH, batch_size=8, verbose=0)
    model.get_layer("encode").enable_lora(4)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(BATCH, BATCH, batch_size=20, verbose=0)
    return [model.predict(BATCH)]


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        another_model_has_predicted,
        a_function_of_ones_own_has_captured,
        two_models_train_shared_layers,
        adapters_are_added,
    ],
)
def test_nothing_goes_on_with_variables_that_were_replaced(
    strategy, float64, program
):
    expected = program()
    with strategy.scope():
        found = program()
    for own, one in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, one, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_adapters_are_laid_out_around_what_is_laid_out(strategy):
    with strategy.scope():
        _, model = two_layers()
    model.train_on_batch(BATCH, BATCH)
    layer, before = model.get_layer("encode"), strategy.found_layout.layouts
    layer.enable_lora(4)
    as_far_as_possible = axes_of(layer.lora_kernel_a)
    with strategy.scope():
        model.compile(keras.optimizers.Adam(0.01), "mse")
    model.train_on_batch(BATCH, BATCH)
    found = strategy.found_layout.layouts
    assert axes_of(layer.lora_kernel_a) != as_far_as_possible
    assert found["encode/lora_kernel_a"] == ("model", None)
    assert {key: found[key] for key in before} == before


@pytest.mark.slow
def test_a_batch_by_hand_finds_a_layout(strategy):
    with strategy.scope():
        _, model = two_layers()
    model.train_on_batch(BATCH, BATCH)
    assert axes_of(model.get_layer("encode").kernel) == axes_of(
        model.optimizer.variables[2]
    )
    assert "encode/kernel" in strategy.found_layout.layouts


def test_each_model_gets_a_layout_of_its_own(strategy):
    with strategy.scope():
        inputs = keras.Input((7,))
        outputs = keras.layers.Dense(9, name="other")(inputs)
        model = keras.Model(inputs, outputs)
        model.compile("sgd", "mse")
    model.fit(np.ones((8, 7)), np.ones((8, 9)), verbose=0)
    assert "up/kernel" not in strategy.found_layout.layouts


def test_a_layout_can_be_given_as_a_dictionary():
    strategy = kerasmgpu.strategy(
        mesh=(1, 3), layout={"up/kernel": (None, "model")}
    )
    with strategy.scope():
        model = built()
    assert axes_of(model.get_layer("up").kernel) == (1,)
    assert axes_of(model.get_layer("down").kernel) is None


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(mesh=(2, 2)), "go together"),
        (dict(layout="auto"), "go together"),
        (dict(mesh=(2, 2), layout="best"), 'layout is "auto", or a dict'),
        (dict(mesh=(2, 2), layout=5), 'layout is "auto", or a dict'),
        (dict(mesh=4, layout="auto"), "sizes of its axes"),
        (
            dict(mesh=(2, 2), layout={"a": ("rows",)}),
            "the axes are batch, model",
        ),
        (dict(mesh=(2, 2), layout="auto", memory="16GB"), "memory must be"),
        (dict(mesh=(2, 2), layout="auto", strict=True), "no keys"),
        (dict(mesh=(64, 64), layout="auto"), "needs 4096 devices"),
        (dict(mesh=(2, 2), layout={}, memory=5), "memory bounds"),
        (dict(mesh=(1, 4), layout="auto", micro_batches=2), "divides the rows"),
        (dict(mesh=(2, 2), layout="auto", shard="weights"), "leave those out"),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        kerasmgpu.strategy(**settings)


def test_what_does_not_fit_is_said_before_training():
    strategy = kerasmgpu.strategy(mesh=(2, 2), layout="auto", memory=100)
    with strategy.scope():
        _, model = two_layers()
    with pytest.raises(InputError, match="would hold at least"):
        model.fit(BATCH, BATCH, verbose=0)
