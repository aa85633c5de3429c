"""Everything that reaches past the public API of Keras and TensorFlow.

Keras calls `tf.distribute` at a handful of seams. `install()` puts a
dispatcher at each (`seams.py`): inside a step of one of our strategies it calls
the exact piece in `kerasmgpu/step/`, everywhere else the original, so nothing
changes for models that were not built in our scope. The other files hold the
seams by subject and say what each is for; `seams.SEAMS` lists the names, which
`tests/test_keras_seams.py` checks one by one. Checked on Keras 3.10 and 3.15
with TensorFlow 2.18 and 2.21.
"""

from kerasmgpu._keras import (  # noqa: F401
    epochs,
    losses,
    metrics,
    optimizers,
    random,
    updates,
    writers,
)
from kerasmgpu._keras.engine import (
    WorkerExtended,
    abort_collectives,
    global_seed,
    has_started,
    share_names_of_copies,
)
from kerasmgpu._keras.files import num_files
from kerasmgpu._keras.layers import is_alike
from kerasmgpu._keras.seams import install
from kerasmgpu._keras.state import layer_states
from kerasmgpu._keras.threads import set_thread_state, thread_state
from kerasmgpu._keras.trainer import trainer_of
from kerasmgpu._keras.unread_logs import leaves_out_results

__all__ = [
    "WorkerExtended",
    "abort_collectives",
    "global_seed",
    "has_started",
    "install",
    "is_alike",
    "layer_states",
    "leaves_out_results",
    "num_files",
    "set_thread_state",
    "share_names_of_copies",
    "thread_state",
    "trainer_of",
]
