"""What is done with a model, here in this process."""

import functools
import shutil

import keras
import pytest
import tensorflow as tf

from kerasmgpu.check import stage_record, stages
from kerasmgpu.check.stage_record import StageRecord

TRAINING = ["import", "build()", "data()", "step 1", "step 2", "checkpoint"]
REST = ["evaluate", "predict", "save"]


def run(folder, build, replicas=None, **changes):
    """Runs the stages of one process; returns those that ended, and facts."""
    own = folder / f"{replicas}-{changes.get('resumes')}"
    files = folder / f"{replicas}"
    for path in (own, files):
        path.mkdir(exist_ok=True)
    job = {
        "build": build if ":" in build else f"tests.check.programs:{build}",
        "data": None,
        "strategy": {"num_replicas": replicas, "virtual_devices": None},
        "workers": 1,
        "on_one_device": replicas is None,
        "files": str(files),
        "steps": 2,
        "global_batch_size": None,
        "seed": 7,
        "resumes": False,
        **changes,
    }
    record = StageRecord(own)
    try:
        stages.run(job, record)
    except Exception as error:
        record.end(error)
    record.end()
    ended, running, facts = stage_record.read(own)
    assert running is None
    return {stage["stage"]: stage["error"] for stage in ended}, facts


def resume(folder, build, replicas, facts):
    is_saved = "bytes" in facts
    return run(folder, build, replicas, resumes=True, is_saved=is_saved)[0]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Function that runs the sound program once on a number of replicas.

    It returns the folder, the stages that ended, and facts.
    """

    @functools.cache
    def sound(replicas):
        folder = tmp_path_factory.mktemp("sound")
        return folder, *run(folder, "sound", replicas)

    return sound


@pytest.mark.parametrize("replicas", [None, 2])
def test_all_stages_work(replicas, sound, tmp_path):
    folder, errors, facts = sound(replicas)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    assert list(errors) == TRAINING + REST
    assert not any(errors.values())
    assert facts["replicas"] == (replicas or 1)
    assert facts["bytes"] > 1000
    errors = resume(tmp_path, "sound", replicas, facts)
    assert errors == {"import": None, "load": None, "resume": None}


def test_both_begin_with_the_same_weights(sound):
    losses = [sound(n)[2]["losses"] for n in (None, 2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("build", ["on_a_mesh", "own_strategy"])
def test_the_mesh_of_a_program_is_that_of_all_stages(build, tmp_path):
    settings = {"num_replicas": 4, "virtual_devices": None}
    _, on_one = run(tmp_path, build, strategy=settings)
    errors, facts = run(tmp_path, build, 4)
    assert not any(errors.values())
    assert facts["mesh"] == {"batch": 2, "model": 2}
    assert "mesh" not in on_one
    assert facts["losses"] == pytest.approx(on_one["losses"], rel=1e-5)
    errors = resume(tmp_path, build, 4, facts)
    assert errors == {"import": None, "load": None, "resume": None}
    assert keras.distribution.distribution() is None
    assert not tf.distribute.has_strategy()


@pytest.mark.slow
def test_a_module_may_set_its_mesh_when_it_is_imported(tmp_path):
    path = tmp_path / "sets_a_mesh.py"
    path.write_text(
        "from tests.check.programs import data, on_a_mesh, sound\non_a_mesh()\n"
    )
    errors, facts = run(tmp_path, f"{path}:sound", 4)
    assert not any(errors.values())
    assert facts["mesh"] == {"batch": 2, "model": 2}


def test_a_mesh_that_lacks_devices_or_takes_no_settings_is_told(tmp_path):
    errors, _ = run(tmp_path, "on_a_mesh", 3)
    assert "It was called with the 3 devices of --num_rep" in errors["build()"]
    settings = {
        "num_replicas": 4,
        "virtual_devices": None,
        "shard": "weights",
        "micro_batches": 1,
    }
    errors, _ = run(tmp_path, "on_a_mesh", 4, strategy=settings)
    assert "Received: shard='weights', micro_b" in errors["data()"]


def test_a_failure_leaves_later_stages_to_be_tried(tmp_path):
    errors, facts = run(tmp_path, "predicts")
    assert list(errors) == TRAINING + REST
    assert errors["predict"] == (
        "RuntimeError: no forecast today (programs.py, line "
        f'{line_of("no forecast today")}: raise RuntimeError("no forecast '
        'today"))'
    )
    assert errors["save"] is None
    errors = resume(tmp_path, "predicts", None, facts)
    assert errors == {"import": None, "load": None, "resume": None}


@pytest.mark.parametrize(
    "build, replicas, stage, message",
    [
        ("no_model", 2, "build()", "must return a compiled keras.Model"),
        ("missing", None, "build()", "has no function 'missing'"),
        ("nan", None, "step 1", "Layer 'lambda"),
        ("graph_error", 2, "step 1", "divided by 0"),
    ],
)
def test_a_failure_in_training_ends_the_process(
    build, replicas, stage, message, tmp_path
):
    errors, facts = run(tmp_path, build, replicas)
    assert list(errors)[-1] == stage
    assert message in errors[stage]
    assert "\n" not in errors[stage]
    assert "losses" not in facts


def test_a_model_without_a_compiled_loss_is_not_evaluated(tmp_path):
    errors, facts = run(tmp_path, "own_step")
    assert list(errors) == [*TRAINING, "predict", "save"]
    assert not any(errors.values())
    assert resume(tmp_path, "own_step", None, facts)["resume"] is None


def test_a_file_that_lacks_something_is_told(tmp_path):
    errors, facts = run(tmp_path, "shifts")
    assert not any(errors.values())
    errors = resume(tmp_path, "shifts", None, facts)
    assert "the loaded model predicts otherwise: by " in errors["load"]
    assert errors["resume"] is None


def test_a_training_that_begins_anew_is_told(sound, tmp_path):
    folder, _, facts = sound(None)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "None/checkpoints").rename(tmp_path / "elsewhere")
    errors = resume(tmp_path, "sound", None, facts)
    assert "fit began anew instead of resuming" in errors["resume"]


def line_of(text):
    from tests.check import programs

    with open(programs.__file__, encoding="utf-8") as file:
        (number,) = [n for n, line in enumerate(file, 1) if text in line]
    return number
