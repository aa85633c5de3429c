"""Who takes part in a job, by `TF_CONFIG`."""

import json

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job.cluster import Worker, from_environment


def environ(cluster, task_type="worker", index=0):
    task = {"type": task_type, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_alone():
    assert from_environment({}) is None
    assert from_environment({"TF_CONFIG": ""}) is None
    assert from_environment({"TF_CONFIG": "{}"}) is None
    assert from_environment(environ({"worker": ["a:1"]})) is None


def test_workers():
    worker = from_environment(environ({"worker": ["a:1", "b:1"]}, index=1))
    assert worker == Worker(("a:1", "b:1"), 1)
    assert (worker.num_workers, worker.is_first) == (2, False)


def test_chief_is_the_first_worker():
    cluster = {"worker": ["b:1", "c:1"], "chief": ["a:1"]}
    addresses = ("a:1", "b:1", "c:1")
    chief = from_environment(environ(cluster, "chief"))
    assert chief == Worker(addresses, 0)
    assert chief.is_first
    last = from_environment(environ(cluster, index=1))
    assert last == Worker(addresses, 2)


def test_index_is_a_string_where_tensorflow_takes_one():
    worker = from_environment(environ({"worker": ["a:1", "b:1"]}, index="1"))
    assert worker == Worker(("a:1", "b:1"), 1)


@pytest.mark.parametrize("cluster", [{"worker": ["a:1", "b:1"]}, {"ps": []}])
def test_separate_models_are_not_of_one_job(cluster):
    separate = environ(cluster) | {"KERASMGPU_SEPARATE": "1"}
    assert from_environment(separate) is None


def test_separate_is_yes_or_no():
    with pytest.raises(InputError, match="must be 1 .* or 0. Received: 'yes'"):
        from_environment({"KERASMGPU_SEPARATE": "yes"})
    two = environ({"worker": ["a:1", "b:1"]})
    assert from_environment(two | {"KERASMGPU_SEPARATE": "0"}) is not None


def test_tf_config_comes_back():
    worker = Worker(("[fd00::1]:1", "b:2"), 1)
    assert from_environment({"TF_CONFIG": worker.tf_config()}) == worker
    assert json.loads(worker.tf_config()) == {
        "cluster": {"worker": ["[fd00::1]:1", "b:2"]},
        "task": {"type": "worker", "index": 1},
    }


TWO = {"worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "valid JSON"),
        ("[]", "a JSON object"),
        (json.dumps({"cluster": ["a:1"]}), '"cluster" as an object'),
        (json.dumps({"cluster": {"worker": "a:1"}}), "as a list"),
        (json.dumps({"cluster": TWO}), '"task" with "type" and "index"'),
        (environ(TWO, index=2), '"task" index 0 to 1'),
        (environ(TWO, index=-1), '"task" index 0 to 1'),
        (environ(TWO, index="2"), '"task" index 0 to 1'),
        (environ(TWO, index="1.0"), '"task" index 0 to 1'),
        (environ(TWO, index=True), '"task" index 0 to 1'),
        (environ(TWO, "chief"), '"task" type to be one of'),
        (environ(TWO, ["worker"]), '"task" type to be one of'),
        (environ(TWO | {"ps": ["c:1"]}), "parameter servers.*: ps"),
        (environ(TWO | {"evaluator": ["c:1"]}), "evaluator"),
        (environ(TWO | {"chief": ["c:1", "d:1"]}), 'one "chief" at most'),
        (environ({"worker": ["a:1", "b"]}), "host:port.*'b'"),
        (environ({"worker": ["a:1", 5]}), "host:port.*5"),
        (environ({"worker": ["a:1", "a:1"]}), "twice: a:1"),
    ],
)
def test_wrong_tf_config(text, message):
    if isinstance(text, str):
        text = {"TF_CONFIG": text}
    with pytest.raises(InputError, match=message) as error:
        from_environment(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("index", [-1, 2, True, 0.0, None])
def test_wrong_index(index):
    with pytest.raises(InputError, match="index must be 0 to 1"):
        Worker(("a:1", "b:1"), index)
