"""The private names of Keras that our strategies rely on.

A Keras release that renames, removes or re-types one of them fails here first.
"""

import inspect

import keras
import pytest
import tensorflow as tf
from keras.src.layers.normalization.batch_normalization import (
    BatchNormalization,
)
from keras.src.optimizers.base_optimizer import BaseOptimizer

from kerasmgpu._keras import steps
from kerasmgpu._keras.versions import TensorFlowTrainer
from tests.engine.test_seams import assert_is_dispatched, seams_of


@pytest.fixture(autouse=True)
def installed(replicas):
    replicas(2)


@pytest.mark.parametrize(
    "owner, name",
    seams_of("keras.src."),
    ids=lambda part: getattr(part, "__name__", part),
)
def test_seam_is_dispatched_and_keeps_its_original(owner, name):
    assert_is_dispatched(owner, name)


@pytest.mark.parametrize(
    "function, parameters",
    [
        (BaseOptimizer.apply, ["self", "grads", "trainable_variables"]),
        (BatchNormalization._moments, ["self", "inputs", "mask"]),
        (
            TensorFlowTrainer._maybe_symbolic_build,
            ["self", "iterator", "data_batch"],
        ),
        (TensorFlowTrainer._make_function, ["self", "step_function"]),
        (TensorFlowTrainer.make_predict_function, ["self", "force"]),
    ],
)
def test_signatures_are_those_that_dispatchers_pass_on(function, parameters):
    assert list(inspect.signature(function).parameters) == parameters


def test_fit_calls_what_was_put_in_place_of_its_function(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(tf.ones((4, 3)), tf.ones((4, 1)), verbose=0)
    model.evaluate(tf.ones((4, 3)), tf.ones((4, 1)), verbose=0)
    model.predict(tf.ones((4, 3)), verbose=0)
    assert isinstance(model.train_function, steps.Steps)
    assert isinstance(model.test_function, steps.Steps)
    assert isinstance(model.predict_function, steps.PredictSteps)
    # Traced once, whatever the number of replicas.
    (program,) = model.train_function.programs
    kinds = {str(kind) for kind in program.plans[0].kinds.values()}
    assert {"sharded on axis 0", "partial sum", "replicated"} <= kinds
