"""The command that shows, verifies and converts checkpoints."""

import json
import shutil

import keras
import numpy as np
import pytest

from kerasmgpu.callbacks.checkpoints import file_format, stored
from kerasmgpu.commands import checkpoint_reports
from kerasmgpu.errors import InputError
from tests import console
from tests.callbacks.checkpoints import runs
from tests.strategies.sharded import mirrored


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run's two checkpoints, its model and its weights."""
    folder = tmp_path_factory.mktemp("run")
    with mirrored(3, "weights").scope():
        keras.config.set_dtype_policy("mixed_bfloat16")
        keras.utils.set_random_seed(3)
        inputs = keras.Input((4,))
        x = keras.layers.Dense(5, dtype="bfloat16")(inputs)
        x = keras.layers.Dropout(0.1)(keras.layers.BatchNormalization()(x))
        model = keras.Model(inputs, keras.layers.Dense(2, dtype="float32")(x))
        model.compile("adam", "mse", metrics=["mae"])
        keras.config.set_dtype_policy("float32")
    runs.train(model, runs.arrays(), folder / "run", epochs=2, sharded=True)
    model.save(folder / "model.keras")
    model.save_weights(folder / "saved.weights.h5")
    return folder


def contents(path):
    """All groups, attributes and bytes of an HDF5 file."""
    import h5py

    found = {}

    def visit(name, entry):
        value = (
            getattr(entry, "shape", None) is not None and entry[()].tobytes()
        )
        found[name] = value, dict(entry.attrs)

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def test_weights_are_those_that_keras_saves(run, tmp_path):
    target = tmp_path / "new.weights.h5"
    checkpoint_reports.convert(str(run / "run"), str(target))
    expected = contents(run / "saved.weights.h5")
    assert len(expected) > 30
    assert contents(target) == expected


def test_a_model_has_the_configuration_of_another_file(run, tmp_path):
    keras.utils.clear_session()
    expected = keras.models.load_model(run / "model.keras")
    other = keras.models.load_model(run / "model.keras")
    for variable in [*other.variables, *other.optimizer.variables]:
        variable.assign(np.zeros(variable.shape))
    other.save(tmp_path / "zeros.keras")
    target = tmp_path / "new.keras"
    with pytest.raises(InputError, match="name a file of the same model"):
        checkpoint_reports.convert(str(run / "run"), str(target))
    like = str(tmp_path / "zeros.keras")
    checkpoint_reports.convert(str(run / "run"), str(target), like)
    found = keras.models.load_model(target)
    pairs = zip(found.variables, expected.variables, strict=True)
    slots = found.optimizer.variables, expected.optimizer.variables
    for one, other in [*pairs, *zip(*slots, strict=True)]:
        if "seed" not in one.path:  # Keras saves no seeds.
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    with pytest.raises(InputError, match="the target must be new"):
        checkpoint_reports.convert(str(run / "run"), str(target), like)


def test_one_file_and_a_folder_hold_the_same(run, tmp_path):
    file, folder = str(tmp_path / "one.npz"), str(tmp_path / "folder")
    checkpoint_reports.convert(str(run / "run"), file)
    checkpoint_reports.convert(file, folder)
    newest = max((run / "run").iterdir())
    with stored.Stored(newest) as whole:
        for path in (tmp_path / "one.npz", tmp_path / "folder"):
            with stored.Stored(path) as found:
                found.verify()
                assert found.manifest["progress"] == whole.manifest["progress"]
                for one, other in zip(found.extra, whole.extra, strict=True):
                    np.testing.assert_array_equal(one, other)
                for index in range(len(whole.manifest["variables"])):
                    one, other = (x.array(index) for x in (found, whole))
                    assert one.dtype == other.dtype
                    np.testing.assert_array_equal(one[...], other[...])


def test_weights_are_put_into_a_checkpoint(run, tmp_path):
    """The state of everything else is that of the other checkpoint."""
    first, last = sorted((run / "run").iterdir())
    new = tmp_path / "new"
    saved = str(run / "saved.weights.h5")
    checkpoint_reports.convert(saved, str(new), str(first))
    with (
        stored.Stored(new) as found,
        stored.Stored(first) as before,
        stored.Stored(last) as after,
    ):
        assert found.manifest["progress"] == before.manifest["progress"]
        differ = 0
        for index, one in enumerate(before.manifest["variables"]):
            origin = before if "seed" in one["path"] else after
            np.testing.assert_array_equal(
                found.array(index)[...], origin.array(index)[...]
            )
            differ += not np.array_equal(
                before.array(index)[...], after.array(index)[...]
            )
        assert differ > 10


def test_weights_of_another_model_are_refused(run, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6)])
    model.save_weights(tmp_path / "other.weights.h5")
    source = str(tmp_path / "other.weights.h5")
    with pytest.raises(InputError, match="of another model.*Received: "):
        checkpoint_reports.convert(
            source, str(tmp_path / "n"), str(run / "run")
        )
    with pytest.raises(InputError, match="has weights only"):
        checkpoint_reports.convert(source, str(tmp_path / "n"))


def test_what_keras_computes_has_no_place(tmp_path):
    class Doubled(keras.layers.Dense):
        def save_own_variables(self, store):
            store["0"] = self.kernel.numpy() * 2

    model = keras.Sequential([keras.Input((4,)), Doubled(2)])
    model.compile("sgd", "mse", run_eagerly=True)
    runs.train(model, runs.arrays(), tmp_path / "run", epochs=1)
    with pytest.raises(InputError, match="is computed when it is saved"):
        checkpoint_reports.convert(
            str(tmp_path / "run"), str(tmp_path / "new.weights.h5")
        )


def test_show_and_verify(run, tmp_path, capsys):
    first, last = sorted((run / "run").iterdir())
    report = checkpoint_reports.show(str(run / "run"), as_json=True)
    assert json.loads(capsys.readouterr().out) == report
    assert (report["epoch"], report["step"]) == (2, 0)
    assert list(report["bytes"]) == ["part-00000.npz", stored.INDEX]
    kernel = report["variables"][0]
    assert kernel["shape"] == [4, 5] and kernel["pieces"] == 3
    # The folder of `callbacks.default` has them in one of its own.
    (tmp_path / "default").mkdir()
    shutil.copytree(run / "run", tmp_path / "default" / "checkpoints")
    of_default = checkpoint_reports.show(str(tmp_path / "default"))
    assert of_default["variables"] == report["variables"]
    checkpoint_reports.show(str(first))
    assert "1 epochs done; 2" in capsys.readouterr().out
    assert checkpoint_reports.verify(str(run / "run"))
    copy = tmp_path / "copy"
    shutil.copytree(run / "run", copy)
    (copy / last.name / "part-00000.npz").unlink()
    done = console.run("checkpoint", "verify", "copy", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"copy/{first.name}: whole",
        f"copy/{last.name}: damaged (part-00000.npz: No such file or directory)",
    ]


def test_a_file_of_the_version_before_is_read(tmp_path):
    """It lacks the names of weights: it resumes, and becomes no Keras file."""
    model = runs.build_eager()
    runs.train(model, runs.arrays(), tmp_path / "run", epochs=1)
    (path,) = (tmp_path / "run").iterdir()
    with open(path, "rb") as file:
        manifest, arrays = file_format.read(file)
    del manifest["weights"]
    with open(path, "wb") as file:
        file_format.write(file, manifest, arrays)
    for one, other in zip(
        runs.restored(runs.build_eager(), path.parent), runs.state(model)
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match="a former version wrote it"):
        checkpoint_reports.convert(str(path), str(tmp_path / "n.weights.h5"))


def test_convert_says_what_it_wrote(run, tmp_path, capsys):
    for name, kind in (
        ("a.npz", "a checkpoint"),
        ("a.weights.h5", "Keras's weights"),
        ("folder", "a sharded checkpoint"),
    ):
        checkpoint_reports.convert(str(run / "run"), str(tmp_path / name))
        said = capsys.readouterr().out
        assert said.startswith(f"wrote {tmp_path / name}: {kind}, ")
        assert "bytes, of " in said and said.count("\n") == 1


@pytest.mark.parametrize("name", ["x.pt", "x.h5", "x.ckpt"])
def test_an_unknown_suffix_is_refused(run, tmp_path, name):
    with pytest.raises(InputError, match="must end in .npz, .weights.h5"):
        checkpoint_reports.convert(str(run / "run"), str(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_a_scalar_has_no_axes(run, capsys):
    checkpoint_reports.show(str(run / "run"))
    lines = capsys.readouterr().out.splitlines()
    assert any("iteration" in line and "()" in line for line in lines)
