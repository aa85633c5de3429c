"""The benchmark of checkpoints saves and loads the state in each way."""

import keras
import numpy as np

from benchmarks import checkpoints
from tests.callbacks.checkpoints import runs
from tests.strategies.sharded import mirrored


def test_each_way_loads_what_it_saved(tmp_path):
    with mirrored(3, "weights").scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7)])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    expected = runs.state(model)
    for save, load in checkpoints.ways(model, tmp_path).values():
        save()
        for variable in [*model.variables, *model.optimizer.variables]:
            variable.assign(np.full(variable.shape, 9))
        load()
        for array, other in zip(runs.state(model), expected, strict=True):
            np.testing.assert_array_equal(array, other)
