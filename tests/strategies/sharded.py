"""Strategies that shard, and models under them, for tests."""

import kerasmgpu


def mirrored(num_replicas, shard, min_shard_bytes=0, micro_batches=1):
    """A strategy of logical CPU devices that shards small variables, too."""
    devices = [f"CPU:{number}" for number in range(num_replicas)]
    return kerasmgpu.MirroredStrategy(
        devices,
        shard=shard,
        min_shard_bytes=min_shard_bytes,
        micro_batches=micro_batches,
    )


def axes_of(model):
    """The axis on which each variable is sharded, by path; `None` for none."""
    return {
        variable.path: getattr(variable.value, "shard_axis", None)
        for variable in model.weights + model.optimizer.variables
    }
