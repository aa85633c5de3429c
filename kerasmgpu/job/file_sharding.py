"""Selects whether workers shard a data set by files or by rows."""

from typing import Any

import tensorflow as tf
from absl import logging

from kerasmgpu.engine import pipelines
from kerasmgpu.errors import InputError

_said = set()


def by_files(
    dataset: tf.data.Dataset, num_workers: int, automatic: bool = True
) -> bool:
    """Whether each worker reads different files; logs the choice once.

    True for the `auto_shard_policy` `FILE`, for `OFF` (the user has sharded the
    data), and for `AUTO` if the data set reads at least as many files as there
    are workers. Otherwise (`DATA`) every worker reads all rows and takes its
    share of each batch.

    Args:
        dataset: `tf.data.Dataset` of global batches.
        automatic: Boolean, whether `AUTO` may choose files. Defaults to `True`.

    Returns:
        Boolean; always `False` with one worker.
    """
    if num_workers == 1:
        return False
    policies, policy = _policies(dataset)
    num_files = pipelines.num_files(dataset)
    divided = policy in (policies.FILE, policies.OFF) or (
        automatic and policy == policies.AUTO and num_files >= num_workers
    )
    if (divided, policy, num_files) not in _said:
        _said.add((divided, policy, num_files))
        _say(divided, policy, num_files, num_workers)
    return divided


def require_whole(dataset: tf.data.Dataset, num_workers: int) -> None:
    """Checks that a data set says nowhere that workers read different rows.

    Raises:
        InputError: For the `auto_shard_policy` `FILE` or `OFF` in a job.
    """
    policies, policy = _policies(dataset)
    if num_workers > 1 and policy in (policies.FILE, policies.OFF):
        raise InputError(
            "On a mesh that divides variables all workers must read the same "
            "batches. Received: a data set with the "
            f"auto_shard_policy {policy.name}; leave the option out, and give "
            "each worker all of the data"
        )


def _policies(dataset: tf.data.Dataset) -> tuple[Any, Any]:
    """Returns the enumeration of policies, and the data set's own."""
    options = dataset.options().experimental_distribute
    return tf.data.experimental.AutoShardPolicy, options.auto_shard_policy


def _say(
    divided: bool,
    policy: tf.data.experimental.AutoShardPolicy,
    num_files: int,
    num_workers: int,
) -> None:
    if not divided:
        logging.info(
            "kerasmgpu: each of the %d workers reads all of the data and takes "
            "its rows of every batch.",
            num_workers,
        )
        return
    logging.warning(
        "kerasmgpu: each of the %d workers reads its own part of the data (%d "
        "files, auto_shard_policy %s): every row is used once per epoch, in "
        "other batches than one process would make. For the same batches, set "
        "`options.experimental_distribute.auto_shard_policy` of the data set "
        "to DATA: every worker then reads all files.",
        num_workers,
        num_files,
        policy.name,
    )
