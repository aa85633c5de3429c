"""Batches and outputs of all structures that Keras takes, on 2 replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

needs_optional_data = pytest.mark.skipif(
    tuple(map(int, keras.version().split(".")[:2])) < (3, 12),
    reason="Keras has taken `None` for data since 3.12",
)

rng = np.random.default_rng(5)
X = rng.normal(size=(7, 3)).astype("float32")
Y = rng.normal(size=(7, 1)).astype("float32")


def trained(make, x, strategy=None):
    """Logs of two epochs, predictions and weights of a model of `make()`."""
    keras.utils.set_random_seed(3)
    if strategy is None:
        strategy = tf.distribute.get_strategy()
    with strategy.scope():
        model = make()
        model.compile("sgd", "mse", metrics=["mae"])
    history = model.fit(x, Y, batch_size=4, epochs=2, verbose=0, shuffle=False)
    return [
        *history.history.values(),
        np.asarray(model.predict(x, verbose=0)),
        *model.get_weights(),
    ]


def list_of_one():
    x = keras.Input((3,))
    return keras.Model(x, [keras.layers.Dense(1)(x)])


class Doubled(keras.Model):
    """Made of layers' graph, but called as its own code says."""

    def __init__(self, inputs, outputs, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def call(self, inputs, training=None, mask=None):
        y = super().call(inputs, training=training, mask=mask)
        return [2 * y[0]]


def doubled():
    x = keras.Input((3,))
    y = keras.layers.Dense(1)(x)
    return Doubled(x, [y, y])


class AddIfThere(keras.layers.Layer):
    def call(self, one, other=None):
        return one if other is None else one + other


def with_an_optional_input():
    inputs = [keras.Input((3,)), keras.Input((3,), optional=True)]
    return keras.Model(inputs, keras.layers.Dense(1)(AddIfThere()(*inputs)))


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "make, x",
    [
        (list_of_one, X),
        (doubled, X),
        (with_an_optional_input, [X, X]),
        pytest.param(
            with_an_optional_input, [X, None], marks=needs_optional_data
        ),
    ],
    ids=["list_of_one", "own_call", "optional", "none"],
)
def test_a_model_trains_as_on_one_device(replicas, make, x):
    one, two = trained(make, x), trained(make, x, replicas(2))
    for expected, actual in zip(one, two, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@needs_optional_data
def test_batches_without_some_data_come_in_shares(like_gpus):
    one = trained(with_an_optional_input, [X, None])
    two = trained(with_an_optional_input, [X, None], like_gpus(2))
    for expected, actual in zip(one, two, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@needs_optional_data
def test_a_required_input_that_is_missing_is_told_as_on_one_device(replicas):
    with replicas(2).scope():
        model = list_of_one()
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="not optional"):
        model.fit([None], Y, verbose=0)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_an_execution_of_several_steps_ends_where_the_data_ends(
    replicas, run_eagerly
):
    def steps():
        keras.utils.set_random_seed(3)
        model = list_of_one()
        model.compile(
            "sgd", "mse", steps_per_execution=2, run_eagerly=run_eagerly
        )
        # 3 batches, which only their end tells.
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)
        data = data.filter(lambda x, y: True)
        history = model.fit(data, epochs=2, verbose=0)
        return int(model.optimizer.iterations), history.history["loss"]

    _, losses = steps()
    with replicas(2).scope():
        number, actual = steps()
    assert number == 6
    np.testing.assert_allclose(actual, losses, rtol=1e-5)


def test_evaluating_makes_no_variables_of_the_optimizer(replicas):
    with replicas(2).scope():
        model = list_of_one()
        model.compile("adam", "mse")
    model.evaluate(X, Y, verbose=0)
    assert not model.optimizer.built
    model.fit(X, Y, verbose=0)
    assert model.optimizer.built


class Bank(keras.Model):
    """Keeps the last rows that it saw in a variable."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.rows = tf.Variable(tf.ones([10, 3]), trainable=False)
        self.next = tf.Variable(0, trainable=False)

    def call(self, x):
        near = self.rows.sparse_read(tf.range(3)) + self.rows.gather_nd([[4]])
        return self.dense(x) + tf.reduce_mean(near, 0)

    def train_step(self, data):
        x, _ = data
        places = (self.next + tf.range(tf.shape(x)[0])) % 10
        self.rows.scatter_nd_update(places[:, None], self(x))
        self.next.assign((self.next + tf.shape(x)[0]) % 10)
        return {"loss": tf.reduce_sum(tf.gather(self.rows, [0, 9]))}


class Changed(keras.metrics.Metric):
    """Changes TensorFlow's variable itself, which a step only can do."""

    def __init__(self):
        super().__init__(name="changed")
        self.total = self.add_weight(shape=(4,), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.value.assign_add(tf.fill([4], tf.reduce_sum(y_pred)))

    def result(self):
        return keras.ops.sum(self.total)


def test_variables_have_all_their_methods_in_a_step(replicas):
    def rows():
        model = Bank()
        model.compile()
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False)
        return model.rows.numpy()

    expected, actual = on_both(replicas, rows)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_metric_is_built_as_in_a_step(replicas):
    def results():
        model = list_of_one()
        model.compile("sgd", "mse", metrics=[Changed()])
        history = model.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        return history.history["changed"]

    expected, actual = on_both(replicas, results)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def on_both(replicas, run):
    """What `run()` gives in the scopes of one device and of two replicas."""
    given = []
    for strategy in (tf.distribute.get_strategy(), replicas(2)):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            given.append(run())
    return given
