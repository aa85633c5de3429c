"""Training steps of small Keras models that the oracle writes.

Random programs have no optimizer, so nothing is offloaded or recomputed in them.
"""

import dataclasses
import functools
import random

PLACES = {
    "memory": (4, 1, "CPU"),
    "gpus": (4, 1, "GPU"),
    "xla": (4, 1, "GPU"),
    "worker 0 of 2": (8, 2, "GPU"),
    "worker 1 of 2": (8, 2, "GPU"),
    "worker 1 of 4": (8, 4, "GPU"),
}
"""Replicas, workers and their devices."""

DIVIDED = {
    "whole": {},
    "optimizer": {"shard": "optimizer"},
    "weights": {"shard": "weights"},
    "embeddings": {"shard": "embeddings"},
    "groups of 2": {"shard": "weights", "shard_over": 2},
    "groups of 4": {"shard": "weights", "shard_over": 4},
    "mesh": {},
}
"""What is divided; on a mesh, variables along random axes."""

MORE = {
    "plain": {},
    "offload": {"offload": "optimizer"},
    "recompute": {"recompute": "elementwise"},
    "micro-batches": {"micro_batches": 2},
}
MORE["all"] = MORE["offload"] | MORE["recompute"] | MORE["micro-batches"]

_PLACES_OF_ONE = ("gpus", "worker 1 of 2")
"""Places of settings of `MORE` that have one keyword."""

_MODELS_OF_A_KEY = 2


def keys():
    """Returns `"divided, more, place"` of all settings."""
    return [
        f"{divided}, {more}, {place}"
        for divided in DIVIDED
        for more in MORE
        for place, (count, *_) in PLACES.items()
        if (place in _PLACES_OF_ONE or more in ("plain", "all"))
        # Without slots that are divided none are offloaded.
        and not (divided == "whole" and "offload" in MORE[more])
        # All replicas are no group.
        and DIVIDED[divided].get("shard_over", 0) < count
    ]


def chosen():
    """Returns a pair of each model and a key that it is written under.

    Models take turns: every key is one of several.
    """
    return [
        (name, key)
        for number, key in enumerate(keys())
        for turn, name in enumerate(MODELS)
        if (turn - number) % (len(MODELS) // _MODELS_OF_A_KEY) == 0
    ]


def library(name, key):
    """The `FunctionDef`s of a model's step, the step last.

    Args:
        name: One of `MODELS`.
        key: One of `keys`.
    """
    from kerasmgpu.memory.state_bytes import Setting
    from kerasmgpu.memory.written_step import WrittenStep
    from tests.strategies.sharded import RandomAxes

    divided, more, place = key.split(", ")
    count, workers, device = PLACES[place]
    is_xla = place == "xla"
    layouts = None
    if divided == "mesh":
        layouts = RandomAxes(
            (2, count // 2), lambda variable: random.Random(variable.path)
        )
    setting = Setting(
        num_replicas=count,
        layouts=layouts,
        num_workers=workers,
        device_type=device,
        min_shard_bytes=0,
        **DIVIDED[divided],
        **MORE[more],
    )
    step = dataclasses.replace(_traced(name), jit_compile=is_xla)
    worker = int(place.split()[1]) if workers > 1 else 0
    return list(WrittenStep(step, setting, worker, is_xla).library.values())


@functools.cache
def _traced(name):
    from tests.prove import tables

    return tables.traced(MODELS[name])


def _language_model(blocks, optimizer, **settings):
    def make():
        import keras

        from tests.memory.job_models import language_model

        made = keras.optimizers.get(
            {"class_name": optimizer, "config": settings}
        )
        return language_model(blocks, 16, 40, 6, 24, made)

    return make


def _residual():
    import keras
    from keras import layers

    from tests.prove.steps import fitted

    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, 2, "same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.ReLU()(x + layers.BatchNormalization()(layers.Conv2D(8, 1)(x)))
    x = layers.GlobalAveragePooling2D()(x)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model = keras.Model(inputs, layers.Dense(1)(x))
    return fitted(model, optimizer=optimizer)


def _recurrent():
    import keras
    from keras import layers

    from tests.prove.steps import fitted

    stack = [layers.LSTM(8, use_cudnn=False), layers.Dense(1)]
    model = keras.Sequential([keras.Input((5, 6)), *stack])
    return fitted(model, optimizer="rmsprop")


MODELS = {
    "transformer": _language_model(1, "adamw", global_clipnorm=1.0),
    "ResNet": _residual,
    "LSTM": _recurrent,
    "Adam": _language_model(0, "adam"),
    "Adafactor": _language_model(0, "adafactor"),
    "accumulated": _language_model(0, "lion", gradient_accumulation_steps=2),
}
"""Functions that return a model and its data."""
