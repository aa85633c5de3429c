"""Every optimizer of Keras, and what they can be told to do."""

import inspect

import keras
from keras import layers

from benchmarks.exactness.data import integers, sentences
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model

RATES = {"Adadelta": 1.0, "Muon": 0.01}


def classifier(optimizer):
    """An embedding, whose gradient is sparse, under dense layers."""
    result = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(9, 4),
            layers.Flatten(),
            layers.Dense(6, activation="tanh"),
            layers.BatchNormalization(),
            layers.Dense(3),
        ]
    )
    result.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return fitted(result, sentences(9, 9, 5), integers(3, 9))


def register(name, make_optimizer, **settings):
    model("optimizers", name=name, **settings)(
        lambda: classifier(make_optimizer())
    )


def _of_variable(variable):
    """One optimizer for what is embedded, one for all else."""
    if "embed" in variable.path:
        return keras.optimizers.SGD(0.02)
    return keras.optimizers.Adam(0.02)


def made(type):
    if type is keras.optimizers.LossScaleOptimizer:
        return lambda: type(keras.optimizers.SGD(0.02), initial_scale=8.0)
    if type.__name__ == "MultiOptimizer":
        return lambda: type(_of_variable)
    return lambda: type(RATES.get(type.__name__, 0.02))


TYPES = {
    type
    for type in vars(keras.optimizers).values()
    if inspect.isclass(type)
    and issubclass(type, keras.optimizers.Optimizer)
    and type is not keras.optimizers.Optimizer
}

for _type in sorted(TYPES, key=lambda type: type.__name__):
    register(_type.__name__, made(_type))

register(
    "SGD with Nesterov's momentum",
    lambda: keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True),
)
register(
    "RMSprop, centred, with momentum",
    lambda: keras.optimizers.RMSprop(0.02, momentum=0.9, centered=True),
)
register("Adam with AMSGrad", lambda: keras.optimizers.Adam(0.02, amsgrad=True))
register(
    "gradient accumulation",
    lambda: keras.optimizers.Adam(0.02, gradient_accumulation_steps=2),
    in_suite=True,
)
register("clipnorm", lambda: keras.optimizers.SGD(0.1, clipnorm=0.1))
register(
    "global clipnorm", lambda: keras.optimizers.AdamW(0.02, global_clipnorm=0.1)
)
register("clipvalue", lambda: keras.optimizers.SGD(0.1, clipvalue=0.01))
register(
    "moving average that overwrites",
    lambda: keras.optimizers.Adam(
        0.02, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2
    ),
)
register(
    "loss scale around accumulation",
    lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.02, gradient_accumulation_steps=2),
        initial_scale=8.0,
        dynamic_growth_steps=2,
    ),
)
