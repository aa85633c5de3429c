"""`recompute=` changes what a step keeps in memory, and no result."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

import kerasmgpu
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.step.recompute import Again, Passes
from kerasmgpu.strategies import recomputation
from tests.devices import device_names
from tests.partitioner import oracle_steps

ROWS, LENGTH, WORDS = 12, 6, 20


def transformer():
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, 16, mask_zero=True)(inputs)
    h = layers.LayerNormalization()(x)
    x += layers.MultiHeadAttention(2, 8, dropout=0.1)(h, h)
    h = layers.LayerNormalization()(x)
    h = layers.Dense(64, activation="gelu")(h)
    x += layers.Dropout(0.1)(layers.Dense(16)(h))
    outputs = layers.Dense(WORDS, activation="softmax")(x)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy")
    random = np.random.default_rng(0)
    x = random.integers(0, WORDS, (2, ROWS, LENGTH))
    return model, *x


def image_classifier():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.Activation("swish"),
            layers.Conv2D(8, 3),
            layers.GroupNormalization(4),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse", metrics=["mae"])
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 8, 8, 3)).astype("float32")
    return model, x, x[:, 0, 0, :1]


def weights(build, recompute, num_replicas=2, dtype="float32", **settings):
    """Weights after two epochs, the last batch of each is short."""
    keras.utils.set_random_seed(1)
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        strategy = kerasmgpu.MirroredStrategy(
            device_names(num_replicas), recompute=recompute, **settings
        )
        with strategy.scope():
            model, x, y = build()
    finally:
        keras.config.set_dtype_policy(policy)
    model.fit(x, y, 8, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.fixture
def everything(monkeypatch):
    """Lets `"auto"` free whatever can be freed; lists what it runs again."""
    chosen = []

    def all_of_it(choice, limit):
        while choice.extend():
            pass
        chosen.append([node.type for node in choice.again()])
        return choice.again()

    monkeypatch.setattr(recomputation._Choice, "fitting", all_of_it)
    return chosen


SETTINGS = [
    {},
    {"num_replicas": 1},
    {"num_replicas": 3, "micro_batches": 2},
    {"shard": "weights", "min_shard_bytes": 0},
    {"dtype": "mixed_bfloat16"},
]
QUICK, SLOW = {(1, 0)}, {(0, 2)}
# One model under each of some settings; nightly, both under all.
RUNS = [
    pytest.param(
        build,
        settings,
        id=f"{build.__name__}-{settings}",
        marks=()
        if (first, second) in QUICK
        else [
            pytest.mark.slow if (first, second) in SLOW else pytest.mark.nightly
        ],
    )
    for first, build in enumerate([transformer, image_classifier])
    for second, settings in enumerate(SETTINGS)
]


@pytest.mark.parametrize("build, settings", RUNS)
def test_weights_are_those_without_it(build, settings, everything):
    expected = weights(build, None, **settings)
    for recompute in ["1KiB"] if settings else ["elementwise", "1KiB"]:
        found = weights(build, recompute, **settings)
        for one, other in zip(expected, found):
            np.testing.assert_array_equal(one, other)
    products = {"Conv2D", "MatMul", "BatchMatMulV2", "Einsum"}
    assert products & set(everything[-1])


def large():
    inputs = x = keras.Input((64,))
    for _ in range(6):
        x = layers.Dense(64, activation="gelu")(x)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile("sgd", "mse")
    x = np.ones((4096, 64), "float32")
    return model, x, x[:, :1]


@functools.cache
def program_of(build, **settings):
    """The program for which choices are made while `build`'s model trains."""
    programs = []

    def none(self, program):
        programs.append(program)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomputation.Recomputation, "__call__", none)
        strategy = kerasmgpu.MirroredStrategy(
            device_names(2), recompute="elementwise", **settings
        )
        with strategy.scope():
            model, x, y = build()
        model.fit(x, y, len(x), verbose=0)
    return programs[0]


def choices(build, is_elementwise=False, **settings):
    """A step's choices, none of which is made yet."""
    program = program_of(build, **settings)
    return recomputation._Choice(program, is_elementwise)


def test_elementwise_keeps_a_product_instead_of_all_computed_of_it():
    choice = choices(large, is_elementwise=True)
    before = choice.peak(())
    while choice.extend():
        pass
    again = choice.again()
    assert not any("MatMul" in node.type for node in again)
    # 2,048 rows of 64 numbers: of four tensors for each `gelu`, one is kept.
    one = 2048 * 64 * 4
    assert before - choice.peak(again) > 6 * 2 * one


def test_the_least_that_fits_is_chosen():
    choice = choices(large)
    whole = choice.peak(())
    assert not choice.fitting(whole)
    for part in (0.8, 0.6):
        choice = choices(large)
        again = choice.fitting(int(part * whole))
        assert choice.peak(again) <= part * whole
        numbers = range(choice.num_steps)
        (number,) = [n for n in numbers if choice.again(n + 1) == again]
        assert choice.peak(choice.again(number)) > part * whole


def test_rows_that_replicas_exchange_are_kept():
    """Between workers and in micro-batches, no step could be written."""
    library = oracle_steps.library("Adam", "weights, all, worker 1 of 4")
    again = [
        node.name
        for function in library
        for node in function.node_def
        if node.name.endswith("/again")
    ]
    assert again and not any("/GatherV2/" in name for name in again)


def test_what_does_not_fit_is_said(caplog):
    choice = choices(large)
    again = choice.fitting(1)
    steps = map(choice.again, range(choice.num_steps + 1))
    assert choice.peak(again) == min(map(choice.peak, steps))
    assert "frees what it can" in caplog.text


def test_copies_wait_for_the_gradient_before_them():
    choice = choices(large)
    while choice.extend():
        pass
    program = choice._program
    some = choice.again(choice.num_steps // 2)
    again = Again(frozenset(node.name for node in some))
    graph = program.trace.running_again(again).graph
    passes = Passes(program.trace.graph)
    assert program.trace.running_again(again).original is program.trace
    copies = [node for node in graph.nodes if node.name.endswith("/again")]
    assert copies
    forward = {node.name for node in passes.forward}
    for copy in copies:
        waits = [node.name for node in copy.controls]
        assert waits, copy
        assert forward.isdisjoint(waits)


def test_invalid_values():
    with pytest.raises(InputError, match="Received: recompute='all'"):
        kerasmgpu.MirroredStrategy(device_names(2), recompute="all")


def test_auto_without_a_known_memory_says_so(caplog):
    weights(image_classifier, "auto")
    assert "recompute='auto' recomputes nothing" in caplog.text


def test_xla_is_left_alone(caplog):
    strategy = kerasmgpu.MirroredStrategy(
        device_names(2), recompute="elementwise"
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(1, "gelu")])
        model.compile("sgd", "mse", jit_compile=True)
    model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    assert "has no effect with jit_compile=True" in caplog.text


@pytest.mark.nightly
def test_what_is_on_the_host_or_divided_takes_less_of_a_device():
    whole, divided, on_host = (
        choices(transformer, **settings)._state()
        for settings in (
            {},
            {"shard": "optimizer", "min_shard_bytes": 0},
            {
                "shard": "optimizer",
                "min_shard_bytes": 0,
                "offload": "optimizer",
            },
        )
    )
    slots = 2 * 4 * transformer()[0].count_params()
    assert whole - divided == pytest.approx(slots / 2, rel=0.01)
    assert whole - on_host == pytest.approx(slots, rel=0.01)
