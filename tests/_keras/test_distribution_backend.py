"""`keras.distribution` on TensorFlow, without a strategy."""

import contextlib
import json
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import distribution_lib as backend
from keras.src.utils import rng_utils

import kerasmgpu
from kerasmgpu._keras import made_variables
from kerasmgpu.engine.devices import num_logical

CPUS = [f"cpu:{index}" for index in range(8)]
KIND = "gpu" if num_logical("GPU") else "cpu"


@pytest.fixture
def mesh():
    names = ["batch", "model"]
    return keras.distribution.DeviceMesh((2, 4), names, CPUS)


@pytest.fixture
def job_of_three(monkeypatch):
    addresses = [f"127.0.0.1:{port}" for port in (1234, 1235, 1236)]
    task = {"type": "worker", "index": 1}
    config = {"cluster": {"worker": addresses}, "task": task}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


@pytest.fixture
def unset_seed(monkeypatch):
    """List of the seeds that are set; none was set before."""
    seeds = []
    monkeypatch.setattr(keras.utils, "set_random_seed", seeds.append)
    attribute = rng_utils.GLOBAL_RANDOM_SEED
    before = rng_utils.get_random_seed()
    rng_utils.global_state.set_global_attribute(attribute, None)
    yield seeds
    rng_utils.global_state.set_global_attribute(attribute, before)


def test_devices_are_of_one_kind():
    count = num_logical(KIND.upper())
    assert keras.distribution.list_devices()[-1] == f"{KIND}:{count - 1}"
    assert keras.distribution.list_devices("CPU") == CPUS
    assert keras.distribution.list_devices("tpu") == []
    assert backend.get_device_count() == count
    assert backend.get_device_count("cpu") == 8
    assert len(tf.config.list_logical_devices("CPU")) == 8


def test_devices_of_a_job_are_those_of_all_workers(job_of_three):
    assert backend.get_device_count("cpu") == 24
    assert keras.distribution.list_devices("cpu")[-1] == "cpu:23"
    # Otherwise Keras shards data sets itself.
    assert not keras.distribution.DataParallel()._is_multi_process


def test_one_process_has_one_seed(unset_seed):
    keras.distribution.initialize()
    keras.distribution.initialize("10.0.0.1:1234", 1, 0)
    assert len(unset_seed) == 2
    rng_utils.global_state.set_global_attribute(rng_utils.GLOBAL_RANDOM_SEED, 7)
    keras.distribution.initialize()
    assert len(unset_seed) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("10.0.0.1:1,10.0.0.2:2", 2, 0),
        ("10.0.0.1:1,10.0.0.2:2", None, None),
        ("10.0.0.1:1", None, None),
        (None, 2, 1),
        (None, None, 1),
    ],
)
def test_a_job_that_was_not_started_as_one(arguments, unset_seed):
    with pytest.raises(kerasmgpu.InputError, match="kerasmgpu launch") as error:
        keras.distribution.initialize(*arguments)
    assert "\n" not in str(error.value)
    assert not unset_seed


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("10.0.0.1:1,10.0.0.2:2", 3, 0), "has 2 jobs, but num_processes is 3"),
        ((None, 0, 0), "num_processes must be an integer of at least 1"),
        (("10.0.0.1:1,10.0.0.2:2", 2, 2), "process_id must be .* from 0 to 1"),
    ],
)
def test_arguments_that_contradict_each_other(arguments, words):
    with pytest.raises(kerasmgpu.InputError, match=words):
        keras.distribution.initialize(*arguments)


def test_a_job_must_be_the_one_described(job_of_three, unset_seed):
    keras.distribution.initialize()
    keras.distribution.initialize("127.0.0.1:1234", 3, 1)
    assert not unset_seed  # The strategy shares the first worker's state.
    for arguments in ((None, 2, 1), (None, 3, 0), (None, None, 2)):
        with pytest.raises(kerasmgpu.InputError, match="worker 1 of 3"):
            keras.distribution.initialize(*arguments)


def test_tensors_keep_their_values(mesh):
    layout = keras.distribution.TensorLayout(("batch", None), mesh)
    tensor, array = tf.ones((3, 5, 2)), np.ones((3, 5), "float16")
    for given in (layout, layout.backend_layout):
        assert keras.distribution.distribute_tensor(tensor, given) is tensor
    found = keras.distribution.distribute_tensor((array, [tensor]), layout)
    assert found[1][0] is tensor
    assert tf.is_tensor(found[0]) and found[0].dtype == tf.float16


def test_a_tensor_of_too_few_dimensions(mesh):
    layout = keras.distribution.TensorLayout(("batch", None), mesh)
    with pytest.raises(kerasmgpu.InputError, match=r"None\), shape=\(3,\)"):
        keras.distribution.distribute_tensor(tf.ones(3), layout)
    with pytest.raises(kerasmgpu.InputError, match="layout='batch'"):
        keras.distribution.distribute_tensor(tf.ones(3), "batch")

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def of_any_rank(x):
        return keras.distribution.distribute_tensor(x, layout)

    assert of_any_rank(2.0) == 2.0


def test_forms_of_meshes_and_layouts(mesh):
    layout = keras.distribution.TensorLayout(["model", None], mesh)
    found = layout.backend_layout
    assert found.spec == ("model", None) and not found.is_fully_replicated
    assert found.mesh == mesh.backend_mesh
    assert found.mesh.shape == {"batch": 2, "model": 4} and found.mesh.size == 8
    assert found.mesh.devices.tolist() == mesh.devices.tolist()
    whole = keras.distribution.TensorLayout([None], mesh).backend_layout
    assert whole.is_fully_replicated
    with pytest.raises(ValueError, match="device mesh is not set"):
        _ = keras.distribution.TensorLayout(["model"]).backend_layout


def test_an_axis_that_is_named_twice(mesh):
    with pytest.raises(kerasmgpu.InputError, match="twice: model. Received"):
        keras.distribution.TensorLayout(("model", "model"), mesh)
    with pytest.raises(kerasmgpu.InputError, match="TensorLayout names"):
        keras.distribution.TensorLayout(["batch", None, "batch"])
    layout_map = keras.distribution.LayoutMap(mesh)
    with pytest.raises(kerasmgpu.InputError, match="'dense/kernel' names"):
        layout_map["dense/kernel"] = ("model", "model")
    layout_map["dense/kernel"] = (None, "model")
    assert layout_map["dense/kernel"].axes == (None, "model")
    with pytest.raises(ValueError, match="Invalid axis names"):
        layout_map["dense/bias"] = ("modell",)
    with pytest.raises(kerasmgpu.InputError, match="neither: nothing to rep"):
        layout_map["*bias"] = ("model",)


@pytest.fixture
def set_distribution(mesh, replicas, monkeypatch):
    """Sets a distribution that no strategy follows; seams are installed."""
    replicas(2)
    name = "kerasmgpu.strategies.distributions"
    stub = types.SimpleNamespace(follow=lambda value: None)
    monkeypatch.setitem(sys.modules, name, stub)
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map[".*kernel"] = (None, "model")
    layout_map[".*wrong"] = ("batch", None)
    distribution = keras.distribution.ModelParallel(layout_map=layout_map)
    with distribution.scope():
        yield distribution


def test_layouts_stay_with_variables_and_their_slots(set_distribution, mesh):
    layer = keras.layers.Dense(8, name="dense")
    layer.build((3, 5))
    keras.distribution.set_distribution(None)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(layer.trainable_variables)
    (momentum,) = [v for v in optimizer.variables if v.shape == (5, 8)]
    for variable in (layer.kernel, momentum):
        assert variable.value.sharding.spec == (None, "model")
        assert variable.value.sharding.mesh == mesh.backend_mesh
    layer.kernel.assign(np.ones((5, 8)))
    assert layer.kernel.value.sharding.spec == (None, "model")
    assert layer.bias.value.sharding.is_fully_replicated
    plain = keras.Variable([1.0, 2.0], name="kernel")
    assert not hasattr(plain.value, "sharding")


def test_layouts_of_variables_that_are_made_from_values(set_distribution, mesh):
    made = []
    with made_variables_noted(made):
        keras.Variable(np.ones((5, 8)), name="kernel")
        layout = keras.distribution.TensorLayout(["batch"], mesh)
        keras.Variable(np.ones((4, 2)), name="kernel", layout=layout)
    specs = [(one.path, one.layout.spec) for one in made]
    assert specs == [("kernel", (None, "model")), ("kernel", ("batch",))]


@contextlib.contextmanager
def made_variables_noted(made):
    def creator(next_creator, **settings):
        made.append(made_variables.current())
        return next_creator(**settings)

    with tf.variable_creator_scope(creator):
        yield


def test_slots_of_fewer_dimensions_have_no_layout(set_distribution):
    """Adafactor's rows and columns have the name of their weight."""
    kernel = keras.Variable(np.zeros([4, 6]), name="kernel")
    optimizer = keras.optimizers.Adafactor()
    with made_variables.made_by(optimizer):
        optimizer.build([kernel])
    slots = {slot.shape: slot for slot in optimizer.variables}
    assert slots[(4,)]._layout is None and slots[(6,)]._layout is None
    assert slots[(4, 6)]._layout is kernel._layout is not None


def test_a_variable_of_too_few_dimensions_is_named(set_distribution):
    words = "variable 'wrong' has 2 axes for 1 dimensions"
    with pytest.raises(kerasmgpu.InputError, match=words):
        keras.Variable([1.0, 2.0], name="wrong")
