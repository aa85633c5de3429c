"""Programs of `keras.distribution` end like one device, on any mesh."""

import contextlib
import functools
import logging
import math
import threading
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.engine import extended
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.costs import Costs
from tests.devices import device_names
from tests.parity.meshes import both_divided

distribution = keras.distribution
ROWS = 11
RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 13, (ROWS, 6))
Y = np.roll(X, -1, 1)


def built():
    """A block of a decoder: 5 heads, 23 units, dropout, tables."""
    keras.utils.set_random_seed(3)
    tokens = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(13, 10, name="table")(tokens)
    normal = keras.layers.LayerNormalization()(x)
    attend = keras.layers.MultiHeadAttention(5, 4, name="attention")
    x = x + attend(normal, normal, use_causal_mask=True)
    wide = keras.layers.Dense(23, "gelu", name="up")(x)
    narrow = keras.layers.Dense(10, name="down")(wide)
    x = x + keras.layers.Dropout(0.2)(narrow)
    model = keras.Model(tokens, keras.layers.Dense(13, name="head")(x))
    model.compile(
        keras.optimizers.AdamW(0.01, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def two_layers():
    """A wide layer, and the one that makes its columns narrow again."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6, 10))
    wide = keras.layers.Dense(23, "gelu", name="up")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(10, name="down")(wide))
    model.compile("adam", "mse")
    return model


ROWS_OF_TWO = np.float32(RANDOM.normal(size=(ROWS, 6, 10)))


def fit_two_layers(model, **keywords):
    x = ROWS_OF_TWO
    model.fit(x, x, batch_size=ROWS, verbose=0, **keywords)


def trained(model):
    """Everything that a training leaves: logs, predictions, weights."""
    history = model.fit(
        X, Y, batch_size=4, epochs=2, verbose=0, validation_data=(X, Y)
    )
    logs = [np.asarray(values) for values in history.history.values()]
    return [*logs, model.predict(X, verbose=0), *model.get_weights()]


def map_of(shape, names=("batch", "model")):
    count = int(np.prod(shape))
    devices = [name.lower() for name in device_names(count)]
    layouts = distribution.LayoutMap(
        distribution.DeviceMesh(shape, names, devices)
    )
    layouts["table/embeddings"] = ("model", None)
    layouts[".*(query|key|value)/kernel"] = (None, "model", None)
    layouts[".*(query|key|value)/bias"] = ("model", None)
    layouts[".*attention_output/kernel"] = ("model", None, None)
    layouts["up/kernel"] = (None, "model")
    layouts["up/bias"] = ("model",)
    layouts["down/kernel"] = ("model", None)
    layouts["up/output"] = ("batch", None, "model")
    return layouts


def both_divide_weights(shape):
    """Weights are divided along the axis of the rows, too: FSDP, and Megatron's."""
    names = ("batch", "model", "third")[: len(shape)]
    layouts = map_of(shape, names)
    for key in ("up/kernel", "down/kernel"):
        del layouts[key]
    layouts["up/kernel"] = (names[-1], "model") if shape[2:] else names
    layouts["down/kernel"] = ("model", "batch")
    layouts["head/kernel"] = ("batch", None)
    return model_parallel_of(layouts)


def model_parallel(shape):
    return model_parallel_of(map_of(shape))


def model_parallel_of(layouts):
    return distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )


def data_parallel(count):
    devices = [name.lower() for name in device_names(count)]
    return distribution.DataParallel(devices=devices)


@functools.cache
def on_one_device():
    return trained(built())


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: model_parallel((2, 2)), id="2x2"),
        *(
            pytest.param(make, id=name, marks=pytest.mark.nightly)
            for name, make in {
                "1x3": lambda: model_parallel((1, 3)),
                "1x8": lambda: model_parallel((1, 8)),
                "4x1": lambda: model_parallel((4, 1)),
                "2x3": lambda: model_parallel((2, 3)),
                "2x3 of both": lambda: both_divide_weights((2, 3)),
                "2x2x2": lambda: both_divide_weights((2, 2, 2)),
                "3 of data": lambda: data_parallel(3),
            }.items()
        ),
    ],
)
def test_a_program_ends_like_one_device(made, float64):
    expected = on_one_device()
    distribution.set_distribution(made())
    model = built()
    for one, other in zip(trained(model), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)


def test_variables_are_divided_as_the_map_says():
    distribution.set_distribution(model_parallel((1, 3)))
    model = built()
    model.optimizer.build(model.trainable_variables)
    axes = {
        variable.path: getattr(variable.value, "shard_axes", (None,))[0]
        for variable in [*model.weights, *model.optimizer.variables]
    }
    assert axes["table/embeddings"] == axes["down/kernel"] == 0
    assert axes["up/kernel"] == axes["attention/query/kernel"] == 1
    assert axes["down/bias"] is axes["head/kernel"] is None
    slots = [axis for path, axis in axes.items() if "up_kernel" in path]
    assert slots == [1, 1]
    parts = model.get_layer("up").kernel.value.parts
    assert [tuple(part.shape) for part in parts] == [(10, 8), (10, 8), (10, 7)]


def test_a_mesh_of_models_gives_each_device_all_rows():
    by_models = kerasmgpu.strategy(distribution=model_parallel((1, 2)))
    by_rows = kerasmgpu.strategy(distribution=model_parallel((2, 1)))
    assert not by_models.divides_rows
    assert by_rows.divides_rows


@pytest.mark.slow
def test_models_of_other_distributions_still_run(caplog):
    before = built()
    distribution.set_distribution(model_parallel((1, 2)))
    one = built()
    distribution.set_distribution(data_parallel(3))
    other = built()
    with caplog.at_level(logging.WARNING, "absl"):
        models = before, one, other
        losses = [m.fit(X, Y, verbose=0).history["loss"] for m in models]
    assert "made before keras.distribution was set" in caplog.text
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-5)
    assert other.distribute_strategy is tf.distribute.get_strategy()
    keras.utils.clear_session()
    assert not tf.distribute.has_strategy()


def test_scopes_end_where_they_began():
    with data_parallel(2).scope():
        with data_parallel(3).scope():
            assert tf.distribute.get_strategy().num_replicas_in_sync == 3
        assert tf.distribute.get_strategy().num_replicas_in_sync == 2
    assert not tf.distribute.has_strategy()


def test_a_cleared_session_has_no_distribution():
    distribution.set_distribution(data_parallel(2))
    keras.utils.clear_session(free_memory=False)
    assert not tf.distribute.has_strategy()


def test_each_thread_has_its_distribution():
    distribution.set_distribution(data_parallel(2))
    found = []

    def in_a_thread():
        found.append(tf.distribute.has_strategy())
        distribution.set_distribution(data_parallel(3))
        found.append(tf.distribute.get_strategy().num_replicas_in_sync)
        distribution.set_distribution(None)
        found.append(tf.distribute.has_strategy())

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert found == [False, 3, False]
    assert tf.distribute.get_strategy().num_replicas_in_sync == 2
    distribution.set_distribution(None)
    assert not tf.distribute.has_strategy()


def test_no_scope_is_missed_behind_a_distribution(monkeypatch):
    """Whoever sets no distribution any more wants one device: no warning."""
    monkeypatch.setattr(extended, "_made", weakref.WeakSet())
    with data_parallel(3).scope():
        pass
    assert extended.most_replicas() == 1
    made = kerasmgpu.strategy(distribution=data_parallel(2))
    assert extended.most_replicas() == made.num_replicas_in_sync == 2


def test_keys_that_match_nothing_are_named_once(caplog):
    keys = {"up/kernel": (None, "model"), "up/kernl": (None, "model")}
    made = mapped((1, 2), {**keys, "down/kern": (None, None)})
    is_whole = made._layout_map["down/kernel"] is None  # Since Keras 3.14.
    distribution.set_distribution(made)
    model = two_layers()
    with caplog.at_level(logging.WARNING, "absl"):
        fit_two_layers(model, epochs=2)
    lines = [line for line in caplog.messages if "the key" in line]
    assert len(lines) == 1 + is_whole
    assert "'up/kernl'" in lines[0] and "'up/kernel'" in lines[0]
    assert "matches whole paths" not in lines[0]
    if is_whole:
        assert "matches whole paths: use '.*down/kern.*'" in lines[1]


def test_with_strict_keys_that_match_nothing_are_an_error():
    keys = {"up/kernel": (None, "model")}
    strict = mapped((1, 2), keys)
    with kerasmgpu.strategy(distribution=strict, strict=True).scope():
        fit_two_layers(two_layers())
    strict = mapped((1, 2), {**keys, "up/kernl": (None, "model")})
    with kerasmgpu.strategy(distribution=strict, strict=True).scope():
        model = two_layers()
    for _ in range(2):  # Each time that it would train.
        with pytest.raises(InputError, match="'up/kernl' .*\n.*strict=True"):
            fit_two_layers(model)


@pytest.mark.parametrize(
    "shape, micro_batches",
    [
        pytest.param((2, 2), 2, marks=pytest.mark.nightly),
        pytest.param((2, 3), 3, marks=pytest.mark.nightly),
        pytest.param((2, 2, 2), 2, marks=pytest.mark.slow),
    ],
)
def test_micro_batches_of_several_axes(shape, micro_batches, float64):
    """All variables are divided along rows and columns; rows are odd."""
    strategy = kerasmgpu.strategy(
        distribution=both_divided(shape), micro_batches=micro_batches
    )
    assert len(strategy.replicas.mesh.axes) == len(shape)
    many = trained_with_norms(strategy)
    for one, other in zip(norms_on_one_device(), many, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)


@functools.cache
def norms_on_one_device():
    return trained_with_norms(None)


def trained_with_norms(strategy):
    """Losses and float64 weights of a model with sums along both axes."""
    layers = keras.layers
    with strategy.scope() if strategy else contextlib.nullcontext():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((4,), dtype="int32")
        x = layers.Embedding(7, 6)(inputs)
        x = layers.MultiHeadAttention(2, 4)(x, x) + x
        x = layers.BatchNormalization()(layers.Flatten()(x))
        x = layers.Dense(10, "relu", kernel_regularizer="l2")(x)
        x = layers.LayerNormalization()(layers.Dropout(0.2, seed=1)(x))
        model = keras.Model(inputs, layers.Dense(3)(x))
        model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), "mse")
    numbers = np.random.default_rng(0)
    x, y = numbers.integers(0, 7, (19, 4)), numbers.normal(size=(19, 3))
    history = model.fit(x, y, batch_size=11, epochs=2, verbose=0)
    return [*history.history["loss"], *model.get_weights()]


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("sets", [False, True], ids=["strategy", "set"])
def test_outputs_are_laid_out(sets):
    """Whole columns of a wide layer are gathered: 23 of each row, forward."""
    weights, sent = [], []
    for axes in (("batch", None, "model"), ("batch", None, None)):
        layouts = {"up/kernel": (None, "model"), "down/kernel": ("model", None)}
        layouts["up/output"] = axes
        made = mapped((2, 2), layouts)
        if sets:
            distribution.set_distribution(made)
            model = two_layers()
        else:
            with kerasmgpu.strategy(distribution=made).scope():
                model = two_layers()
        report = kerasmgpu.layout_report(model, (ROWS_OF_TWO, ROWS_OF_TWO))
        fit_two_layers(model)
        weights.append(model.get_weights())
        sent.append(report.along["model"])
        distribution.set_distribution(None)
    for found in weights:
        for one, many in zip(fitted_weights(), found, strict=True):
            np.testing.assert_allclose(many, one, atol=1e-5)
    gathered = ROWS * 6 * 23 * 4 // 2 // 2
    assert sent[1] - sent[0] > 0.9 * gathered


@pytest.mark.parametrize("is_nested", [False, True])
def test_outputs_of_layers_without_variables(is_nested):
    inner = [
        keras.layers.Reshape((2, 3), name="shaped"),
        keras.layers.Flatten(),
    ]
    path = "model/inner/shaped" if is_nested else "model/shaped"
    made = mapped(
        (2, 2),
        {f"{path}/output": ("batch", None, None), ".*kernel": ("model", None)},
    )
    with kerasmgpu.strategy(distribution=made, strict=True).scope():
        if is_nested:
            inner = [keras.Sequential(inner, name="inner")]
        layers = [keras.Input((6,)), *inner, keras.layers.Dense(4)]
        model = keras.Sequential(layers, name="model")
        model.compile("sgd", "mse")
    model.fit(np.float32(X), np.zeros((ROWS, 4)), verbose=0)


def test_outputs_keep_their_masks():
    """The loss counts each row's words in front of the padding only."""
    made = mapped((2, 2), {".*/output": ("batch", None, None)})
    x, losses = np.where(np.arange(6) < X % 5 + 1, X, 0), []
    for strategy in (None, kerasmgpu.strategy(distribution=made)):
        with strategy.scope() if strategy else contextlib.nullcontext():
            keras.utils.set_random_seed(0)
            inner = keras.Sequential(
                [keras.layers.Embedding(13, 4, mask_zero=True)]
            )
            outer = [keras.Input((6,)), inner, keras.layers.Dense(13)]
            model = keras.Sequential(outer)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss)
        history = model.fit(x, Y, batch_size=4, shuffle=False, verbose=0)
        losses.append(history.history["loss"][0])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


@functools.cache
def fitted_weights():
    """Those of one device after an epoch."""
    model = two_layers()
    fit_two_layers(model)
    return model.get_weights()


def mapped(shape, layouts):
    """`ModelParallel` of a mesh of rows and models, with a dictionary's map."""
    devices = [name.lower() for name in device_names(math.prod(shape))]
    mesh = distribution.DeviceMesh(shape, ("batch", "model"), devices)
    made = distribution.LayoutMap(mesh)
    for key, axes in layouts.items():
        made[key] = axes
    return distribution.ModelParallel(layout_map=made, batch_dim_name="batch")


def test_variables_are_divided_along_two_axes():
    distribution.set_distribution(both_divide_weights((2, 2)))
    model = built()
    model.optimizer.build(model.trainable_variables)
    kernel = model.get_layer("up").kernel.value
    shapes = [tuple(part.shape) for part in kernel.parts]
    assert shapes == [(5, 12), (5, 11), (5, 12), (5, 11)]
    whole = kernel.numpy()
    np.testing.assert_array_equal(kernel.parts[3].numpy(), whole[5:, 12:])
    changed = np.float32(whole + RANDOM.normal(size=whole.shape))
    kernel.assign(changed)
    np.testing.assert_array_equal(kernel.parts[1].numpy(), changed[:5, 12:])
    bias = model.get_layer("up").bias.value
    assert [tuple(part.shape) for part in bias.parts] == 2 * [(12,), (11,)]
    slots = [v for v in model.optimizer.variables if "up_kernel" in v.path]
    assert {slot.value.shard_axes for slot in slots} == {kernel.shard_axes}


def test_rows_are_divided_along_the_axis_that_is_named():
    """Whichever it is: the mesh is numbered so that it is the first."""
    devices = np.array(device_names(6)).reshape(2, 3)
    mesh = distribution.DeviceMesh((2, 3), ("model", "rows"), devices.ravel())
    layouts = distribution.LayoutMap(mesh)
    layouts["up/kernel"] = (None, "model")
    strategy = kerasmgpu.strategy(
        distribution=distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="rows"
        )
    )
    mesh = strategy.replicas.mesh
    assert mesh.axes == (3, 2)
    names = [name.rpartition("device:")[2] for name in mesh.devices]
    assert names == [name.upper() for name in devices.T.ravel()]


class NoData(distribution.DataParallel):
    def get_data_layout(self, shape):
        return None


def test_what_can_not_be_is_refused():
    given = model_parallel((1, 2))
    with pytest.raises(InputError, match="names the devices .*leave those out"):
        kerasmgpu.strategy(distribution=given, shard="weights")
    with pytest.raises(InputError, match="has all rows on each device"):
        kerasmgpu.strategy(distribution=given, micro_batches=2)
    with pytest.raises(InputError, match="strict=True without a distribution"):
        kerasmgpu.strategy(num_replicas=1, strict=True)
    twice = distribution.DataParallel(devices=["cpu:0", "cpu:0"])
    with pytest.raises(InputError, match="different devices"):
        distribution.set_distribution(twice)
    with pytest.raises(InputError, match="must be a .* Received: 'fsdp'"):
        distribution.set_distribution("fsdp")
    with pytest.raises(
        InputError, match="'CPU:99'; visible .*make_logical_cpu"
    ):
        distribution.set_distribution(
            distribution.DataParallel(devices=["cpu:99"])
        )
    with pytest.raises(InputError, match="layout must be .* layout=None"):
        distribution.set_distribution(NoData(devices=["cpu:0"]))
    assert distribution.distribution() is None
    with kerasmgpu.strategy(num_replicas=1).scope():
        with pytest.raises(InputError, match="in the scope of a strategy"):
            distribution.set_distribution(given)


def test_megatrons_layout_sends_what_its_authors_count():
    """Four all-reduces of the activations per layer, and the embedding's."""
    distribution.set_distribution(model_parallel((1, 3)))
    model = built()
    model.fit(X, Y, batch_size=ROWS, verbose=0)
    (steps,) = model.train_function.programs
    sent = Costs(steps.written().lowered, ROWS).by_purpose()
    activations = ROWS * 6 * 10 * 4
    assert {one["kind"] for one in sent} == {"all_reduce"}
    total = sum(one["bytes"] for one in sent)
    assert total == pytest.approx(5 * activations, rel=0.05)
    report = kerasmgpu.layout_report(model, (X, Y))
    assert [
        layer.name
        for layer in report.layers
        if layer.combined["all_reduce"] >= activations
    ] == [
        "table",
        "attention/value",
        "attention/attention_output",
        "up",
        "down",
    ]


@pytest.mark.slow
def test_with_two_axes_each_gradient_is_summed_where_it_is():
    """Activations in the rows of a line; gradients along rows, in their parts."""
    distribution.set_distribution(model_parallel((2, 3)))
    model = built()
    model.fit(X, Y, batch_size=ROWS, verbose=0)
    (steps,) = model.train_function.programs
    sent = sum(
        one["bytes"]
        for one in Costs(steps.written().lowered, ROWS).by_purpose()
    )
    activations = ROWS * 6 * 10 * 4 / 2
    divided = "embeddings", "query", "key", "value", "up/", "down/k", "output/k"
    gradients = sum(
        math.prod(weight.shape)
        * 4
        / (3 if any(one in weight.path for one in divided) else 1)
        for weight in model.trainable_weights
    )
    assert sent == pytest.approx(5 * activations + gradients, rel=0.05)


def test_each_device_computes_its_part_of_a_heads_gradient():
    """Sorting needs whole logits; the head's gradient is a product of them."""
    mesh = distribution.DeviceMesh(
        (1, 2), ("batch", "model"), [n.lower() for n in device_names(2)]
    )
    layouts = distribution.LayoutMap(mesh)
    layouts["head/kernel"] = (None, "model")
    distribution.set_distribution(
        distribution.ModelParallel(layout_map=layouts)
    )
    inputs = keras.Input((40,))
    model = keras.Model(inputs, keras.layers.Dense(130, name="head")(inputs))
    model.compile("adam", lambda y, made: keras.ops.sort(made)[:, 0] - y)
    batch = np.ones((32, 40)), np.ones((32,))
    kerasmgpu.layout_report(model, batch)
    (program,) = model.train_function.programs
    (plans,) = program.plans
    products = [n for n in program.trace.graph.nodes if n.type == "MatMul"]
    assert len(products) == 2
    assert all(plans.nodes[node].is_local for node in products)


def low_rank():
    """A kernel and the product of two others, as in LoRA: 21 by 8, rank 4."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((21,))
    layer = keras.layers.Dense(8, "gelu", name="first")
    outputs = keras.layers.Dense(21, name="last")(layer(inputs))
    layer.enable_lora(4)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("kernel", [("batch", "model"), ("model", "batch")])
@pytest.mark.parametrize("rows", [8, 20])
def test_gradients_are_scattered_along_both_axes_of_a_mesh(kernel, rows):
    """Those of one level along different axes; one is also divided twice."""
    x = RANDOM.normal(size=(20, 21)).astype("float32")
    mesh = distribution.DeviceMesh(
        (2, 2), ("batch", "model"), [n.lower() for n in device_names(4)]
    )
    layouts = distribution.LayoutMap(mesh)
    layouts["first/.*kernel.*"] = ("batch", "model")
    layouts["last/kernel"] = kernel
    layouts["last/bias"] = kernel[1:]
    ends = []
    for given in (None, distribution.ModelParallel(layout_map=layouts)):
        distribution.set_distribution(given)
        model = low_rank()
        model.fit(x, x, batch_size=rows, epochs=2, shuffle=False, verbose=0)
        ends.append(model.get_weights())
    for own, one in zip(*ends, strict=True):
        np.testing.assert_allclose(own, one, atol=1e-5)
