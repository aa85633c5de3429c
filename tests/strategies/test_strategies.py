import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.errors import InputError
from tests.devices import device_names


def dense_model(optimizer="sgd"):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def rows(count):
    values = np.arange(count * 3, dtype="float32").reshape(count, 3) / count
    return values, values.sum(1, keepdims=True)


def test_one_word_is_all_that_changes():
    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        model = dense_model()
    history = model.fit(*rows(9), batch_size=4, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


def test_one_replica_is_plain_keras():
    plain = dense_model()
    with kerasmgpu.strategy(num_replicas=1).scope():
        model = dense_model()
    model.set_weights(plain.get_weights())
    x, y = rows(10)
    for each in (plain, model):
        each.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_array_equal(
        plain.get_weights()[0], model.get_weights()[0]
    )


def test_copies_of_variables_share_a_name(replicas):
    strategy = replicas(3)
    with strategy.scope():
        variables = [tf.Variable(1.0, name=name) for name in "ab"]
    for variable, name in zip(variables, "ab"):
        copies = strategy.experimental_local_results(variable)
        assert variable.name == f"{name}:0"
        assert [copy.name for copy in copies] == [
            f"{name}:0",
            "replica_1:0",
            "replica_2:0",
        ]


def test_shares_keep_the_order_and_differ_by_at_most_one_row(replicas):
    dataset = tf.data.Dataset.range(10).batch(7)
    distributed = replicas(4).experimental_distribute_dataset(dataset)
    batches = [
        [share.numpy().tolist() for share in batch.values]
        for batch in distributed
    ]
    assert batches == [
        [[0, 1], [2, 3], [4, 5], [6]],
        [[7], [8], [9], []],
    ]


def test_predict_on_batch_gives_one_row_per_row(replicas):
    with replicas(4).scope():
        model = dense_model()
    x, _ = rows(6)
    np.testing.assert_allclose(
        model.predict_on_batch(x), model.predict(x, verbose=0), rtol=1e-6
    )


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_train_and_test_on_batch_follow_one_device(replicas, run_eagerly):
    plain = dense_model()
    with replicas(3).scope():
        model = dense_model()
    model.run_eagerly = run_eagerly
    model.set_weights(plain.get_weights())
    x, y = rows(7)
    for each in (plain, model):
        each.losses_seen = [each.train_on_batch(x, y), each.test_on_batch(x, y)]
    np.testing.assert_allclose(plain.losses_seen, model.losses_seen, rtol=1e-5)


def test_custom_loops_stay_tensorflows_own(replicas):
    strategy = replicas(2)
    per_replica = strategy.run(lambda: tf.constant(3.0))
    assert [v.numpy() for v in per_replica.values] == [3.0, 3.0]


def test_a_scope_after_a_trace_that_failed_in_a_loop(replicas):
    """TensorFlow's own scopes fail then, and do nothing the second time."""
    strategy = replicas(2)
    with pytest.raises(ValueError, match="reshape"):
        tf.function(lambda x: tf.map_fn(lambda r: tf.reshape(r, [7]), x))(
            tf.ones((4, 3))
        )
    with strategy.scope():
        assert len(tf.Variable(1.0).values) == 2


def test_models_outside_our_scope_are_not_touched(replicas):
    replicas(2)
    x, y = rows(8)
    model = dense_model()
    loss = model.evaluate(x, y, verbose=0)
    expected = np.mean((model.predict(x, verbose=0) - y) ** 2)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_optimizer_made_outside_the_scope_is_named(replicas):
    optimizer = keras.optimizers.SGD(name="too_early")
    with replicas(2).scope():
        model = dense_model(optimizer)
    with pytest.raises(InputError, match="'too_early'.*strategy.scope"):
        model.fit(*rows(8), verbose=0)


def test_model_made_outside_the_scope_is_named(replicas):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with replicas(2).scope():
        model.compile("sgd", "mse")
    with pytest.raises(InputError, match="The model 'sequential.*builds it"):
        model.fit(*rows(8), verbose=0)


def test_model_made_outside_and_fitted_inside_is_named(replicas):
    model = dense_model()
    with pytest.raises(InputError, match="The model 'sequential.*builds it"):
        with replicas(2).scope():
            model.fit(*rows(8), verbose=0)


def test_layer_made_outside_the_scope_is_named(replicas):
    layer = keras.layers.Dense(1, name="pretrained")
    layer.build((None, 3))
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), layer])
        model.compile("sgd", "mse")
    with pytest.raises(InputError, match="The layer 'pretrained'"):
        model.fit(*rows(8), verbose=0)


def test_metric_made_outside_the_scope_is_named(replicas):
    metric = keras.metrics.MeanSquaredError(name="early")
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[metric])
    with pytest.raises(InputError, match="The metric 'early'"):
        model.fit(*rows(8), verbose=0)


def test_compile_outside_the_scope_is_named(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match="model.compile"):
        model.fit(*rows(8), verbose=0)


def test_compile_without_optimizer_outside_the_scope_is_named(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=["mae"])
    with pytest.raises(InputError, match="The metric .*model.compile"):
        model.evaluate(*rows(8), verbose=0)


@pytest.mark.slow
def test_a_model_trained_on_four_goes_on_elsewhere(replicas, tmp_path):
    """Saved on 4 replicas, continued on 2, on 1 and on plain Keras."""
    x, y = rows(22)
    fit = dict(batch_size=8, shuffle=False, verbose=0)

    def fresh():
        return dense_model(keras.optimizers.Adam(0.1))

    unmoved = fresh()
    start = unmoved.get_weights()
    unmoved.fit(x, y, epochs=4, **fit)

    with replicas(4).scope():
        model = fresh()
    model.set_weights(start)
    model.fit(x, y, **fit)
    path = tmp_path / "model.keras"
    for count in (2, 1):
        model.save(path)
        with replicas(count).scope():
            model = keras.models.load_model(path)
        model.fit(x, y, **fit)
    model.save(path)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    # Last in a process in which kerasmgpu can't be imported.
    code = (
        "import sys; sys.modules['kerasmgpu'] = None\n"
        "import keras, numpy\n"
        "rows = numpy.load('rows.npz')\n"
        "model = keras.models.load_model('model.keras')\n"
        "model.fit(rows['x'], rows['y'], batch_size=8, shuffle=False, verbose=0)\n"
        "numpy.savez('moved.npz', *model.get_weights())\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    moved = np.load(tmp_path / "moved.npz")
    for index, stayed in enumerate(unmoved.get_weights()):
        np.testing.assert_allclose(
            moved[f"arr_{index}"], stayed, rtol=1e-5, atol=1e-6
        )


@pytest.mark.slow
def test_a_data_set_that_the_user_distributed(replicas):
    strategy = replicas(3)
    plain = dense_model()
    with strategy.scope():
        model = dense_model()
    model.set_weights(plain.get_weights())
    dataset = tf.data.Dataset.from_tensor_slices(rows(11)).batch(4)
    distributed = strategy.experimental_distribute_dataset(dataset)
    losses = [
        each.fit(data, epochs=2, verbose=0).history["loss"]
        for each, data in ((plain, dataset), (model, distributed))
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_scalar_output_is_the_mean_over_the_rows(replicas):
    class Mean(keras.Model):
        def call(self, inputs):
            return keras.ops.mean(inputs)

    with replicas(4).scope():
        model = Mean()
    x, _ = rows(6)
    np.testing.assert_allclose(model.predict(x, verbose=0), x.mean(), rtol=1e-6)


class AlwaysDrops(keras.layers.Layer):
    """Dropout that is also on in `predict`, so that its masks can be seen."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        return keras.random.dropout(inputs, 0.5, seed=self.seed_generator)


def masks_drawn():
    strategy = kerasmgpu.strategy(num_replicas=4)
    with strategy.scope():
        model = keras.Sequential([keras.Input((16,)), AlwaysDrops()])
    ones = np.ones((24, 16), "float32")
    return [model.predict(ones, verbose=0) for _ in range(2)]


def test_every_row_draws_its_own_values_and_a_seed_repeats_them():
    first, second = masks_drawn()
    assert len({row.tobytes() for row in first}) == 24
    assert not np.array_equal(first, second)
    again, _ = masks_drawn()
    np.testing.assert_array_equal(first, again)


class Halves(keras.layers.BatchNormalization):
    """Normalises the first rows and the others apart, as two replicas do."""

    def call(self, inputs, training=None):
        if not training:
            return super().call(inputs, training=False)
        rows = tf.shape(inputs)[0]
        parts = [inputs[: (rows + 1) // 2], inputs[(rows + 1) // 2 :]]
        moments = [tf.nn.moments(part, 0) for part in parts]
        shares = [tf.shape(part)[0] / rows for part in parts]
        for variable, which in (
            (self.moving_mean, 0),
            (self.moving_variance, 1),
        ):
            mean = sum(
                moment[which] * tf.cast(share, tf.float32)
                for moment, share in zip(moments, shares)
            )
            variable.assign(
                variable * self.momentum + mean * (1 - self.momentum)
            )
        normalised = [
            (part - mean) * tf.math.rsqrt(variance + self.epsilon)
            for part, (mean, variance) in zip(parts, moments)
        ]
        return tf.concat(normalised, 0) * self.gamma + self.beta


def test_batch_normalisation_per_replica_is_that_of_the_shares():
    x, y = rows(14)
    results = []
    for layer in (Halves, keras.layers.BatchNormalization):
        strategy = kerasmgpu.strategy(
            num_replicas=1 if layer is Halves else 2, batch_norm="per_replica"
        )
        with strategy.scope():
            keras.utils.set_random_seed(1)
            model = keras.Sequential(
                [
                    keras.Input((3,)),
                    keras.layers.Dense(4),
                    layer(),
                    keras.layers.Dense(1),
                ]
            )
            model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(x, y, batch_size=5, shuffle=False, epochs=2, verbose=0)
        results.append(model.get_weights())
    for one, two in zip(*results):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


def test_batch_normalisation_per_replica_saves_what_it_predicts_with():
    strategy = kerasmgpu.strategy(num_replicas=2, batch_norm="per_replica")
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.BatchNormalization()]
        )
        model.compile("sgd", "mse")
    x, _ = rows(12)
    model.fit(x, x, batch_size=5, shuffle=False, epochs=2, verbose=0)
    for variable in model.layers[0].non_trainable_variables:
        copies = [copy.numpy() for copy in variable.value.values]
        np.testing.assert_array_equal(copies[0], copies[1])
    plain = keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(
        model.predict(x, verbose=0), plain.predict(x, verbose=0), rtol=1e-5
    )


@pytest.mark.parametrize(
    "name", ["hierarchical_copy", "reduction_to_one_device", "auto"]
)
def test_every_all_reduce_that_runs_here_sums(name):
    strategy = kerasmgpu.strategy(num_replicas=2, all_reduce=name, num_packs=2)
    with strategy.scope():
        model = dense_model()
    plain = dense_model()
    plain.set_weights(model.get_weights())
    x, y = rows(6)
    for each in (plain, model):
        each.fit(x, y, batch_size=6, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        plain.get_weights()[0], model.get_weights()[0], rtol=1e-5
    )


def test_nccl_is_refused_where_it_is_missing():
    with pytest.raises(InputError, match="NCCL needs NVIDIA GPUs"):
        kerasmgpu.strategy(num_replicas=2, all_reduce="nccl")


@pytest.mark.parametrize(
    "settings",
    [
        {"all_reduce": "ring"},
        {"num_packs": 0},
        {"num_packs": True},
        {"batch_norm": "none"},
        {"xla_cache": 3.5},
        {"xla_cache": 0},
        {"xla_cache": b"folder"},
        {"xla_cache": ""},
    ],
)
def test_unknown_settings_name_what_is_allowed(settings):
    (name,) = settings
    with pytest.raises(InputError, match=name):
        kerasmgpu.strategy(num_replicas=1, **settings)


def test_one_cpu_that_nobody_asked_for_is_told(monkeypatch, caplog):
    monkeypatch.setattr(
        kerasmgpu.strategies.device_choice, "choose", lambda *_, **__: ["CPU:0"]
    )
    kerasmgpu.MirroredStrategy()
    kerasmgpu.strategy()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and len(set(lines)) == 1
    assert "kerasmgpu.strategy(virtual_devices=2)" in lines[0]


@pytest.mark.parametrize("asked", [{"num_replicas": 1}, {"devices": ["CPU:0"]}])
def test_one_cpu_that_was_asked_for_is_not_told(asked, caplog):
    kerasmgpu.strategy(**asked)
    assert not caplog.records
