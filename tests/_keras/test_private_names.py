"""The list of private names that `.ci/nightly` looks for in new releases."""

from tests._keras import private_names

SOURCE = """
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as trainer_module
from keras.src.trainers.trainer import Trainer
from kerasmgpu.engine.private_names import context


class Steps(trainer_module.TFEpochIterator):
    def tf_sync(self):
        return context.context()._handle


@seam(Trainer, "_get_metrics_result_or_logs")
def _metrics(original, self, logs):
    tf.print(self.model)
"""


def test_what_a_source_uses_is_found():
    trainer = "keras.src.backend.tensorflow.trainer"
    assert private_names.used(SOURCE) == {
        trainer,
        f"{trainer}.TFEpochIterator",
        f"{trainer}.TFEpochIterator.tf_sync",
        "keras.src.trainers.trainer.Trainer",
        "keras.src.trainers.trainer.Trainer._get_metrics_result_or_logs",
        "tensorflow.python.eager.context",
        "tensorflow.python.eager.context.context",
    }


def test_signatures_are_those_of_what_is_there():
    package = "tests._keras.private_names"
    assert private_names.signature(f"{package}.used") == "(source)"
    assert private_names.signature(package) == "module"
    assert private_names.signature(f"{package}.gone") is None
    assert private_names.signature("gone.altogether") is None


def test_what_moved_is_told():
    before = {"a.f": "(x)", "a.g": "(x)", "a.h": "(x)", "a.own": None}
    now = {"a.f": "(x)", "a.g": "(x, y)", "a.h": None, "a.own": None}
    assert private_names.moved({"names": before}, {"names": now}) == [
        "changed: a.g\n  before: (x)\n  now: (x, y)",
        "gone: a.h",
    ]


def test_names_of_kerasmgpu_are_there():
    names = private_names.described()["names"]
    there = [name for name, found in names.items() if found is not None]
    assert "keras.src.backend.tensorflow.trainer.TFEpochIterator" in there
    # A method of ours that the class it is made from lacks is the only kind
    # of name that may be missing.
    for name in set(names) - set(there):
        owner, _, method = name.rpartition(".")
        assert owner in there, name
