"""Keras's loops: what surrounds `fit` and `evaluate`, and their callbacks.

`fit` is entered in this order, and left in the reverse one, whatever is raised:

1. It is the innermost running one (`fit.Fit`); left, its watcher is told.
2. What callbacks write on workers that are not the first goes to a private
   folder (`writers`).
3. Nothing is known of who looks at the results of its steps (`unread_logs`).

When its callbacks begin: those that look at single steps are counted, all begin
in the strategy's scope, then the watcher is told that the fit is ready.
"""

import contextlib
import inspect

from keras.src.callbacks.callback_list import CallbackList

from kerasmgpu._keras import unread_logs, writers
from kerasmgpu._keras.fit import EpochWatcher, innermost, running
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam
from kerasmgpu._keras.trainers import TensorFlowTrainer, Trainer
from kerasmgpu.errors import InputError


@seam(TensorFlowTrainer, "fit")
def _fit(original, self, *args, **kwargs):
    try:
        given = inspect.signature(original).bind(self, *args, **kwargs)
    except TypeError:
        return original(self, *args, **kwargs)  # Which says what is wrong.
    num_epochs = given.arguments.get("epochs", 1)
    with (
        running(self, num_epochs) as fit,
        writers.private_folder(fit),
        unread_logs.loop(),
    ):
        return original(self, *args, **kwargs)


@seam(TensorFlowTrainer, "evaluate")
def _evaluate(original, self, *args, **kwargs):
    with unread_logs.loop():
        return original(self, *args, **kwargs)


@seam(CallbackList, "set_model")
def _set_model(original, self, model):
    strategy = getattr(model, "distribute_strategy", None)
    if is_ours(strategy):
        writers.redirect(self.callbacks, strategy)
    original(self, model)


@seam(CallbackList, "on_train_begin")
def _on_train_begin(original, self, logs=None):
    strategy = getattr(self._model, "distribute_strategy", None)
    scope = contextlib.nullcontext()
    if is_ours(strategy):
        unread_logs.begin(self, "train_step")
        # Callbacks that restore a model make variables that it lacks as yet.
        scope = strategy.scope()
    with scope:
        fit = innermost()
        if fit is not None and fit.callback_list is None:
            fit.callback_list = self
            fit.watcher = _watcher(self.callbacks)
            begun_by_fit = fit.watcher is not None
        else:
            begun_by_fit = False
        original(self, logs)
        if begun_by_fit:
            fit.ready()


@seam(CallbackList, "on_test_begin")
def _on_test_begin(original, self, logs=None):
    if is_ours(getattr(self._model, "distribute_strategy", None)):
        unread_logs.begin(self, "test_step")
    original(self, logs)


@seam(Trainer, "_get_metrics_result_or_logs")
def _metrics_or_logs(original, self, logs):
    fit = innermost()
    if not logs and fit is not None and fit.model is self and fit.skipped:
        # All steps of the epoch were skipped: only now the data set, whose
        # length is not known, said so. The metrics hold the epoch.
        logs = self.get_metrics_result()
    return original(self, logs)


def _watcher(callbacks):
    watchers = [c for c in callbacks if isinstance(c, EpochWatcher)]
    if len(watchers) > 1:
        names = ", ".join(type(watcher).__name__ for watcher in watchers)
        raise InputError(
            "One fit takes one callback that resumes it. Received: "
            f"callbacks={names}"
        )
    return watchers[0] if watchers else None
