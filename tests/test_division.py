"""Strategies divide variables as `memory` says, for random variables."""

import math
import random

import keras
import pytest

import kerasmgpu
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.traced_step import _records
from kerasmgpu.strategies.layouts import Layouts
from tests.devices import device_names
from tests.strategies.sharded import mirrored

NUM_MODELS = 3
DTYPES = "float32", "float16", "int32", "int8", "uint8", "bool"
SIZES = 1, 2, 3, 4, 6, 7, 12, 100


class Variables(keras.layers.Layer):
    """Variables of given shapes and types."""

    def __init__(self, described):
        super().__init__(name="variables")
        for number, (shape, dtype, trainable) in enumerate(described):
            self.add_weight(
                shape=shape,
                dtype=dtype,
                trainable=trainable,
                initializer="zeros",
                name=f"v{number % 3}",  # Some have equal paths.
            )

    def call(self, x):
        return x


def random_model(seed):
    """A function that makes the same model under any strategy."""
    draw = random.Random(seed)
    described = []
    for _ in range(8):
        shape = tuple(draw.choices(SIZES, k=draw.randrange(4)))
        dtype = draw.choice(DTYPES)
        is_float = "float" in dtype
        described.append((shape, dtype, is_float and draw.random() < 0.7))
    tables = [(draw.choice(SIZES), draw.choice(SIZES)) for _ in range(2)]
    kind = draw.choice(["Adam", "Adafactor", "RMSprop"])
    settings = draw.choice(
        [{}, {"use_ema": True}, {"gradient_accumulation_steps": 2}]
    )

    def make():
        tokens = keras.Input((3,), dtype="int32")
        x = Variables(described)(keras.layers.Embedding(*tables[0])(tokens))
        table = keras.layers.Embedding(*tables[1])
        x = keras.layers.Dense(12)(x)
        x = keras.layers.BatchNormalization()(x)
        model = keras.Model(tokens, [x, table(tokens)])
        table.enable_lora(2)
        optimizer = getattr(keras.optimizers, kind)(**settings)
        model.compile(optimizer)
        optimizer.build(model.trainable_variables)
        return model

    return make


def compare(strategy, setting, make):
    """Asserts that what is held is what is predicted."""
    keras.utils.clear_session()
    with strategy.scope():
        model = make()
    every = {
        id(one): one for one in (*model.variables, *model.optimizer.variables)
    }
    records = [record for _, record in _records(model)]
    assert len(records) >= len(every)
    divided = 0
    for variable, record in zip(every.values(), records):
        held = variable.value
        axes = getattr(held, "shard_axes", ())
        assert setting.axes_to_shard(record) == axes, record
        parts = getattr(held, "parts", None) or [variable]
        size = variable.value.dtype.size
        most = max(math.prod(part.shape) for part in parts) * size
        assert setting.part_bytes(record) == most, record
        divided += bool(axes)
    return divided


def of_function(variable):
    if variable.kind == "slot":
        return True
    return variable.dtype == "float32" and len(variable.shape) - 1


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize(
    "shard", ["optimizer", "weights", "embeddings", of_function]
)
@pytest.mark.parametrize("replicas, groups", [(1, 1), (3, 1), (4, 2)])
def test_memory_divides_as_a_strategy(shard, replicas, groups):
    if shard == of_function:
        shard = lambda one: (  # noqa: E731
            of_function(one) if one.shape else None
        )
    over = replicas // groups if groups > 1 else None
    offload = "optimizer" if replicas == 1 else None
    divided = 0
    for seed in range(NUM_MODELS):
        least = (0, 24, 400)[seed % 3]
        strategy = mirrored(
            replicas, shard, least, shard_over=over, offload=offload
        )
        setting = Setting(
            replicas,
            shard=shard,
            min_shard_bytes=least,
            shard_over=over,
            offload=offload,
        )
        divided += compare(strategy, setting, random_model(seed))
    assert divided or replicas == 1 and shard == "embeddings"


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("sizes", [(1, 3), (2, 2), (4, 1)])
def test_memory_divides_as_a_layout_map(sizes):
    mesh = keras.distribution.DeviceMesh(
        sizes,
        ("batch", "model"),
        [name.lower() for name in device_names(math.prod(sizes))],
    )
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*dense.*kernel"] = (None, "model")
    layouts[".*embeddings"] = ("model", "batch")
    distribution = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )
    setting = Setting(math.prod(sizes), Layouts(distribution))
    divided = 0
    for seed in range(NUM_MODELS):
        strategy = kerasmgpu.strategy(distribution=distribution)
        divided += compare(strategy, setting, random_model(seed))
    assert divided
