"""Divides the GPUs that several workers of a job see among them. Pure.

A launcher that gives each process its GPUs, as ours and
`srun --gpus-per-task=1` do, leaves nothing to divide. `mpirun` and `torchrun`
show all processes all GPUs of their machine. A GPU's UUID tells whether two
workers mean the same one, also in containers that number it differently.
"""

import collections
from collections.abc import Mapping, Sequence

from kerasmgpu.errors import InputError, listed

_MOST_NAMED = 16


def divide(seen: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    """Returns the UUIDs of the GPUs that each worker is to use.

    Workers that see the same GPUs get equally many, in the order of the first
    worker; what doesn't divide evenly stays unused.

    Args:
        seen: Mapping from the index of each worker to the UUIDs that it sees.

    Raises:
        InputError: If workers see some of the same GPUs, but not all, or fewer
            GPUs than there are workers.
    """
    workers_of = collections.defaultdict(list)
    for index in sorted(seen):
        for name in seen[index]:
            workers_of[name].append(index)
    for index, own in seen.items():
        for name in own:
            if workers_of[name] != workers_of[own[0]]:
                others = {*workers_of[name], *workers_of[own[0]]} - {index}
                raise _different(sorted((index, min(others))), seen)
    divided = {}
    for index, own in seen.items():
        sharing = workers_of[own[0]] if own else [index]
        if len(sharing) > len(own) > 0:
            raise _too_few(sharing, len(own))
        count = len(own) // len(sharing)
        first = sharing.index(index) * count
        names = own if len(sharing) == 1 else seen[sharing[0]]
        divided[index] = list(names[first : first + count])
    return divided


def _different(
    pair: list[int], seen: Mapping[int, Sequence[str]]
) -> InputError:
    one, other = pair
    return InputError(
        f"Workers {one} and {other} see some of the same GPUs, but not all. "
        "Give each worker GPUs of its own, or all workers of a machine the "
        "same ones, by CUDA_VISIBLE_DEVICES. Received: "
        f"{', '.join(seen[one])}; {', '.join(seen[other])}"
    )


def _too_few(sharing: Sequence[int], count: int) -> InputError:
    return InputError(
        f"Workers {listed(sharing, _MOST_NAMED)} see the same GPUs, fewer than "
        f"there are workers: {count}. Start at most as many workers on a "
        "machine as it has GPUs, or set CUDA_VISIBLE_DEVICES=-1 to train on CPUs"
    )
