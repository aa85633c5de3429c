"""Data that begin where a run goes on are not read again."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.callbacks.checkpoints import runs

STEPS = 6


def batch(step):
    rows = np.random.default_rng(step).permutation(23)[:4]
    return runs.ROWS[rows], runs.TARGETS[rows]


def generator_from(first_step):
    def batches():
        step = first_step
        while True:
            yield batch(step)
            step += 1

    return batches()


def dataset_from(first_step):
    """A data set whose length is known: what is left of three epochs."""
    x, y = zip(*[batch(step) for step in range(first_step, 3 * STEPS)])
    return tf.data.Dataset.from_tensor_slices((np.stack(x), np.stack(y)))


def fit(directory, make_data, break_at=None):
    """Fits what is left; returns the model, its history, the first step."""
    checkpoint = kerasmgpu.callbacks.Checkpoint(
        directory, every_steps=2, data_goes_on=True
    )
    first_step = checkpoint.first_step(STEPS)
    model = runs.build_eager()
    history = runs.train(
        model,
        {"x": make_data(first_step), "steps_per_epoch": STEPS},
        break_at=break_at,
        callbacks=[checkpoint],
    )
    return model, history, first_step


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "make_data, break_at, expected_step",
    [
        (generator_from, (1, 5), 10),
        (dataset_from, (2, 0), 12),
        (generator_from, (0, 1), 0),
        (dataset_from, (1, 5), 10),
    ],
)
def test_data_begin_at_the_step_that_is_told(
    tmp_path, make_data, break_at, expected_step
):
    whole, expected, _ = fit(tmp_path / "whole", make_data)
    fit(tmp_path / "cut", make_data, break_at)
    model, history, first_step = fit(tmp_path / "cut", make_data)
    assert first_step == expected_step
    runs.require_same(model, history, whole, expected)


def test_a_finished_run_is_behind_its_last_step(tmp_path):
    whole, expected, _ = fit(tmp_path, generator_from)
    model, history, first_step = fit(tmp_path, generator_from)
    assert first_step == 3 * STEPS
    runs.require_same(model, history, whole, expected)


@pytest.mark.parametrize("ask", [True, False])
def test_data_that_may_begin_elsewhere_are_refused(tmp_path, ask):
    checkpoint = kerasmgpu.callbacks.Checkpoint(tmp_path, data_goes_on=True)
    data = runs.shuffled() if ask else runs.repeated()
    if ask:
        checkpoint.first_step(STEPS)
    with pytest.raises(kerasmgpu.InputError, match="data_goes_on=True is for"):
        runs.train(runs.build_eager(), data, callbacks=[checkpoint])


def test_epochs_of_another_length_are_refused(tmp_path):
    runs.train(runs.build_eager(), runs.repeated(), tmp_path, epochs=1)
    message = "have 6 steps. Received: steps_per_epoch=5; resume with"
    with pytest.raises(kerasmgpu.InputError, match=message):
        kerasmgpu.callbacks.Checkpoint(tmp_path).first_step(5)
    data = runs.repeated() | {"steps_per_epoch": 5}
    with pytest.raises(kerasmgpu.InputError, match=message):
        runs.train(runs.build_eager(), data, tmp_path, epochs=2)
