"""The study of batch sizes: which runs, going on, table and plot."""

import json
import statistics

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import alexnet
from kerasmgpu.recipes.alexnet import study

SMALL = {
    "preset": "batch_study",
    "num_replicas": 1,
    "dataset": "generated",
    "image_size": 8,
    "width": 0.02,
    "batch_sizes": ["400", "1600"],
    "epochs": 2,
    "warmup_epochs": 1,
    "num_seeds": 1,
    "learning_rate": 0.01,
}


def records():
    """Two seeds; the rule "a" at two sizes, "b" at the larger."""
    accuracies = {("a", 8): (0.9, 0.8), ("a", 32): (0.5, 0.7)}
    accuracies["b", 32] = (0.6, 0.6)
    return [
        {"rule": rule, "global_batch_size": size, "accuracy": accuracy}
        for (rule, size), values in accuracies.items()
        for accuracy in values
    ]


def test_mean_and_deviation_over_seeds():
    mean, spread = study.summary(records(), 8, "a")
    assert mean == pytest.approx(0.85)
    assert spread == pytest.approx(statistics.stdev([0.9, 0.8]))
    assert not study.summary(records(), 8, "b")


def test_the_smallest_batch_stands_for_all_rules():
    assert list(study.rows(records(), [8, 32], ["a", "b"])) == [
        ["8", "85.0 ± 7.1", "85.0 ± 7.1"],
        ["32", "60.0 ± 14.1", "60.0 ± 0.0"],
    ]


def test_every_rule_is_trained_for_larger_batches_once():
    kinds = [(size, rule.label) for size, rule in study.cells([8, 32])]
    assert kinds == [
        (8, "unscaled"),
        (32, "unscaled"),
        (32, "sqrt"),
        (32, "linear"),
        (32, "linear, warm-up"),
    ]


@pytest.mark.nightly
def test_a_cut_study_goes_on_with_what_is_left(tmp_path, monkeypatch):
    folder = tmp_path / "study"
    # One rule of each kind: each run takes seconds.
    rules = [r for r in study.RULES if r.label != "linear"]
    monkeypatch.setattr(study, "RULES", rules)
    train = study.train
    trained = []

    def counted(*arguments):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(arguments)
        return train(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(study, "train", counted)
        with pytest.raises(KeyboardInterrupt):
            alexnet.run(output_dir=str(folder), **SMALL)
    finished = alexnet.run(output_dir=str(folder), resume=True, **SMALL)
    assert [record["learning_rate"] for record in finished] == pytest.approx(
        [0.01, 0.01, 0.02, 0.04]
    )
    # 3,200 images: 8 and 2 steps a pass.
    assert [record["steps"] for record in finished] == [16, 4, 4, 4]
    assert all(0 <= record["accuracy"] <= 1 for record in finished)
    assert json.loads((folder / "runs.json").read_text()) == finished
    assert (folder / "accuracy_by_batch.png").exists()
    # Its runs would not all be of one length.
    longer = SMALL | {"epochs": SMALL["epochs"] + 1}
    with pytest.raises(InputError, match="the flags of the first run"):
        alexnet.run(output_dir=str(folder), resume=True, **longer)
    (folder / "runs.json").write_text("[{")
    with pytest.raises(InputError, match="runs.json is damaged"):
        alexnet.run(output_dir=str(folder), resume=True, **SMALL)


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(batch_sizes=["16", "40"]), "multiples .* Received: 16,40"),
        (dict(batch_sizes=["16"]), "two or more .* Received: 16"),
        (dict(batch_sizes=["8", "8000"]), "up to 8000 for 3200"),
        (dict(warmup_epochs=2), "--warmup_epochs=2 of 2"),
        (dict(dataset="synthetic"), "about accuracy"),
        (dict(steps=9, warmup_epochs=0, epochs=None), "leave it out.*steps=9"),
        (dict(global_batch_size=9), "instead of --global_batch_size"),
    ],
)
def test_bad_settings_are_refused(keywords, message):
    with pytest.raises(InputError, match=message):
        alexnet.run(**SMALL | keywords)
