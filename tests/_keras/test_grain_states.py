"""A run on `grain` data resumes where its iterator was."""

import logging

import numpy as np
import pytest

import kerasmgpu
from tests.callbacks.checkpoints import runs

grain = pytest.importorskip("grain")


class Rows:
    """A source of the rows' indices."""

    def __len__(self):
        return len(runs.ROWS)

    def __getitem__(self, index):
        return index

    def __repr__(self):
        return "Rows()"  # A `DataLoader` compares it with the saved run's.


class Pairs(grain.transforms.Map):
    def map(self, index):
        return runs.ROWS[index], runs.TARGETS[index]


def loader(source, num_epochs):
    return grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(
            len(source), shuffle=True, seed=3, num_epochs=num_epochs
        ),
        operations=[Pairs(), grain.transforms.Batch(4, drop_remainder=False)],
    )


def by_index(source, num_epochs):
    rows = grain.MapDataset.source(source).seed(3).shuffle().repeat(num_epochs)
    return rows.map(Pairs()).batch(4)


def in_order(source, num_epochs):
    rows = grain.MapDataset.source(source).seed(3).shuffle().repeat(num_epochs)
    return rows.to_iter_dataset().filter(lambda i: i != 5).map(Pairs()).batch(4)


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize(
    "make_data, steps_per_epoch",
    [
        (loader, 5),
        (by_index, None),
        (in_order, 5),
        (loader, None),
        (by_index, 5),
        (in_order, None),
    ],
)
def test_a_run_goes_on_with_the_next_batch(
    tmp_path, caplog, make_data, steps_per_epoch
):
    num_epochs = 1 if steps_per_epoch is None else 3

    def train(**keywords):
        model = runs.build_eager()
        data = make_data(Rows(), num_epochs)
        arguments = {"x": data, "steps_per_epoch": steps_per_epoch}
        return model, runs.train(model, arguments, **keywords)

    whole, expected = train()
    train(directory=tmp_path, break_at=(2, 3), every_steps=1)
    with caplog.at_level(logging.INFO):
        model, history = train(directory=tmp_path)
    runs.require_same(model, history, whole, expected)
    assert "batches again" not in caplog.text


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("make_data", [in_order, loader])
def test_replicas_end_as_without_the_break(tmp_path, replicas, make_data):
    def train(**keywords):
        model = runs.build(replicas(3), jit_compile=False)
        data = make_data(Rows(), 1)
        return model, runs.train(model, {"x": data}, epochs=2, **keywords)

    whole, expected = train()
    train(directory=tmp_path, break_at=(1, 4), every_steps=3)
    model, history = train(directory=tmp_path)
    runs.require_same(model, history, whole, expected)


def test_another_loader_is_refused(tmp_path):
    def train(source, **keywords):
        data = {"x": loader(source, 1)}
        runs.train(runs.build_eager(), data, tmp_path, **keywords)

    train(Rows(), break_at=(0, 3), every_steps=1)
    message = "Call fit with the saved run's data"
    with pytest.raises(kerasmgpu.InputError, match=message):
        train(np.arange(23))


def test_a_state_of_another_version_is_not_read(tmp_path, monkeypatch, caplog):
    from kerasmgpu._keras import grain_states

    def train(**keywords):
        model = runs.build_eager()
        data = {"x": in_order(Rows(), 1)}
        return model, runs.train(model, data, epochs=1, **keywords)

    whole, expected = train()
    with monkeypatch.context() as patch:
        patch.setattr(grain_states, "_version", lambda: "0.0.1")
        train(directory=tmp_path, break_at=(0, 3), every_steps=1)
    with caplog.at_level(logging.INFO, logger="absl"):
        model, history = train(directory=tmp_path)
    runs.require_same(model, history, whole, expected)
    assert "read 3 batches again" in caplog.text
