"""Results of metrics stay out of a step where nobody looks at them.

At the end of an epoch Keras reads the metrics themselves. What a single step
returns is for callbacks with a hook for batches, the progress bar among them:
without one, a step that adds the metrics up over the replicas and computes
their results does so for nothing. A callback that has such a hook and needs no
results says so by the attribute `reads_batch_logs = False`. Both kinds of step
are made when they are first asked for. Checked on Keras 3.10 and 3.15.
"""

import contextlib
import threading

import keras
from keras.src import utils


class _Thread(threading.local):
    """What this thread's innermost `fit` or `evaluate` is about.

    `unread` is the model and the name of its step whose results nobody reads.
    """

    in_loop = False
    unread = (None, None)


_thread = _Thread()


_HOOKS = {
    "train_step": ("on_batch_end", "on_train_batch_end"),
    "test_step": ("on_test_batch_end",),
}


@contextlib.contextmanager
def loop():
    """Enters a `fit` or `evaluate`; callbacks may call them again."""
    before = _thread.in_loop, _thread.unread
    _thread.in_loop, _thread.unread = True, (None, None)
    try:
        yield
    finally:
        _thread.in_loop, _thread.unread = before


def begin(callback_list, step_name):
    """Notes whether the callbacks of a loop that begins look at its steps.

    Args:
        callback_list: Keras's list of callbacks, of a model in our scope.
        step_name: `"train_step"` or `"test_step"`.
    """
    if not _thread.in_loop:
        return
    model, hooks = callback_list._model, _HOOKS[step_name]
    is_read = any(_looks(each, hooks) for each in callback_list.callbacks)
    # A collective of results needs all workers.
    if not model.distribute_strategy.any_worker(is_read):
        _thread.unread = (model, step_name)


def _looks(callback, hooks):
    """Whether a callback looks at the results of single steps."""
    if isinstance(callback, keras.callbacks.ProgbarLogger):
        if callback._called_in_fit and "on_test_batch_end" in hooks:
            return False
        return callback.verbose == 1  # The bar; 2 is a line per epoch.
    if _only_saves(callback) or not getattr(callback, "reads_batch_logs", True):
        return False
    return any(not utils.is_default(getattr(callback, hook)) for hook in hooks)


def _only_saves(callback):
    """Whether this is one of Keras's that count batches in their hook."""
    for kind in (
        keras.callbacks.ModelCheckpoint,
        keras.callbacks.BackupAndRestore,
    ):
        if isinstance(callback, kind):
            by_epoch = getattr(callback, "save_freq", "epoch") == "epoch"
            hook = type(callback).on_train_batch_end
            return by_epoch and hook is kind.on_train_batch_end
    return False


def is_unread(model, step):
    """Whether nobody looks at the results of single steps.

    Args:
        model: The model whose step runs now.
        step: Its bound `train_step` or `test_step`.
    """
    owner, step_name = _thread.unread
    return owner is model and step_name == step.__name__
