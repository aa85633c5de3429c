"""What cases do on one device: once for all tests, and all their processes."""

import fcntl
import pickle

from benchmarks.exactness import harness

# The loss, the metrics and the optimizer have no part in a prediction: what
# cases of these groups would predict, the same nets of other groups do.
NOT_PREDICTED = {"losses", "metrics", "optimizers"}
# Of them, those whose outputs are like no other's.
PREDICTED = {
    "masked loss per token",
    "predictions without a feature axis",
    "weights of two types",
    "mixed float16",
}


def is_predicted(case):
    """Whether a case's predictions are compared, too."""
    return case.group not in NOT_PREDICTED or case.name in PREDICTED


def outcome(case, folder):
    """`harness.Outcome` of a case, from a file that the first test writes.

    Args:
        case: `cases.Case`.
        folder: Path of a folder that all of pytest's processes share.
    """
    path = folder / f"{case.name}.pickle"
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        written = file.read()
        if not written:
            found = harness.run(case, predicts=is_predicted(case))
            written = pickle.dumps(found)
            file.write(written)
    return pickle.loads(written)
