"""KerasTuner's `distribution_strategy` takes our strategy."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.exactness.data import reals

keras_tuner = pytest.importorskip("keras_tuner")
pytest.importorskip("tensorboard")  # Without it KerasTuner ends its trials.


def build(parameters):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(parameters.Int("units", 2, 8), activation="tanh"),
            layers.Dense(1),
        ]
    )
    rate = parameters.Float("rate", 1e-3, 1e-1, sampling="log")
    model.compile(keras.optimizers.Adam(rate), "mse")
    return model


def search(folder, strategy=None):
    """Parameters and scores of the trials, and what the best one predicts."""
    keras.utils.set_random_seed(5)
    tuner = keras_tuner.RandomSearch(
        build,
        objective="val_loss",
        max_trials=2,
        seed=3,
        directory=folder,
        distribution_strategy=strategy,
    )
    x, y = reals(9, 4), reals(9, 1, seed=1)
    settings = dict(epochs=2, batch_size=4, shuffle=False, verbose=0)
    tuner.search(x, y, validation_data=(x[:5], y[:5]), **settings)
    trials = tuner.oracle.get_best_trials(2)
    (best,) = tuner.get_best_models()
    return (
        [trial.hyperparameters.values for trial in trials],
        [trial.score for trial in trials],
        best.predict(x, verbose=0),
    )


def test_a_search_on_replicas_scores_as_on_one_device(tmp_path, replicas):
    parameters, scores, predictions = search(tmp_path / "one")
    strategy = replicas(3)
    assert search(tmp_path / "many", strategy)[0] == parameters
    _, many_scores, many_predictions = search(tmp_path / "again", strategy)
    np.testing.assert_allclose(many_scores, scores, rtol=1e-5)
    np.testing.assert_allclose(
        many_predictions, predictions, rtol=1e-4, atol=1e-6
    )
