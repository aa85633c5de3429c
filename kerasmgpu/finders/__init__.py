"""Finds the batch size and the learning rate by short training runs.

* `batch_size`: starts processes that measure batch sizes;
* `batch_size_report`: the result, its table and its plot;
* `batch_size_search`: which size to measure next, and the recommendation;
* `batch_size_measuring`: the process that measures;
* `learning_rate`: suggests a learning rate by a range test; the plot;
* `range_test`: trains with a growing rate, and restores the model;
* `learning_rate_choice`: what suggests a learning rate, from losses;
* `batch_size_command`, `learning_rate_command`: the commands.
"""

from kerasmgpu import _import_on_use
from kerasmgpu.finders.batch_size import find_batch_size
from kerasmgpu.finders.learning_rate import find_learning_rate

_import_on_use(__name__)

__all__ = ["find_batch_size", "find_learning_rate"]
