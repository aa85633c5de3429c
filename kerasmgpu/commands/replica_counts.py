"""Parses and checks the `--replica_counts` of commands."""

from kerasmgpu.errors import InputError, checked_integer


def counts_of_flag(texts):
    """Returns the integers of `--replica_counts=1,2,4`.

    Args:
        texts: List of strings. One that is not an integer is returned as it
            is, so that `checked_counts` can name it in its error.
    """
    return [int(text) if text.strip().isdecimal() else text for text in texts]


def checked_counts(replica_counts, minimum=1):
    """Returns the counts as sorted integers without duplicates.

    Args:
        replica_counts: Sequence of integers.
        minimum: Integer, the least count allowed. Defaults to 1.

    Raises:
        InputError: If it is empty, or a count is not an integer of at least
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
