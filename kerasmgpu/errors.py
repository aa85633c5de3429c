"""The one exception that means "the user can mend this"."""


class InputError(ValueError):
    """Something the user gave can't be used as it is.

    The message is one line: what arrived, what was expected and how to go on.
    Commands print it without a traceback and exit with status 1; any other
    exception is a defect of ours (or of the user's own code) and keeps its
    traceback. It is a `ValueError`, so library callers need no import to
    catch it.

    Example:

    ```python
    raise InputError(
        "num_replicas must be at least 1. Received: num_replicas=0"
    )
    ```
    """
