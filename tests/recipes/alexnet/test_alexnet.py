"""The recipe from its keywords to its result."""

import pathlib
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import alexnet
from kerasmgpu.recipes.alexnet import figures, image_flags, optimizers
from kerasmgpu.recipes.shared import training_plan
from kerasmgpu.recipes.shared.training_plan import TrainingPlan

PRESETS = pathlib.Path(alexnet.__file__).parent / "presets"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A dark and a light class, eight images each, JPEG and PNG."""
    root = tmp_path_factory.mktemp("tree")
    for k in range(16):
        folder = root / ("dark" if k < 8 else "light")
        folder.mkdir(exist_ok=True)
        pixels = np.full((20, 24, 3), 10 * k + 40 * (k >= 8), np.uint8)
        if k % 2:
            content = tf.io.encode_jpeg(pixels)
        else:
            content = tf.io.encode_png(pixels)
        (folder / f"{k}.{'jpg' if k % 2 else 'png'}").write_bytes(
            content.numpy()
        )
    return root


def run(tree, **keywords):
    return alexnet.run(
        **{
            "num_replicas": 1,
            "data_path": str(tree),
            "image_size": 8,
            "width": 0.02,
            "global_batch_size": 5,
            "epochs": None if "steps" in keywords else 2,
            **keywords,
        }
    )


# 13 rows of 16: batches of 5, 5 and 3, which two replicas share unevenly. 3
# steps a pass and 2 an epoch: a run goes on in the middle of a pass.
LENGTH = dict(steps=6, steps_per_epoch=2, optimizer="lars")


@pytest.mark.nightly
def test_two_replicas_ended_in_an_epoch_go_on_to_the_end_of_one(
    tree, tmp_path, preempt_after
):
    one = run(tree, **LENGTH)
    keywords = dict(num_replicas=2, output_dir=str(tmp_path / "run"), **LENGTH)
    preempt_after(3, run, tree, **keywords)
    # Order, cuts and mirroring follow from the step.
    two = run(tree, resume=True, **keywords)
    assert len(two.devices) == 2
    assert two.loss == pytest.approx(one.loss, abs=1e-5)
    assert two.figures["accuracy"] == one.figures["accuracy"]


@pytest.fixture(scope="module")
def learned(tree, tmp_path_factory):
    """A longer run, its input compared: its result and its folder."""
    folder = tmp_path_factory.mktemp("learned")
    result = run(
        tree,
        epochs=8,
        width=0.1,
        learning_rate=0.02,
        augment=False,
        compare_input=True,
        output_dir=str(folder),
    )
    return result, folder


@pytest.mark.slow
def test_a_folder_of_images_is_learned(learned):
    result, folder = learned
    assert result.figures["train_accuracy"] > 0.9
    model = keras.models.load_model(folder / "model.keras")
    pixels = np.stack([np.full((8, 8, 3), level) for level in (0, 190)])
    assert np.argmax(model(pixels.astype("uint8")), 1).tolist() == [0, 1]


@pytest.mark.slow
def test_the_input_is_compared_with_computing_alone(learned):
    result, _ = learned
    found = result.figures
    assert found["real_over_synthetic"] == pytest.approx(
        result.examples_per_second / found["synthetic_examples_per_second"]
    )
    assert found["limit"] == figures.verdict(
        result.examples_per_second, found["synthetic_examples_per_second"]
    )
    assert 0 <= found["input_wait_share"] <= 1


def test_synthetic_images_have_no_accuracy(tree):
    result = run(
        tree,
        data_path=None,
        dataset="synthetic",
        num_classes=4,
        image_size=16,
        steps=3,
    )
    assert result.data.startswith("synthetic")
    assert "accuracy" not in result.figures
    assert np.isfinite(result.loss)


@pytest.mark.parametrize(
    "real, alone, expected",
    [
        (95.0, 100.0, "compute-bound: 95% of the examples/s without input"),
        (61.0, 100.0, "input-bound: 61% of the examples/s without input"),
    ],
)
def test_verdict(real, alone, expected):
    assert figures.verdict(real, alone) == expected


def test_images_left_out_are_in_the_table():
    history = [{"accuracy": 0.5, "input_wait_share": None}]
    left_out = types.SimpleNamespace(
        names={"b.jpg", "a.jpg"}, where_all_are="all are in run/left_out.txt"
    )
    found = figures.of(history, left_out)
    assert found["left_out"] == (
        "images left out",
        "2, such as a.jpg; all are in run/left_out.txt",
    )


def settings(**chosen):
    from kerasmgpu.recipes.shared import shared_flags

    return shared_flags.settings(alexnet.define_flags, chosen)


@pytest.mark.parametrize(
    "step, expected",
    [
        # From one replica's 0.1 to 0.4 in 10 steps of 90; then a tenth after
        # 30, 60 and 80.
        (0, 0.1),
        (5, 0.25),
        (29, 0.4),
        (30, 0.04),
        (60, 0.004),
        (80, 0.0004),
    ],
)
def test_the_stairs_of_goyal(step, expected):
    plan = TrainingPlan(4, 256, 0.4, 9, 10, warmup_steps=10)
    rate = optimizers.learning_rate(
        settings(learning_rate=0.1, learning_rate_decay="stairs"), plan
    )
    assert float(rate(step)) == pytest.approx(expected, rel=1e-5)


def test_a_rate_that_is_not_scaled_warms_up_from_zero():
    plan = TrainingPlan(1, 256, 0.1, 9, 10, warmup_steps=10)
    rate = optimizers.learning_rate(
        settings(learning_rate=0.1, learning_rate_decay="none"), plan
    )
    assert float(rate(0)) == 0.0
    assert float(rate(5)) == pytest.approx(0.05)


def test_epochs_of_warm_up_are_passes():
    # 4 replicas of 8: 32 rows a step, 4 steps a pass of 100 rows.
    plan = training_plan.make(
        settings(batch_size_per_replica=8, warmup_epochs=2, epochs=5), 4, 100
    )
    assert plan.warmup_steps == 8


def test_lamb_decays_kernels_only():
    plan = TrainingPlan(1, 8, 0.1, 9, 10, 0)
    model = alexnet.build_model(
        settings(optimizer="lamb", width=0.02, weight_decay=0.5),
        (8, 8, 1),
        3,
        plan,
    )
    assert model.losses == []
    model.optimizer.build(model.trainable_variables)
    before = [v.numpy() for v in model.trainable_variables]
    model.optimizer.apply([np.zeros_like(value) for value in before])
    for value, variable in zip(before, model.trainable_variables):
        # Decoupled: times 1 - learning rate · weight decay.
        factor = 0.95 if value.ndim > 1 else 1.0
        np.testing.assert_allclose(variable, factor * value, rtol=1e-4)


def test_a_preset_trains(tree, flags_of):
    keywords = flags_of(alexnet, PRESETS / "alexnet_imagenet.flags")
    keywords.update(
        # Small enough for a test; all else is the preset's.
        image_size=16,
        width=0.02,
        batch_size_per_replica=None,
        steps=2,
        epochs=None,
        warmup_epochs=0,
    )
    assert np.isfinite(run(tree, **keywords).loss)


def test_every_preset_is_of_flags_that_go_together(flags_of):
    for path in PRESETS.glob("*.flags"):
        image_flags.check(settings(**flags_of(alexnet, path)))


def test_the_resnet_preset_is_that_of_goyal(flags_of):
    keywords = flags_of(alexnet, PRESETS / "resnet50_imagenet.flags")
    plan = training_plan.make(settings(**keywords), 32, 1_281_167)
    assert plan.global_batch_size == 8192
    assert plan.learning_rate == pytest.approx(3.2)
    assert plan.epochs == 90
    assert plan.warmup_steps == 5 * plan.steps_per_epoch


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(network="resnet50"), "32 pixels and more. Received: 8"),
        (dict(width=0.0), "--width: .* Received: 0.0"),
        (dict(warmup_epochs=2), "warm-up must be shorter"),
        (dict(data_path="no/such"), "--data_path .* Received: no/such"),
        (dict(label_smoothing=1.5), "--label_smoothing: .* Received: 1.5"),
        (dict(num_seeds=2), "--num_seeds needs --batch_sizes"),
        (
            dict(dataset="synthetic", data_path=None, compare_input=True),
            "--dataset=synthetic, which has no others",
        ),
        (dict(num_replicas=99), "99"),
    ],
)
def test_bad_settings_are_refused(tree, keywords, message):
    with pytest.raises(InputError, match=message):
        run(tree, **keywords)
