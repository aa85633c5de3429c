"""Numbers of replicas that a command was asked for."""

from kerasmgpu.errors import InputError, checked_integer


def counts_of_flag(texts):
    """What `--replica_counts=1,2,4` stands for.

    Args:
        texts: List of strings. One that is no integer stays as it is, for
            `checked` to name it.
    """
    return [int(text) if text.strip().isdecimal() else text for text in texts]


def checked_counts(replica_counts, minimum=1):
    """The counts as sorted integers, each once.

    Args:
        replica_counts: Sequence of integers.
        minimum: Integer, the least count allowed. Defaults to 1.

    Raises:
        InputError: If there is none, or one is no integer of at least
            `minimum`.

    Example:

    >>> checked_counts([4, 1, 4])
    [1, 4]
    """
    counts = {
        checked_integer(count, "replica_counts", minimum)
        for count in replica_counts
    }
    if not counts:
        raise InputError("replica_counts must name one count at least")
    return sorted(counts)
