"""Weights and what layers give move by as much as asked for, and no more."""

import keras
import numpy as np

from kerasmgpu.verify.nudges import nudge_outputs, nudged_weights

SIZE = 2.0**-10


def model():
    keras.utils.set_random_seed(0)
    made = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, "relu", bias_initializer="ones"),
            keras.layers.BatchNormalization(),
        ]
    )
    return made, np.full((5, 3), 0.1, "float32")


def test_weights_move_by_the_size_and_state_does_not():
    made, _ = model()
    moved = nudged_weights(made, made.get_weights(), SIZE, 0)
    for variable, new in zip(made.variables, moved):
        apart = np.abs(new - variable.numpy())
        wanted = SIZE if variable.trainable else 0.0
        np.testing.assert_allclose(
            apart, wanted * np.abs(variable.numpy()), rtol=1e-3
        )


def test_equal_rows_are_no_longer_equal():
    made, x = model()
    before = made(x).numpy()
    assert np.ptp(before, axis=0).max() == 0
    nudge_outputs(made.layers, SIZE, 0)
    after, again = (made(x).numpy() for _ in range(2))
    assert (np.ptp(after, axis=0) > 0).any()
    np.testing.assert_array_equal(after, again)
    np.testing.assert_allclose(after, before, rtol=2.5 * SIZE)


def test_another_seed_moves_otherwise():
    nudged = []
    for seed in range(2):
        made, x = model()
        nudge_outputs(made.layers, SIZE, seed)
        nudged.append(made(x).numpy())
    assert (nudged[0] != nudged[1]).any()


def test_integers_stay_as_they_are():
    """They are exact, and may be numbers of rows."""
    made = keras.Sequential([keras.Input((3,)), keras.layers.ReLU()])
    nudge_outputs(made.layers, SIZE, 0)
    given = np.array([[-1.5, 3.0, 0.25]], "float32")
    ((zero, three, quarter),) = made(given).numpy()
    assert (zero, three) == (0, 3) and abs(quarter - 0.25) == SIZE / 4


def test_a_mask_goes_on():
    layers = keras.layers
    made = keras.Sequential(
        [keras.Input((4,)), layers.Embedding(9, 3, mask_zero=True)]
    )
    made.add(layers.GlobalAveragePooling1D())
    rows = np.array([[3, 0, 0, 0]])
    before = made(rows).numpy()
    nudge_outputs(made.layers, SIZE, 0)
    after = made(rows).numpy()
    np.testing.assert_allclose(after, before, rtol=2.5 * SIZE)
