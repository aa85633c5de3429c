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
from keras.src.callbacks.callback_list import CallbackList


class _Thread(threading.local):
    """What this thread's innermost `fit` or `evaluate` is about.

    `begun` is its list of callbacks and the name of its step; `unread` the
    model and the name of the step whose results nobody reads, when it takes
    batches of `iterator`.
    """

    in_loop = False
    begun = None
    unread = (None, None)
    iterator = None


_thread = _Thread()


_HOOKS = {
    "train_step": ("on_batch_end", "on_train_batch_end"),
    "test_step": ("on_test_batch_end",),
}


@contextlib.contextmanager
def loop():
    """Enters a `fit` or `evaluate`; callbacks may call them again."""
    before = dict(vars(_thread))
    vars(_thread).clear()
    _thread.in_loop = True
    try:
        yield
    finally:
        vars(_thread).clear()
        vars(_thread).update(before)


def begin(callback_list, step_name):
    """Notes whether the callbacks of a loop that begins look at its steps.

    Args:
        callback_list: Keras's list of callbacks, of a model in our scope.
        step_name: `"train_step"` or `"test_step"`.
    """
    if _thread.in_loop:
        _thread.begun = callback_list, step_name
        look_again()


def look_again():
    """Does so for an epoch that begins: callbacks may have changed."""
    if _thread.begun is None:
        return
    callback_list, step_name = _thread.begun
    model, hooks = callback_list._model, _HOOKS[step_name]
    is_read = any(_looks(each, hooks) for each in callback_list.callbacks)
    if any(
        hook in vars(kind) for kind in _own(callback_list) for hook in hooks
    ):
        is_read = True
    # A collective of results needs all workers.
    is_read = model.distribute_strategy.any_worker(is_read)
    _thread.unread = (None, None) if is_read else (model, step_name)


def _own(callback_list):
    """Classes of a user's own that a list of callbacks is of."""
    return [
        kind
        for kind in type(callback_list).__mro__
        if issubclass(kind, CallbackList) and kind is not CallbackList
    ]


def comes_next(iterator):
    """Notes the iterator that Keras is about to give to a step."""
    if _thread.in_loop:  # Nobody else lets go of it.
        _thread.iterator = iterator


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


def is_unread(model, steps, step, iterator):
    """Whether nobody looks at the results of single steps.

    Args:
        model: The model whose step runs now.
        steps: What Keras calls for it, unless somebody stands in between.
        step: Its bound `train_step` or `test_step`.
        iterator: What the step takes its batch from.
    """
    owner, step_name = _thread.unread
    if owner is not model or step_name != step.__name__:
        return False
    called = {"train_step": "train_function", "test_step": "test_function"}
    function = getattr(model, called[step_name])
    # Our own callbacks stand in between, with iterators of their own.
    while hasattr(function, "train_function"):
        function = function.train_function
    source = getattr(iterator, "iterator", iterator)
    return function is steps and source is _thread.iterator
