"""Find the batch size and the learning rate by short training runs.

* `batch_size`: starts processes that measure batch sizes; the table, the plot;
* `batch_size_search`: which size to measure next, and the recommendation;
* `batch_size_measuring`: the process that measures;
* `learning_rate`: the range test of a learning rate; the plot;
* `learning_rate_choice`: smooths losses, and suggests a learning rate;
* `batch_size_command`, `learning_rate_command`: the commands.
"""

from typing import Any

__all__ = ["find_batch_size", "find_learning_rate"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: the range test needs TensorFlow.
    if name == "find_batch_size":
        from kerasmgpu.finders.batch_size import find_batch_size

        return find_batch_size
    if name == "find_learning_rate":
        from kerasmgpu.finders.learning_rate import find_learning_rate

        return find_learning_rate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
