"""Wrong arguments of the public functions and callbacks: one line each."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import InputError, callbacks
from tests.strategies.sharded import mirrored

X, Y = np.ones((10, 4), "float32"), np.ones((10, 2), "float32")
BATCHES = tf.data.Dataset.from_tensor_slices((X, Y)).batch(5)


@pytest.fixture(scope="module")
def model():
    with mirrored(2, None).scope():
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        made.compile("sgd", "mse")
    return made


@pytest.fixture(scope="module")
def plain():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("text")
    (tmp_path / "a_folder").mkdir()


MIRRORED = kerasmgpu.MirroredStrategy
OF_CALLS = {
    "devices=2; kerasmgpu.strategy(num_replicas=2)": lambda: MIRRORED(2),
    "devices=5": lambda: kerasmgpu.strategy(devices=5),
    "Received: devices='CPU:0'": lambda: MIRRORED("CPU:0"),
    "Received: devices=[]": lambda: MIRRORED([]),
    "Received: device 0": lambda: MIRRORED([0]),
    "shrad=…; is shard meant?": lambda: MIRRORED(shrad="weights"),
    "Received: num_replicas=…": lambda: MIRRORED(num_replicas=2),
    "cross_device_ops='nccl'": lambda: MIRRORED(
        ["CPU:0"], cross_device_ops="nccl"
    ),
    "batch_norm=True": lambda: MIRRORED(["CPU:0"], batch_norm=True),
    "shard='rows'": lambda: MIRRORED(["CPU:0"], shard="rows"),
    "xla_cache=3": lambda: MIRRORED(["CPU:0"], xla_cache=3),
    "recompute=True": lambda: MIRRORED(["CPU:0"], recompute=True),
    "min_shard_bytes='1MB'": lambda: MIRRORED(["CPU:0"], min_shard_bytes="1MB"),
    "Received: n_gpus=…": lambda: kerasmgpu.strategy(n_gpus=2),
    "xla_cache takes a local path": lambda: MIRRORED(
        ["CPU:0"], xla_cache="s3://b/x"
    ),
    "virtual_devices='2'": lambda: kerasmgpu.strategy(virtual_devices="2"),
    "virtual_devices=0": lambda: kerasmgpu.strategy(virtual_devices=0),
    "virtual_devices=1000000": lambda: kerasmgpu.strategy(
        virtual_devices=1_000_000
    ),
    "num_replicas='2'": lambda: kerasmgpu.strategy("2"),
    "mesh=4": lambda: kerasmgpu.strategy(mesh=4, layout="auto"),
    "cluster_resolver='a:1,b:1'": lambda: kerasmgpu.MultiWorkerMirroredStrategy(
        "a:1,b:1"
    ),
    "extra=<kerasmgpu": lambda: callbacks.default(
        "r", extra=callbacks.Progress()
    ),
    "extra=[1]": lambda: callbacks.default("r", extra=[1]),
    "run_dir=3": lambda: callbacks.default(3),
    "too many positional": lambda: callbacks.default("r", callbacks.Progress()),
    "chekpoint=…; is checkpoint meant?": lambda: callbacks.default(
        "r", chekpoint=False
    ),
    "missing a required argument: 'folder'": lambda: callbacks.RunRecord(),
    "folder=None": lambda: callbacks.RunRecord(None),
    "path=3.5": lambda: callbacks.ThroughputLogger(3.5),
    "directory=None": lambda: callbacks.Checkpoint(None),
    "directory: s4:// ": lambda: callbacks.Checkpoint("s4://b/r"),
    "directory: a URL has two slashes": lambda: callbacks.Checkpoint(
        pathlib.Path("s3://b/r")
    ),
    "directory: a URL names a bucket": lambda: callbacks.Checkpoint("s3://"),
    "folder: s4:// ": lambda: callbacks.RunRecord("s4://b/r"),
    "run_dir: s4:// ": lambda: callbacks.default("s4://b/r"),
    "path: s4:// ": lambda: callbacks.DeviceStats("s4://b/d.jsonl"),
    "path takes a local path only": lambda: callbacks.HangWatch(path="gs://b"),
    "evry_steps=…; is every_steps meant?": lambda: callbacks.Checkpoint(
        "c", evry_steps=3
    ),
    "best=3": lambda: callbacks.Checkpoint("c", best=3),
    "resume='no'": lambda: callbacks.Checkpoint("c", resume="no"),
    "keep='3'": lambda: callbacks.Checkpoint("c", keep="3"),
    "log_dir=3": lambda: callbacks.Monitors(3),
    "logs=['loss']": lambda: callbacks.Progress(logs=["loss"]),
    "Received: logs=3": lambda: callbacks.Progress(logs=3),
    "evry=…": lambda: callbacks.Progress(evry=3),
    "executions='x'": lambda: callbacks.ChooseXla("x"),
    "makes one. Received: 3": lambda: callbacks.OnFirstWorker(3),
    "model='m:build'": lambda: kerasmgpu.find_learning_rate("m:build", X),
    "model=(ndarray of shape (10, 4), ndarray of": lambda: (
        kerasmgpu.find_learning_rate((X, Y), 1)
    ),
    "build=3": lambda: kerasmgpu.find_batch_size(3),
    "data=(ndarray of shape (10, 4), ndarray of": lambda: (
        kerasmgpu.find_batch_size("json:loads", (X, Y))
    ),
    "required argument: 'build'": lambda: kerasmgpu.find_batch_size(),
    "keras.Model. Received: ndarray of shape (10, 4)": lambda: (
        kerasmgpu.layout_report(X, Y)
    ),
    "model=<_Batch": lambda: kerasmgpu.compare_input(BATCHES, 3),
    "partition needs a function. Received: 3": lambda: kerasmgpu.partition(
        3, num_replicas=2
    ),
    "notebook_launch has no 'num_procs'": lambda: kerasmgpu.notebook_launch(
        print, num_procs=2
    ),
    "args=3": lambda: kerasmgpu.notebook_launch(print, 3),
    "required argument: 'function'": lambda: kerasmgpu.notebook_launch(),
    "Received: replicas=…": lambda: kerasmgpu.verify("json:loads", replicas=2),
    "float64='yes'": lambda: kerasmgpu.verify("json:loads", float64="yes"),
    "argument: 'batch_size_per_replica'": lambda: kerasmgpu.global_batch_size(),
    "learning_rate='0.1'": lambda: kerasmgpu.scale_learning_rate("0.1", 2),
    "is_first_worker takes no arguments": lambda: kerasmgpu.is_first_worker(3),
}
OF_MODEL = {
    "data without y": lambda m: kerasmgpu.find_learning_rate(m, X),
    "required argument: 'data'": lambda m: kerasmgpu.find_learning_rate(m),
    "plot='a_file/p.png'": lambda m: kerasmgpu.find_learning_rate(
        m, (X, Y), plot="a_file/p.png"
    ),
    "Received: batch_size=…": lambda m: kerasmgpu.find_learning_rate(
        m, (X, Y), batch_size=8
    ),
    "(ndarray of shape (10, 4), ndarray of shape (5, 2))": lambda m: (
        kerasmgpu.find_learning_rate(m, (X, Y[:5]))
    ),
    "required argument: 'batch'": lambda m: kerasmgpu.layout_report(m),
    "a batch without y": lambda m: kerasmgpu.layout_report(m, X),
    "float32 of shape ()": lambda m: kerasmgpu.layout_report(m, np.float32(3)),
    "required argument: 'mesh'": lambda m: kerasmgpu.find_layout(m, (X, Y)),
    "links=[3]": lambda m: kerasmgpu.find_layout(m, (X, Y), (1, 2), links=3),
    "dataset without y": lambda m: kerasmgpu.compare_input(
        m, BATCHES.map(lambda x, y: x)
    ),
}
OF_FIT = {
    "folder='a_file', which is a file": lambda: callbacks.RunRecord("a_file"),
    "folder='a_file/run', and a_file is a file": lambda: callbacks.RunRecord(
        "a_file/run"
    ),
    "path='a_file/t.jsonl'": lambda: callbacks.ThroughputLogger(
        "a_file/t.jsonl"
    ),
    "path='a_folder' (Is a": lambda: callbacks.ThroughputLogger("a_folder"),
    "path='a_file/d.jsonl'": lambda: callbacks.DeviceStats("a_file/d.jsonl"),
    "path='a_file/h.txt'": lambda: callbacks.HangWatch(path="a_file/h.txt"),
    "log_dir='s3://b/x' can't": lambda: callbacks.Monitors("s3://b/x"),
    "log_dir='a_file'": lambda: callbacks.Monitors("a_file"),
    "Received: a_file (File exists)": lambda: callbacks.Checkpoint("a_file"),
    "Received: a_file/c (Not": lambda: callbacks.Checkpoint("a_file/c"),
}


def require_line(part, call):
    with pytest.raises(InputError) as raised:
        call()
    text = str(raised.value)
    assert part in text
    assert "\n" not in text and len(text) < 500


@pytest.mark.parametrize("part", OF_CALLS)
def test_calls(part):
    require_line(part, OF_CALLS[part])


@pytest.mark.parametrize("part", OF_MODEL)
def test_calls_with_a_model(part, model):
    require_line(part, lambda: OF_MODEL[part](model))


@pytest.mark.parametrize("part", OF_FIT)
def test_callbacks_whose_files_cant_be_written(part, plain):
    plain.compile("sgd", "mse", run_eagerly=True)
    made = OF_FIT[part]()
    require_line(part, lambda: plain.fit(X, Y, verbose=0, callbacks=[made]))


def test_a_model_that_is_not_compiled():
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    require_line(
        "compiled keras.Model. Received: model=<Seq",
        lambda: kerasmgpu.compare_input(other, BATCHES),
    )


def test_pythons_error_is_caught_as_before():
    with pytest.raises(TypeError, match="missing a required argument"):
        callbacks.RunRecord()


def test_a_model_of_its_own_step_needs_no_targets(model):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, *_, **__):
            return keras.ops.mean(keras.ops.square(y_pred - x))

    with mirrored(2, None).scope():
        own = Own()
        own(X[:1])
        own.compile("sgd", "mse")
    kerasmgpu.find_learning_rate(own, X, steps=10, show=False)


@pytest.mark.parametrize(
    "x, y, part",
    [
        (np.ones((10, 5), "float32"), Y, "expected axis -1 of input shape to"),
        (X, np.ones((10, 3), "float32"), "3 and 2"),
    ],
)
def test_a_second_fit_of_another_shape(x, y, part):
    with mirrored(2, None).scope():
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        made.compile("sgd", "mse")
    made.fit(X, Y, verbose=0)
    require_line(part, lambda: made.fit(x, y, verbose=0))
    made.fit(X, Y, verbose=0)
