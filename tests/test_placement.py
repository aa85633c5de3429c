"""Layers, gradients and updates on the device that they were put on."""

import collections
import json
import subprocess
import sys
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu import placement
from kerasmgpu.errors import InputError
from kerasmgpu.placement import copies, xplane
from tests.devices import device_name


def devices_of(variables):
    return {variable.value.device[-5:] for variable in variables}


def two_towers(place=lambda layer, device: layer):
    """Embedding with masks, mean over them, batch normalisation, sharing."""
    keras.utils.set_random_seed(0)
    shared = place(keras.layers.Dense(3, "tanh", name="shared"), device_name(1))
    normalised = place(
        keras.layers.BatchNormalization(name="norm"), device_name(2)
    )
    text = keras.Input((4,), dtype="int32", name="text")
    features = keras.Input((5,), name="features")
    words = place(
        keras.layers.Embedding(9, 5, mask_zero=True, name="words"),
        device_name(3),
    )(text)
    pooled = keras.layers.GlobalAveragePooling1D(name="pooled")
    read = place(pooled, device_name(3))(words)
    both = keras.layers.Concatenate()([shared(read), shared(features)])
    return keras.Model([text, features], normalised(both))


def batch(rows=16):
    rng = np.random.default_rng(0)
    text = rng.integers(0, 9, (rows, 4)).astype("int32")
    features = rng.normal(size=(rows, 5)).astype("float32")
    return [text, features], rng.normal(size=(rows, 6)).astype("float32")


def train(model, optimizer=None, **keywords):
    x, y = batch()
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", **keywords)
    fitted = model.fit(x, y, batch_size=6, epochs=2, shuffle=False, verbose=0)
    return fitted.history["loss"]


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_placed_model_trains_as_the_same_model_without(run_eagerly):
    plain, placed = two_towers(), two_towers(placement.on_device)
    placed.set_weights(plain.get_weights())
    expected = train(plain, run_eagerly=run_eagerly, jit_compile=False)
    optimizer = placement.place_updates(keras.optimizers.Adam(0.01))
    losses = train(placed, optimizer, run_eagerly=run_eagerly)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    x, y = batch()
    for weight, other in zip(placed.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(weight, other, atol=1e-4)
    np.testing.assert_allclose(
        placed.evaluate(x, y, verbose=0),
        plain.evaluate(x, y, verbose=0),
        rtol=1e-4,
    )


def test_weights_slots_and_names_are_where_they_should_be():
    model = two_towers(placement.on_device)
    assert not model.jit_compile
    for name, device in (("shared", device_name(1)), ("norm", device_name(2))):
        assert devices_of(model.get_layer(name).variables) == {device}
    assert model.get_layer("words").layer.name == "words"
    assert len(model.get_layer("shared").variables) == 2
    train(model, placement.place_updates(keras.optimizers.Adam()))
    slots = {
        v.path.split("/")[1]: v.value.device[-5:]
        for v in model.optimizer.variables
    }
    assert slots["shared_kernel_momentum"] == device_name(1)
    assert slots["words_embeddings_velocity"] == device_name(3)


def test_forward_and_gradient_operations_are_traced_on_the_device():
    model = keras.Sequential(
        [
            keras.Input((4,)),
            placement.on_device(keras.layers.Dense(3, "tanh"), device_name(1)),
            placement.on_device(
                keras.layers.Dense(2, "sigmoid"), device_name(2)
            ),
        ]
    )

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        return tape.gradient(loss, model.trainable_variables)

    graph = gradients.get_concrete_function(tf.ones((5, 4))).graph
    placed = collections.defaultdict(set)
    for operation in graph.get_operations():
        placed[operation.type].add(operation.device[-5:])
    assert placed["Tanh"] == placed["TanhGrad"] == {device_name(1)}
    assert placed["Sigmoid"] == placed["SigmoidGrad"] == {device_name(2)}
    assert (
        placed["MatMul"]
        == placed["BiasAddGrad"]
        == {device_name(1), device_name(2)}
    )


def test_a_step_copies_activations_and_their_gradients_and_no_weights():
    inputs = keras.Input((4,))
    hidden = placement.on_device(keras.layers.Dense(3, "tanh"), device_name(1))(
        inputs
    )
    outputs = placement.on_device(keras.layers.Dense(2), device_name(2))(hidden)
    model = keras.Model(inputs, outputs)
    optimizer = placement.place_updates(keras.optimizers.SGD(0.1, momentum=0.9))
    model.compile(optimizer, "mse")
    data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 2))))

    def fit(steps):
        model.fit(
            data.repeat(), steps_per_epoch=steps, verbose=0, shuffle=False
        )

    fit(1)
    with tempfile.TemporaryDirectory() as folder:
        measured = placement.measure_copies(lambda: fit(10), folder)
        events = list(xplane.read(folder))
    tensors = collections.Counter()
    for event in events:
        parts = event.details.get("key", "").split(";")
        # The rest are the learning rate, a number, and waits for the end.
        name = event.details.get("from", "ReadVariableOp")
        if "ReadVariableOp" not in name and "ControlEdges" not in name:
            tensors[parts[0][-5:], parts[2][-5:]] += 1
    assert tensors == {
        (device_name(0), device_name(1)): 10,  # input
        (device_name(1), device_name(2)): 10,  # activations
        (device_name(2), device_name(0)): 10,  # output, for the loss
        (device_name(0), device_name(2)): 10,  # gradient of the loss
        (device_name(2), device_name(1)): 10,  # gradient of the activations
    }
    # 4 weights take the learning rate each, and 2 devices are waited for.
    assert measured.copies.calls == 10 * (5 + 4 + 2)
    assert not measured.on_gpus
    assert sum(o.share for o in measured.operations) == pytest.approx(1.0)
    assert "TanhGrad" in [operation.name for operation in measured.operations]


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("setting", ["clipnorm", "global_clipnorm"])
def test_clipped_gradients_are_what_is_applied(setting):
    weights = []
    for place in (lambda optimizer: optimizer, placement.place_updates):
        model = two_towers()
        train(model, place(keras.optimizers.SGD(0.1, **{setting: 1e-3})))
        weights.append(model.get_weights())
    for placed, plain in zip(*weights):
        np.testing.assert_allclose(placed, plain, atol=1e-7)


def test_saved_and_loaded_with_device_weights_and_optimizer(tmp_path):
    model = two_towers(placement.on_device)
    train(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("shared").device == device_name(1)
    assert devices_of(loaded.get_layer("words").variables) == {device_name(3)}
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)
    x, y = batch()
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )
    np.testing.assert_allclose(
        loaded.fit(x, y, verbose=0, shuffle=False).history["loss"],
        model.fit(x, y, verbose=0, shuffle=False).history["loss"],
        rtol=1e-6,
    )


LOADS = """
import sys, warnings, keras, numpy
from kerasmgpu import placement
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = keras.models.load_model(sys.argv[1])
    print(float(model.predict(numpy.ones((1, 4)), verbose=0)[0, 0]))
for warning in caught:
    if "belongs" in str(warning.message):
        print(warning.message)
print(model.get_config()["layers"][1]["config"]["device"])
"""


@pytest.mark.slow
def test_a_machine_without_the_device_loads_the_model_and_says_so(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            placement.on_device(
                keras.layers.Dense(1, name="far"), device_name(5)
            ),
        ]
    )
    model.save(tmp_path / "model.keras")
    # A process of its own has one CPU device.
    lines = subprocess.run(
        [sys.executable, "-c", LOADS, str(tmp_path / "model.keras")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    expected = model.predict(np.ones((1, 4)), verbose=0)[0, 0]
    assert float(lines[0]) == pytest.approx(float(expected))
    assert lines[1:] == [
        "Layer 'far' belongs on CPU:5, which this machine doesn't have; it runs "
        "on CPU:0 instead.",
        device_name(5),
    ]


def test_without_placement_a_model_needs_no_kerasmgpu():
    model = two_towers(placement.on_device)
    bare = placement.without(model)
    x, _ = batch()
    np.testing.assert_allclose(
        bare.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6
    )
    assert "kerasmgpu" not in json.dumps(bare.get_config())
    assert "kerasmgpu" in json.dumps(model.get_config())


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = placement.on_device(keras.layers.Dense(3), device_name(1))
        self.outputs_layer = placement.on_device(
            keras.layers.Dense(1), device_name(2)
        )

    def call(self, inputs, training=None):
        return self.outputs_layer(self.hidden(inputs))


def test_subclassed_models_make_their_weights_there_in_fit():
    model = Subclassed()
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    assert devices_of(model.hidden.variables) == {device_name(1)}
    assert devices_of(model.outputs_layer.variables) == {device_name(2)}
    with pytest.raises(InputError, match="Only functional and sequential"):
        placement.without(model)


def nested_with_masks():
    text = keras.Input((4,), dtype="int32")
    words = keras.layers.Embedding(9, 5, mask_zero=True)(text)
    return keras.Model(text, words, name="inner")


def test_a_nested_model_is_moved_and_hands_on_its_masks():
    inner = nested_with_masks()
    placed = placement.on_device(inner, device_name(1))
    assert devices_of(placed.variables) == {device_name(1)}
    assert placed.name == "inner"
    read = keras.layers.LSTM(3)
    models = []
    for layer in (inner, placed):
        text = keras.Input((4,), dtype="int32")
        models.append(keras.Model(text, read(layer(text))))
    (text, _), _ = batch()
    plain, moved = (model.predict(text, verbose=0) for model in models)
    np.testing.assert_array_equal(plain, moved)


def test_training_and_keyword_arguments_arrive():
    dropout = placement.on_device(keras.layers.Dropout(0.5), device_name(1))
    ones = np.ones((10, 100), "float32")
    assert float(tf.reduce_mean(dropout(ones))) == 1
    dropped = np.mean(dropout(ones, training=True) == 0)
    assert 0.4 < dropped < 0.6
    attention = keras.layers.MultiHeadAttention(2, 3)
    query, value = np.ones((2, 5, 4), "f"), np.ones((2, 7, 4), "f")
    placed = placement.on_device(attention, device_name(1))
    output, scores = placed(
        query=query, value=value, return_attention_scores=True
    )
    assert output.shape == (2, 5, 4) and scores.shape == (2, 2, 5, 7)
    assert devices_of(placed.variables) == {device_name(1)}


def test_gradients_of_gradients_and_persistent_tapes():
    layer = placement.on_device(keras.layers.Dense(1, "tanh"), device_name(1))
    x = tf.constant([[0.1, 0.2]])
    layer(x)

    def derivatives(call):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = call(x)
                z = 2 * y
            first, twice = tape.gradient(y, x), tape.gradient(z, x)
        return first, twice, outer.gradient(first, x)

    for placed, plain in zip(derivatives(layer), derivatives(layer.layer)):
        np.testing.assert_allclose(placed, plain, rtol=1e-6)
        assert np.any(plain)


def test_losses_of_a_placed_layer_are_those_of_the_model():
    layer = keras.layers.Dense(
        3, kernel_regularizer="l2", activity_regularizer="l1"
    )
    x = np.ones((2, 4), "float32")
    figures = []
    for place in (placement.on_device, lambda layer, device: layer):
        inputs = keras.Input((4,))
        model = keras.Model(inputs, place(layer, device_name(1))(inputs))
        with tf.GradientTape() as tape:
            model(x)
            losses = tf.stack(model.losses)
        gradient = tape.gradient(losses, layer.kernel.value)
        figures.append((sorted(losses.numpy()), gradient))
    assert len(figures[0][0]) == 2
    for placed, plain in zip(*figures):
        np.testing.assert_allclose(placed, plain, rtol=1e-6)


def test_what_cannot_be_placed_is_told(replicas):
    dense = keras.layers.Dense
    with pytest.raises(InputError, match="'GPU:7'; visible devices: CPU:0, "):
        placement.on_device(dense(1), "GPU:7")
    with pytest.raises(InputError, match="takes a Keras layer.*'dense'"):
        placement.on_device("dense", device_name(1))
    placed = placement.on_device(dense(1, name="one"), device_name(1))
    with pytest.raises(InputError, match="'one' is on CPU:1 already"):
        placement.on_device(placed, device_name(2))
    with replicas(2).scope():
        with pytest.raises(InputError, match="a strategy places a copy"):
            placement.on_device(dense(1), device_name(1))
        with pytest.raises(InputError, match="a strategy places a copy"):
            placed(np.ones((1, 2)))


def test_one_layer_lives_on_one_device():
    layer = keras.layers.Dense(2)
    first, second = (
        placement.on_device(layer, device)
        for device in (device_name(1), device_name(2))
    )
    first(np.ones((1, 3)))
    with pytest.raises(InputError, match="not on CPU:2: it was first called"):
        second(np.ones((1, 3)))


def test_xla_is_not_used_even_when_it_is_asked_for():
    model = two_towers(placement.on_device)
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("sgd", "mse", jit_compile=True)
    assert not model.jit_compile


def event(plane, line, name, seconds, **details):
    return xplane.Event(plane, line, name, 0.0, seconds, details)


def test_gpu_copies_are_those_between_gpus():
    gpu = "/device:GPU:0"
    measured = copies.summarise(
        [
            event(gpu, "Stream #20(MemcpyP2P)", "MemcpyP2P", 2e-3),
            event("/device:GPU:1", "Stream #20", "MemcpyP2P", 1e-3),
            event(gpu, "Stream #14(Compute)", "volta_sgemm", 5e-3),
            event(gpu, "Stream #15", "MemcpyH2D", 2e-3),
            # The same time again, in the form of steps.
            event(gpu, "Steps", "1", 10.0),
            event("/host:CPU", "thread", "model/dense/MatMul:MatMul", 9.0),
        ]
    )
    assert measured.on_gpus
    assert (measured.copies.calls, measured.copies.share) == (2, 0.3)
    assert [o.name for o in measured.operations] == [
        "volta_sgemm",
        "copy between devices",
        "MemcpyH2D",
    ]


def test_sends_within_a_device_are_no_copies_between_devices():
    def send(source, target):
        key = f"/device:CPU:{source};1;/device:CPU:{target};tensor;0:0"
        return event("/host:CPU", "thread", "x/_1:_Send", 1e-3, key=key)

    measured = copies.summarise(
        [
            send(0, 1),
            send(0, 0),
            event("/host:CPU", "thread", "x/y:Mul", 2e-3),
            event("/host:CPU", "thread", "call:StatefulPartitionedCall", 9.0),
            event("/host:CPU", "thread", "ThreadpoolListener::Record", 9.0),
        ]
    )
    assert (measured.copies.calls, measured.copies.seconds) == (1, 1e-3)
    assert measured.copies.share == 0.25
    assert not measured.on_gpus


def test_a_folder_without_a_profile_is_told(tmp_path):
    with pytest.raises(InputError, match=r"no profile \(\*.xplane.pb\) in "):
        list(xplane.read(tmp_path))
