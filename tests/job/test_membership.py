"""What a worker says about its error before it ends."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from kerasmgpu.hardware import cuda_devices
from kerasmgpu.job import membership, rendezvous
from kerasmgpu.job.cluster import Worker


class Watch:
    """Of a job in which nobody is lost."""

    def wait_for_a_loss(self, seconds):
        return False


@pytest.mark.parametrize(
    "message, is_told",
    [
        ("Collective instance 150 expected type 0 but got type 3", True),
        ("Collective ops is aborted by: something else", False),
    ],
)
def test_workers_in_different_collectives_are_told_so(message, is_told, caplog):
    error, reported = tf.errors.InternalError(None, None, message), []
    membership._report(
        Watch(),
        Worker(("a:1", "b:2"), 1),
        lambda frames: ("step", "in step 2"),
        lambda *given: reported.append(given),
        type(error),
        error,
        None,
    )
    assert reported == [(type(error), error, None)]
    assert ("in another collective" in caplog.text) == is_told


@pytest.mark.parametrize("divides", [True, False])
def test_a_worker_hides_the_gpus_of_the_others(divides, monkeypatch):
    gpus = [SimpleNamespace(name=f"/physical_device:GPU:{n}") for n in (0, 3)]
    hidden, seen = [], []
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(
        tf.config, "set_visible_devices", lambda *given: hidden.append(given)
    )
    monkeypatch.setattr(cuda_devices, "uuids", lambda n: [f"GPU-{n}", "MIG"])

    def meet(worker, seconds, token, uuids):
        seen.extend(uuids)
        return uuids[1:]

    monkeypatch.setattr(rendezvous, "meet", meet)
    worker = Worker(("a:1", "b:1"), 1)
    assert membership.meet(worker, 1, "", divide_gpus=divides) is worker
    assert seen == (["GPU-0", "GPU-3"] if divides else [])
    assert hidden == ([([gpus[1]], "GPU")] if divides else [])
