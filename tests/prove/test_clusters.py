"""XLA's clusters of a written step: lowered for GPUs, and compiled for one."""

import functools
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from kerasmgpu.errors import InputError
from kerasmgpu.flops.step_flops import layers_in
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.prove import compiled_ahead, gpu_compiler
from kerasmgpu.prove.clusters import clusters_of, lowered
from kerasmgpu.prove.compiled_ahead import compile_ahead
from kerasmgpu.prove.gpu_targets import TARGETS, memory_of, target_of
from tests.prove import steps

JAX_PYTHON = os.environ.get("KERASMGPU_TEST_JAX_PYTHON")


def normalised():
    return steps.normalised(jit_compile=True)


class Larger(layers.Layer):
    """Resizes images, in one of several ways."""

    def call(self, x):
        return tf.raw_ops.ResizeBilinear(images=x, size=[8, 8])

    def compute_output_shape(self, shape):
        return (shape[0], 8, 8, shape[-1])


class AsRows(layers.Layer):
    """Reshapes to as many columns as a value says: XLA must know sizes."""

    def call(self, x, labels):
        number = 6 + 0 * tf.reduce_sum(labels * labels)
        return tf.ensure_shape(tf.reshape(x, [-1, number]), [None, 6])

    def compute_output_shape(self, shape):
        return shape


def larger():
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), Larger(), layers.Flatten()]
    )
    model.add(layers.Dense(1))
    return steps.fitted(model, jit_compile=True)


def of_labels():
    x, labels = keras.Input((6,)), keras.Input((1,), dtype="int32")
    made = layers.Dense(1)(AsRows()(x, labels))
    model = keras.Model([x, labels], made)
    model.compile("sgd", "mse", jit_compile=True)
    rows = np.ones((24, 6), "float32")
    return model, ((rows, np.ones((24, 1), "int32")), rows[:, :1])


def found(make, python=None, target=None, **settings):
    written = [steps.written(make, device_type="GPU", **settings)]
    job = {"target": target, "jax_python": python, "compiler_seconds": 60}
    model, _ = make()
    paths = dict(layers_in(model))
    return compile_ahead(written, paths, job, lambda line: None)


@pytest.mark.slow
def test_clusters_have_the_shapes_of_their_replicas_rows():
    step = steps.written(normalised, device_type="GPU", rows=26)
    clusters = clusters_of([step])
    assert all(cluster.is_known for cluster in clusters)
    calls = [call for cluster in clusters for call in cluster.calls]
    assert len(calls) == len(set(calls)) == len(step.lowered.clusters)
    first = next(one for one in clusters if "compiled/0_0" in one.calls)
    # 26 rows are 7, 7, 6 and 6; of the four replicas only the first one returns
    # what they share.
    assert first.given[0].shape[0] == 7
    by_rows = {
        call: cluster.given[0].shape[0]
        for cluster in clusters
        for call in cluster.calls
        if call.startswith("compiled/0_") and call[-1].isdigit()
    }
    assert sorted(by_rows.values()) == [6, 6, 7, 7]
    text = lowered(first)
    assert "stablehlo.dot" in text and "tensor<7x6xf32>" in text


def test_sizes_are_known_and_integers_of_the_batch_are_not():
    clusters = clusters_of(
        [steps.written(of_labels, device_type="GPU", rows=24)]
    )
    known = [
        content.tolist()
        for cluster in clusters
        for content in cluster.content
        if content is not None
    ]
    assert [6] in known  # Each replica's part of 24 rows.
    labels = [
        content
        for cluster in clusters
        for static, content in zip(cluster.given, cluster.content)
        if static.shape == (6, 1) and static.dtype == tf.int32
    ]
    assert labels and all(content is None for content in labels)


def test_all_are_lowered_and_the_page_says_what_would_compile_them():
    one = found(normalised)
    assert not one.faults and not one.unknown and one.clusters > 3
    assert one.why_not and one.compiler is None
    assert found(steps.normalised) is None


def test_a_cluster_that_xla_refuses_is_named_by_its_layers():
    def plant(library):
        for function in library:
            for node in function.node_def:
                if node.op == "ResizeBilinear":
                    node.attr["align_corners"].b = True
                    node.attr["half_pixel_centers"].b = True

    one = found(larger, change=plant)
    assert one.faults
    fault = one.faults[0]
    assert fault.startswith("XLA refuses the cluster of ") and "larger" in fault
    assert "half_pixel_centers" in fault


def test_what_depends_on_integers_of_the_batch_is_unknown():
    one = found(of_labels)
    assert not one.faults
    assert any("depends on integers" in line for line in one.unknown)


FAKE = """
import json, sys
def say(**what): print(json.dumps(what), flush=True)
print("a warning of the compiler")
say(compiler="Fake 1")
say(begins=0)
say(program=0, {trivial})
say(begins=1)
say(program=1, seconds=1.5, temporary=4096, libraries=["__cudnn$conv"])
say(begins=2)
say(program=2, refused="UNIMPLEMENTED: no such thing")
say(begins=3)
sys.exit("out of patience")
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Writes a program in the place of the compiler."""

    def write(trivial):
        file = tmp_path / "fake.py"
        file.write_text(FAKE.format(trivial=trivial))
        monkeypatch.setattr(gpu_compiler, "__file__", str(file))
        return functools.partial(
            found, normalised, sys.executable, TARGETS["T4"]
        )

    return write


def test_what_a_compiler_says_is_reported(compiler):
    one = compiler("seconds=0.1, temporary=0, libraries=[]")()
    assert one.compiler == "Fake 1" and one.why_not is None
    (fault,) = one.faults
    assert fault.endswith("on this GPU: UNIMPLEMENTED: no such thing")
    (line,) = one.unknown
    assert line.startswith("the compiler ended, at the cluster of ")
    assert line.endswith("out of patience")
    assert set(one.temporary.values()) == {4096}
    report = one.report()
    assert report["temporary_bytes"] == 4096 and report["seconds"] == 1.5
    assert report["libraries"] == ["__cudnn$conv"]


def test_a_compiler_that_cannot_compile_at_all_accuses_no_model(compiler):
    one = compiler('refused="ptxas too old"')()
    assert not one.faults and not one.temporary
    assert one.why_not == "the compiler can't compile for it: ptxas too old"


def test_a_python_that_is_not_there_is_told():
    one = found(normalised, "/no/such/python", TARGETS["T4"])
    (line,) = one.unknown
    assert line.startswith("the compiler ended: /no/such/python: ")


def test_memory_takes_what_clusters_allocate():
    step = steps.traced(normalised)
    setting = steps.setting(device_type="GPU")
    calls = [
        call
        for cluster in clusters_of(
            [steps.written(normalised, device_type="GPU")]
        )
        for call in cluster.calls
    ]
    peaks = [
        step_peak(step, setting, dict.fromkeys(calls, size)).total
        for size in (1, 10**6)
    ]
    # A device's threads begin two clusters at a time.
    assert 10**6 <= peaks[1] <= 2 * 10**6 + peaks[0]


@pytest.mark.skipif(not JAX_PYTHON, reason="needs KERASMGPU_TEST_JAX_PYTHON")
@pytest.mark.parametrize("gpu", ["T4", "A100-40GB", "L4", "H100-SXM", "B200"])
def test_clusters_are_compiled_for_each_gpu(gpu):
    """Fails if a private name of JAX changes, or a description is refused."""
    one = found(normalised, JAX_PYTHON, TARGETS[gpu])
    assert one.compiler.startswith("JAX ")
    assert (one.faults, one.unknown, one.why_not) == ([], [], None)
    assert len(one.temporary) == sum(
        len(cluster.calls)
        for cluster in clusters_of(
            [steps.written(normalised, device_type="GPU")]
        )
    )


def test_this_python_has_a_compiler_or_the_page_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(compiled_ahead, "_has_compiler", lambda: False)
    one = found(normalised, None, TARGETS["T4"])
    assert one.why_not.startswith('pip install "kerasmgpu[prove]"')


def test_a_gpu_can_be_a_file(tmp_path):
    file = tmp_path / "card.txtpb"
    file.write_text(TARGETS["L4"])
    assert target_of(str(file)) == TARGETS["L4"] == target_of("l4")
    assert memory_of(str(file)) == 24 * 10**9
    assert target_of("24GiB") is None and target_of(None) is None
    file.write_text("platform_name: 'CUDA'")
    with pytest.raises(InputError, match="device_memory_size. It has none"):
        memory_of(str(file))
    with pytest.raises(InputError, match="can't be read"):
        target_of(str(tmp_path / "none.txtpb"))
