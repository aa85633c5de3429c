"""Tokens of a batch, and other axes than rows, are divided over a mesh, exactly."""

import collections
import contextlib
import logging
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.errors import InputError
from tests.devices import device_names

distribution = keras.distribution
ROWS, TOKENS, UNITS, HEADS, WORDS = 5, 7, 12, 3, 13


def mesh_of(shape):
    devices = [name.lower() for name in device_names(math.prod(shape))]
    names = ("batch", "tokens", "more")[: len(shape)]
    return distribution.DeviceMesh(shape, names, devices)


@contextlib.contextmanager
def on_mesh(shape, kind=distribution.ModelParallel, micro_batches=None, **keys):
    """In this context, the layout map has some keys; slashes are `__`."""
    layouts = distribution.LayoutMap(mesh_of(shape))
    for key, axes in keys.items():
        layouts[key.replace("__", "/")] = axes
    made = kind(layout_map=layouts, batch_dim_name="batch")
    if micro_batches is not None:
        made = kerasmgpu.strategy(
            distribution=made, micro_batches=micro_batches
        )
    with made.scope():
        yield


def attended(x, units=UNITS, **kwargs):
    normal = keras.layers.LayerNormalization()(x)
    attend = keras.layers.MultiHeadAttention(HEADS, units // HEADS, **kwargs)
    x = x + attend(normal, normal, use_causal_mask=True)
    wide = keras.layers.Dense(4 * units, "gelu")(x)
    return x + keras.layers.Dense(units)(wide)


def compiled(inputs, outputs, loss="mse"):
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


def gpt(length=TOKENS):
    """Embeds words, and attends to those before; a loss for each token."""
    keras.utils.set_random_seed(1)
    tokens = keras.Input((length,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(WORDS, UNITS, mask_zero=True)(tokens)
    x = keras.layers.Dense(WORDS, name="head")(attended(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return compiled(tokens, x, loss)


def words():
    x = np.random.default_rng(0).integers(0, WORDS, (2 * ROWS - 2, TOKENS))
    return x, np.roll(x, -1, 1)


def block(tokens=64, units=24, **kwargs):
    keras.utils.set_random_seed(1)
    x = keras.Input((tokens, units), name="tokens")
    return compiled(x, attended(x, units, **kwargs))


def trained(model, data):
    """Losses, predictions and weights; the last batch has fewer rows."""
    losses = model.fit(*data, ROWS, shuffle=False, verbose=0).history["loss"]
    return [losses, model.predict(data[0], verbose=0), *model.get_weights()]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


_known = []


@pytest.fixture
def of_one_device(float64):
    """What one device ends with in float64, trained once."""
    if not _known:
        _known.append(trained(gpt(), words()))
    return _known[0]


@pytest.mark.parametrize("shape", [(1, 3), (2, 2)])
def test_tokens_are_divided_by_a_key_of_their_input(shape, of_one_device):
    """7 tokens over 3 and 2 devices."""
    with on_mesh(shape, tokens__output=("batch", "tokens")):
        found = trained(gpt(), words())
    assert_same(found, of_one_device)


SLOW = pytest.mark.slow


def test_variables_are_divided_along_both_axes_of_the_mesh(of_one_device):
    """Gradients of a table go to the rows' owners, and of weights to both axes."""
    both = {"embedding__embeddings": ("batch", None)}
    both["head__kernel"] = ("tokens", "batch")
    with on_mesh((2, 2), tokens__output=("batch", "tokens"), **both):
        found = trained(gpt(), words())
    assert_same(found, of_one_device)


def test_one_axis_is_divided_along_all_three_of_the_mesh(float64):
    """`[rows * tokens * 1, units]` of the one score per token."""

    def model():
        keras.utils.set_random_seed(1)
        x = keras.Input((TOKENS, UNITS), name="tokens")
        score = keras.layers.Dense(1, name="score")(x)
        weights = keras.ops.softmax(score, 1)
        return compiled(x, keras.ops.sum(weights * x[..., :1], 1))

    data = np.random.default_rng(0).normal(size=(2 * ROWS - 2, TOKENS, UNITS))
    keys = {"tokens__output": ("batch", "tokens"), "score__bias": ("more",)}
    with on_mesh((2, 2, 2), **keys):
        found = trained(model(), (data, data[:, 0, :1]))
    assert_same(found, trained(model(), (data, data[:, 0, :1])))


@pytest.mark.parametrize("shape", [(1, 3), pytest.param((2, 2), marks=SLOW)])
def test_words_are_divided_in_the_loss(shape, of_one_device):
    """13 words over 3 and 2 devices: logits are never gathered."""
    keys = {"head__kernel": (None, "tokens"), "head__bias": ("tokens",)}
    with on_mesh(shape, **keys):
        model = gpt()
        table = kerasmgpu.layout_report(model, words())
        found = trained(model, words())
    assert_same(found, of_one_device)
    kinds = {kind for layer in table.layers for kind in layer.sent}
    assert kinds == {"all_reduce"}


def latents(fused=True):
    """Five learned queries attend to all tokens."""
    keras.utils.set_random_seed(1)
    x = keras.Input((TOKENS, UNITS), name="tokens")
    wide = keras.layers.Dense(UNITS, "gelu")(x)
    one = keras.layers.Dense(5 * UNITS)(keras.ops.ones_like(x[:, 0]))
    queries = keras.layers.Reshape((5, UNITS))(one)
    attend = keras.layers.MultiHeadAttention(
        HEADS, UNITS // HEADS, dropout=0.0 if fused else 0.3, seed=1
    )
    mask = wide[:, None, :, 0] > -0.1
    made = attend(queries, wide, attention_mask=mask)
    return compiled(x, keras.layers.Dense(2)(made))


@pytest.mark.parametrize(
    "fused",
    [True, pytest.param(False, marks=SLOW)],
    ids=["fused", "dropout"],
)
def test_few_queries_gather_no_keys(fused, float64):
    """The output is summed, and of the scores two numbers of each query."""
    random = np.random.default_rng(0)
    data = [random.normal(size=(2 * ROWS, n, m)) for n, m in ((7, 12), (5, 2))]
    expected = trained(latents(fused), data)
    with on_mesh((1, 3), tokens__output=("batch", "tokens", None)):
        model = latents(fused)
        table = kerasmgpu.layout_report(model, data)
        assert_same(trained(model, data), expected)
    kinds = {kind for layer in table.layers for kind in layer.sent}
    assert kinds == {"all_reduce"}


class EveryTensor(distribution.ModelParallel):
    """Lays out the second axis of each tensor of a batch."""

    def get_data_layout(self, data_shape):
        axes = ["batch", "tokens", None][: len(data_shape)]
        return distribution.TensorLayout(axes, self.device_mesh)


def test_a_distribution_lays_out_whole_batches(of_one_device):
    with on_mesh((2, 2), EveryTensor):
        model = gpt()
        found = trained(model, words())
        share = kerasmgpu.layout_report(model, words()).computes
    assert_same(found, of_one_device)
    assert share == pytest.approx(1 / 4, abs=0.01)


def test_micro_batches_attend_to_other_tokens(float64):
    """A sum of a size that is unknown before the batch isn't scattered."""

    def ended():
        keras.utils.set_random_seed(1)
        one = keras.Input((6, UNITS), name="tokens")
        other = keras.Input((4, UNITS), name="others")
        attend = keras.layers.MultiHeadAttention(HEADS, 4)
        x = keras.layers.Dense(2)(one + attend(one, other))
        model = compiled([one, other], x)
        random = np.random.default_rng(0)
        data = [random.normal(size=(7, n, UNITS)) for n in (6, 4)]
        y = random.normal(size=(7, 6, 2))
        model.fit(data, y, batch_size=4, shuffle=False, verbose=0)
        return model.get_weights()

    expected = ended()
    axes = ("batch", "tokens", None)
    keys = {"tokens__output": axes, "others__output": axes}
    with on_mesh((2, 2), micro_batches=2, **keys):
        assert_same(ended(), expected)


def dense():
    """Random rows of tokens as the block takes them."""
    x = np.random.default_rng(0).normal(size=(4, 64, 24)).astype("float32")
    return x, x


def sent_in(table):
    return sum((layer.sent for layer in table.layers), collections.Counter())


@pytest.mark.parametrize("dropout", [0.0, 0.1], ids=["fused", "dropout"])
@pytest.mark.parametrize("n", [2, 3])
def test_each_device_computes_its_tokens_and_sends_keys_or_heads(n, dropout):
    """Over two, keys and values are gathered; over three, heads are divided."""
    with on_mesh((1, n), tokens__output=(None, "tokens", None)):
        model = block(dropout=dropout)
        table = kerasmgpu.layout_report(model, dense())
    assert table.computes == pytest.approx(1 / n, abs=0.01)
    weights = sum(map(np.size, model.get_weights()))
    each = 4 * 64 * 24 * 4 * (n - 1) / n
    attends = 4 * each if n == 2 else 8 * each / n
    sent = sent_in(table)
    assert set(sent) == (
        {"all_gather", "reduce_scatter", "all_reduce"}
        if n == 2
        else {"all_to_all", "all_reduce"}
    )
    # The rest are the loss and its rows.
    expected = attends + 2 * (n - 1) / n * weights * 4
    assert sum(sent.values()) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("heads", [3, 4], ids=["even", "uneven"])
def test_attention_is_divided_by_heads_as_the_program_says(heads, float64):
    """Marks divide queries, keys and values by heads; the rest by tokens."""

    def model():
        keras.utils.set_random_seed(1)
        x = keras.Input((TOKENS, UNITS), name="tokens")
        attend = keras.layers.MultiHeadAttention(heads, 3, name="attend")
        outputs = keras.layers.Dense(2)(x + attend(x, x))
        return compiled(x, outputs)

    random = np.random.default_rng(0)
    data = [random.normal(size=(8, TOKENS, n)) for n in (UNITS, 2)]
    keys = {"tokens__output": ("batch", "tokens")}
    by_heads = {"attend__(query|key|value)__output": (None, None, "tokens")}
    with on_mesh((1, 3), **keys, **by_heads):
        divided = model()
        sent = sent_in(kerasmgpu.layout_report(divided, data))
        found = trained(divided, data)
    assert_same(found, trained(model(), data))
    assert "all_to_all" in sent and "reduce_scatter" not in sent


@pytest.mark.parametrize("tokens", [6, 7], ids=["even", "uneven"])
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
def test_a_cumulative_sum_gathers_totals(tokens, reverse, float64):
    """Of 5 units, each device's total; of 7 tokens over 2 devices all."""

    def model():
        keras.utils.set_random_seed(1)
        x = keras.Input((tokens, 5), name="tokens")
        y = keras.layers.Lambda(
            lambda y: tf.cumsum(y, axis=1, exclusive=True, reverse=reverse)
        )(keras.layers.Dense(5)(x))
        return compiled(x, keras.layers.Dense(2)(y))

    random = np.random.default_rng(0)
    data = [random.normal(size=(8, tokens, n)) for n in (5, 2)]
    with on_mesh((1, 2), tokens__output=(None, "tokens")):
        divided = model()
        sent = sent_in(kerasmgpu.layout_report(divided, data))
        found = trained(divided, data)
    assert_same(found, trained(model(), data))
    if tokens == 6:  # Once forward and once back, half from the other device.
        assert sent["all_gather"] == 2 * 8 * 2 * 5 * 8 / 2


def test_keys_of_grouped_queries_are_sent_once():
    """Of 2 heads of keys for 4 of queries; gathered before they are repeated."""
    n, rows, tokens, size = 4, 4, 64, 6
    with on_mesh((1, n), tokens__output=(None, "tokens", None)):
        keras.utils.set_random_seed(1)
        x = keras.Input((tokens, 24), name="tokens")
        attend = keras.layers.GroupQueryAttention(size, 4, 2)
        model = compiled(x, attend(x, x, use_causal_mask=True))
        table = kerasmgpu.layout_report(model, dense())
    sent = sent_in(table)
    keys_and_values = 2 * (n - 1) / n * rows * tokens * 2 * size * 4
    assert sent["all_gather"] == sent["reduce_scatter"] == keys_and_values
    assert table.computes == pytest.approx(1 / n, abs=0.01)


class Positions(keras.layers.Layer):
    """Adds a table to the tokens."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:])

    def call(self, x):
        return x + self.table


def test_a_table_of_positions_is_updated_from_one_gather(float64):
    """It is whole, with two slots; its gradient is divided, as the tokens are."""

    def model():
        keras.utils.set_random_seed(1)
        x = keras.Input((TOKENS, UNITS), name="tokens")
        made = Positions(name="positions")(x)
        return compiled(x, keras.layers.Dense(2)(made))

    random = np.random.default_rng(0)
    data = [random.normal(size=(2 * ROWS, TOKENS, n)) for n in (UNITS, 2)]
    expected = trained(model(), data)
    with on_mesh((1, 3), tokens__output=("batch", "tokens", None)):
        made = model()
        table = kerasmgpu.layout_report(made, data)
        assert_same(trained(made, data), expected)
    (layer,) = [one for one in table.layers if one.name == "positions"]
    assert layer.sent == {"all_gather": TOKENS * UNITS * 8 * 2 / 3}
    assert table.computes == pytest.approx(1 / 3, abs=0.01)


def test_rows_and_tokens_divide_one_axis_of_a_dense_layer():
    """`[rows * tokens, units]`: nothing but gradients of weights is sent."""
    keras.utils.set_random_seed(0)
    with on_mesh((2, 2), tokens__output=("batch", "tokens", None)):
        x = keras.Input((64, 24), name="tokens")
        model = compiled(x, keras.layers.Dense(24)(x))
        table = kerasmgpu.layout_report(model, dense())
    (layer,) = [one for one in table.layers if one.name.startswith("dense")]
    num_bytes = 4 * sum(map(np.size, model.get_weights()))
    assert layer.sent == {"all_reduce": 2 * num_bytes}  # Along each axis.


SIZES = (5, 7), (5, 5), (5, 1), (3, 9)
"""Rows and tokens of each batch; once they are equal."""


def of_lengths(make):
    """Batches of `SIZES`, made by `make(random, rows, tokens)`."""
    random = np.random.default_rng(0)
    batches = [make(random, *size) for size in SIZES]
    first, *_, last = batches

    def spec(one, other):
        pairs = zip(one.shape, other.shape)
        shape = [n if n == m else None for n, m in pairs]
        return tf.TensorSpec(shape, one.dtype)

    signature = tf.nest.map_structure(spec, first, last)
    return tf.data.Dataset.from_generator(
        lambda: batches, output_signature=signature
    )


def weighted():
    """The words, those before, and a weight of each."""

    def make(random, *size):
        words = random.integers(1, WORDS, size)
        words[:, size[1] // 2 + 1 :] *= random.integers(0, 2, (size[0], 1))
        return words, np.roll(words, 1, 1), random.uniform(size=size)

    return gpt(None), of_lengths(make)


def pooled():
    """The mean of tokens that aren't masked."""
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(WORDS, UNITS, mask_zero=True)(tokens)
    x = keras.layers.Dense(UNITS, "gelu")(x)
    x = keras.layers.GlobalAveragePooling1D()(x)

    def make(random, *size):
        words = random.integers(0, 3, size)
        return words, random.normal(size=(size[0], 2))

    return compiled(tokens, keras.layers.Dense(2)(x)), of_lengths(make)


def of_each(*layers):
    """Layers of tokens; time comes first in one of them."""
    x = tokens = keras.Input((None, UNITS), name="tokens")
    for layer in (*layers, keras.layers.LayerNormalization()):
        x = layer(x)
    x = keras.ops.transpose(x, (1, 0, 2))
    x = keras.layers.Dense(3, "tanh")(x)
    x = keras.ops.transpose(x, (1, 0, 2))

    def make(random, *size):
        units = UNITS, 3
        return tuple(random.normal(size=(*size, n)) for n in units)

    return compiled(tokens, x), of_lengths(make)


def tokenwise():
    dropout = keras.layers.Dropout(0.1, seed=1)
    return of_each(keras.layers.Dense(UNITS, "gelu"), dropout)


def convolved():
    return of_each(keras.layers.Conv1D(UNITS, 3, padding="same"))


def after(make):
    """Losses, predictions and weights behind two epochs."""
    keras.utils.set_random_seed(1)
    model, data = make()
    losses = model.fit(data, epochs=2, verbose=0).history["loss"]
    made = [model.predict_on_batch(batch[0]) for batch in data]
    return [
        losses,
        model.evaluate(data, verbose=0),
        *made,
        *model.get_weights(),
    ]


@pytest.mark.parametrize(
    "make, shapes",
    [
        (weighted, [(2, 2)]),
        pytest.param(weighted, [(1, 2), (1, 3)], marks=SLOW),
        *(
            pytest.param(one, [(1, 2), (1, 3), (2, 2)], marks=SLOW)
            for one in (pooled, tokenwise, convolved)
        ),
    ],
)
def test_lengths_that_vary_are_divided(make, shapes, float64):
    expected = after(make)
    for shape in shapes:
        with on_mesh(shape, tokens__output=("batch", "tokens")):
            assert_same(after(make), expected)


@pytest.mark.slow
def test_lengths_that_vary_are_divided_in_micro_batches(float64):
    expected = after(weighted)
    keys = {"tokens__output": ("batch", "tokens")}
    with on_mesh((2, 2), micro_batches=2, **keys):
        assert_same(after(weighted), expected)


def test_lengths_that_differ_are_named():
    """One device would take a target of one token for each."""
    with on_mesh((1, 2), tokens__output=("batch", "tokens")):
        model, data = tokenwise()
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            model.fit(data.map(lambda x, y: (x, y[:, :1])), verbose=0)
    assert "length of axis 1 of input 0" in str(error.value)


def test_a_length_that_the_step_decides_stays_whole_and_says_so(caplog):
    def ended():
        keras.utils.set_random_seed(1)
        x = keras.Input((None, UNITS))
        cut = keras.layers.Cropping1D(1, name="cut")(x)
        model = compiled(x, keras.layers.Dense(3)(cut))
        data = [np.ones((4, n, m), "float32") for n, m in ((6, UNITS), (4, 3))]
        model.fit(
            tf.data.Dataset.from_generator(
                lambda: [tuple(data)],
                output_signature=(
                    tf.TensorSpec((None, None, UNITS)),
                    tf.TensorSpec((None, None, 3)),
                ),
            ),
            verbose=0,
        )
        return model.get_weights()

    expected = ended()
    with (
        on_mesh((1, 2), cut__output=(None, "tokens", None)),
        caplog.at_level(logging.WARNING, "absl"),
    ):
        found = ended()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    lines = [line for line in caplog.messages if "stays whole" in line]
    assert len(lines) == 1 and "the output of 'cut'" in lines[0]


def test_a_layout_of_too_many_axes_is_an_error_and_a_pattern_is_not_meant():
    with on_mesh((1, 2), tokens__output=(None, "tokens", None)):
        model = gpt()
        with pytest.raises(InputError, match="'tokens' has 3 axes for 2"):
            model.fit(*words(), verbose=0)
    with on_mesh((1, 2), **{".*tokens.*__output": (None, "tokens", None)}):
        gpt().train_on_batch(*words())


def test_a_key_that_matches_no_input_is_named(caplog):
    with (
        on_mesh((1, 2), token__output=(None, "tokens")),
        caplog.at_level(logging.WARNING, "absl"),
    ):
        gpt().fit(*words(), verbose=0)
    assert "'token/output' of the layout map matches no" in caplog.text
    assert "'tokens/output'" in caplog.text


def on_rows():
    """A block with one row, on a mesh that divides rows; for `memory`."""
    return on_tokens((4, 1))


def on_tokens(shape=(1, 4)):
    """The same on one that divides tokens."""
    layouts = distribution.LayoutMap(
        distribution.DeviceMesh(shape, ("batch", "tokens"))
    )
    layouts["tokens/output"] = ("batch", "tokens", None)
    distribution.set_distribution(
        distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
    )
    x = np.zeros((1, 256, 24), "float32")
    return block(tokens=256), (x, x)


@pytest.mark.nightly
def test_each_device_holds_its_part_of_the_activations():
    held = []
    for name in ("on_rows", "on_tokens"):
        (row,) = kerasmgpu.memory.memory(
            f"{__name__}:{name}", replicas=4, show=False, global_batch_size=1
        )["rows"]
        held.append(row["total"] - row["weights"] - row["slots"])
    assert held[1] < 0.3 * held[0]
