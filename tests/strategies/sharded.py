"""Strategies that shard, and models under them, for tests."""

import contextlib
import dataclasses
import itertools

import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.engine.extended import LocalExtended
from kerasmgpu.partitioner.lowering import collectives, communicators
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from kerasmgpu.strategies.sharding import Sharding
from tests.devices import device_names


def mirrored(
    num_replicas,
    shard,
    min_shard_bytes=0,
    micro_batches=1,
    shard_over=None,
    **settings,
):
    """A strategy of logical CPU devices that shards small variables, too.

    `settings` are other arguments of the strategy.
    """
    devices = settings.pop("devices", device_names(num_replicas))
    return kerasmgpu.MirroredStrategy(
        devices,
        shard=shard,
        min_shard_bytes=min_shard_bytes,
        micro_batches=micro_batches,
        shard_over=shard_over,
        **settings,
    )


class RandomAxes(Sharding):
    """Divides variables along random axes, each along one mesh axis at most.

    Slots are divided as their weights.

    Args:
        sizes: Tuple of the sizes of the mesh axes.
        random_of: Function of a `NewVariable` that returns a `random.Random`.
    """

    def __init__(self, sizes, random_of):
        super().__init__("weights", 0, lambda: sizes)
        self._random_of = random_of

    def _axes(self, variable, reference):
        if reference is not None:
            return reference
        left = [None] * len(self.axes) + list(range(len(variable.shape)))
        self._random_of(variable).shuffle(left)
        axes = tuple(left[: len(self.axes)])
        return None if set(axes) == {None} else axes


def axes_of(model):
    """The axis on which each variable is sharded, by path; `None` for none."""
    return {
        variable.path: getattr(variable.value, "shard_axes", (None,))[0]
        for variable in model.weights + model.optimizer.variables
    }


@contextlib.contextmanager
def pretended_worker(index, num_workers, shares_memory=True, **fields):
    """In this context strategies are those of one worker of a job.

    No other worker is there: steps can be written, and can't run.

    Args:
        index: The worker's number.
        num_workers: Workers of the job.
        shares_memory: Whether its devices share memory, as CPUs do.
        **fields: Other arguments of `Mesh.on`.
    """

    def replicas(self, mesh, agreement, together):
        worker = index, num_workers, shares_memory
        return collectives.CollectiveReplicas(
            Mesh.on(mesh.devices, mesh.host, *worker, **fields)
        )

    def gathered(self, own):
        return tf.zeros(self.shape, self.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExtended, "replicas", replicas)
        patch.setattr(ShardedVariable, "_gathered", gathered)
        # A process counts its groups, as all workers do from the first one on.
        patch.setattr(communicators, "_groups", itertools.count(70_000))
        yield


@contextlib.contextmanager
def pretended_devices(shares_memory):
    """In this context devices share memory, or are fed and read as GPUs are."""
    original = LocalExtended.replicas

    def replicas(self, mesh, *arguments):
        mesh = dataclasses.replace(mesh, shares_memory=shares_memory)
        return original(self, mesh, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalExtended, "replicas", replicas)
        yield
