"""The command, as a user runs it."""

import json

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.prove import proof_report, prove
from tests import console

MODULE = """
import keras
import numpy as np

def build():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh")])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(26, 6)).astype("float32")
    return model, (x, x[:, :1])
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "of_mine.py").write_text(MODULE)
    return tmp_path


@pytest.mark.slow
def test_the_page_and_the_report(folder):
    done = console.run(
        *"prove of_mine:build --replicas=4 --num_workers=2 --nonumbers".split(),
        *"--gpu=1KiB --shard=weights --min_shard_bytes=0".split(),
        "--output=proof.json",
        folder=folder,
    )
    # Neither kernels nor order are at fault, but nothing fits in a kilobyte.
    assert done.returncode == 1, done.stderr
    report = json.loads((folder / "proof.json").read_text())
    assert not report["is_proved"]
    (fault,) = proof_report.faults(report)
    assert "memory does not fit" in fault
    assert report["order"]["faults"] == []
    assert report["order"]["longest_chain"] >= 2
    assert report["kernels"] is None or report["kernels"]["on_gpus"] > 50
    text = " ".join(done.stdout.split())
    assert "4 × 1KiB of 2 workers, shard=weights" in text
    assert f"FAULT: {fault}" in text
    assert "NOT PROVED: 1 fault." in text


@pytest.mark.slow
def test_numbers_are_those_of_one_device(folder):
    build = f"{folder / 'of_mine.py'}:build"
    report = prove(build, replicas=3, micro_batches=2, steps=2, show=False)
    assert report["is_proved"], proof_report.faults(report)
    (run,) = report["numbers"]["runs"]
    assert run["verdict"] == "equal" and "checks" in run["float64"]


@pytest.mark.slow
def test_a_layout_is_found_for_a_mesh(folder):
    done = console.run(
        *"prove of_mine:build --mesh=2,2 --steps=2 --output=proof.json".split(),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "proof.json").read_text())
    assert report["mesh"] == {"batch": 2, "model": 2}
    assert report["replicas"] == 4
    found = {key: tuple(axes) for key, axes in report["layouts"].items()}
    assert found["sequential/dense/kernel"] == (None, "model")
    text = " ".join(done.stdout.split())
    assert "4 × GPU, mesh=batch=2, model=2" in text
    assert "found: layouts['sequential/dense/kernel'] = (None, 'model')" in text
    (run,) = report["numbers"]["runs"]
    assert run["replicas"] == 4 and run["verdict"] == "equal"


@pytest.mark.parametrize(
    "arguments, told",
    [
        ({"mesh": (2, 2), "replicas": 8}, "leave out replicas"),
        ({"mesh": "2x2"}, "the sizes of its axes"),
        ({"mesh": (4,), "shard": "weights"}, "a mesh has two axes"),
        ({"mesh": (3, 2), "num_workers": 4}, "multiple of num_workers"),
    ],
)
def test_a_mesh_that_is_none(arguments, told):
    with pytest.raises(InputError, match=told):
        prove("of_mine:build", show=False, **arguments)


ON_A_MESH = (
    MODULE
    + """

of_all = build

def build():
    devices = keras.distribution.list_devices()[:4]
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["sequential/dense/kernel"] = (None, "model")
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(layout_map=layouts)
    )
    return of_all()
"""
)


@pytest.mark.slow
def test_a_programs_mesh_has_other_devices(folder):
    (folder / "of_a_mesh.py").write_text(ON_A_MESH)
    done = console.run("prove", "of_a_mesh:build", folder=folder)
    assert done.returncode == 1
    assert "Received: replicas=8, and a mesh {'batch': 2, 'model': 2}" in (
        done.stderr
    )
    assert "give replicas=4" in done.stderr


FAULTY = (
    MODULE
    + """

from kerasmgpu.partitioner.runtime.program import Program

emitted = Program.emitted

def left_out(library):
    '''An update of the second GPU's copy.'''
    nodes = library[-1].node_def
    updates = [
        n for n in nodes
        if n.op == "AssignVariableOp" and "PU:1" in n.device and "/sgd/" in n.name
    ]
    if updates:
        one = updates[-1]
        waits = [text for text in one.input if text[0] == "^"]
        del one.input[:]
        one.input.extend(waits)
        one.op = "NoOp"
        one.attr.clear()

def alone(library):
    '''A GPU's sum is its own part.'''
    nodes = library[-1].node_def
    for one in nodes:
        if one.op == "CollectiveReduceV2" and "PU:1" in one.device:
            for other in nodes:
                for n, text in enumerate(other.input):
                    if text == one.name + ":data:0":
                        other.input[n] = one.input[0]

def changed(program, with_outputs=True):
    made = emitted(program, with_outputs)
    FAULT(made.build.library)
    return made

Program.emitted = changed
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, words",
    [("left_out", "copies"), ("alone", "program of GPUs: ")],
)
def test_a_wrong_number_is_a_fault(tmp_path, fault, words):
    file = tmp_path / "of_mine.py"
    file.write_text(FAULTY.replace("FAULT(", f"{fault}("))
    report = prove(f"{file}:build", replicas=2, steps=2, show=False)
    assert not report["is_proved"]
    assert any(words in one for one in proof_report.faults(report))


NOTHING = {
    "model": "m",
    "parameters": 1,
    "global_batch_size": 2,
    "workers": 1,
    "gpu": "24GiB",
    "usable": 1 << 30,
    "replicas": 2,
    "settings": {"shard": "none", "micro_batches": 1, "min_shard_bytes": 0},
    "mesh": None,
    "layouts": None,
    "kernels": None,
    "order": {"collectives": 0, "longest_chain": 0, "faults": []},
    "xla": None,
    "memory": None,
    "numbers": None,
    "why_no_numbers": "not asked for",
}


def test_what_is_unknown_is_no_fault(capsys):
    proof_report.print_proof(NOTHING)
    text = " ".join(capsys.readouterr().out.split())
    assert "tensorflow-cpu doesn't" in text
    assert "there is no collective" in text
    assert "No fault found; kernels and numbers were not checked" in text


@pytest.mark.parametrize(
    "found, words",
    [
        (
            {"order": {**NOTHING["order"], "faults": ["first before second"]}},
            "FAULT: first before second",
        ),
        (
            {
                "numbers": {
                    "in_parity": False,
                    "not_reproducible": None,
                    "runs": [
                        {
                            "replicas": 2,
                            "in_parity": False,
                            "causes": ["a sum over the wrong group"],
                        }
                    ],
                }
            },
            "program of GPUs: a sum over the wrong group",
        ),
        (
            {
                "numbers": {
                    "in_parity": False,
                    "not_reproducible": None,
                    "runs": [
                        {"replicas": 2, "in_parity": False, "failed": "broke"}
                    ],
                }
            },
            "on logical CPUs, failed: broke",
        ),
    ],
)
def test_a_fault_is_printed(capsys, found, words):
    report = NOTHING | found
    assert len(proof_report.faults(report)) == 1
    proof_report.print_proof(report)
    assert words in " ".join(capsys.readouterr().out.split())
