"""Seams of `fit` and `evaluate`, and of their callbacks' first hooks.

`fit` enters four contexts in this order, and leaves them in reverse, on
exceptions too:

1. `fit.running`: the innermost running `Fit`; its end is reported to its
   watcher.
2. `writers.private_folder`: callbacks' files on workers other than the first
   go to a private folder.
3. `step_hooks.scope`: hooks that callbacks add around the training step.
4. `unread_logs.loop`: a new record of whether callbacks read batch logs.

`on_train_begin` looks for callbacks that read batch logs, times the callbacks
from then on if one shows it, runs all callbacks in the strategy's scope, then
calls the watcher's `on_fit_ready`.
"""

import contextlib
import inspect
import sys
from typing import Any

import keras
from keras.src.callbacks.callback_list import CallbackList

from kerasmgpu._keras import (
    scope,
    step_hooks,
    timed_callbacks,
    unread_logs,
    writers,
)
from kerasmgpu._keras.fit import EpochWatcher, innermost, running
from kerasmgpu._keras.versions import TensorFlowTrainer, Trainer
from kerasmgpu.engine import fit_clock
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.errors import InputError


@seam(TensorFlowTrainer, "fit")
def _fit(original: Original, self: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        given = inspect.signature(original).bind(self, *args, **kwargs)
    except TypeError:
        return original(self, *args, **kwargs)  # Keras raises its TypeError.
    num_epochs = given.arguments.get("epochs", 1)
    with (
        scope.of_model(self),
        running(self, num_epochs) as fit,
        writers.private_folder(fit),
        step_hooks.scope(self),
        unread_logs.loop(),
    ):
        return original(self, *args, **kwargs)


@seam(TensorFlowTrainer, "predict")
@seam(TensorFlowTrainer, "train_on_batch")
@seam(TensorFlowTrainer, "test_on_batch")
@seam(TensorFlowTrainer, "predict_on_batch")
def _run(original: Original, self: Any, *args: Any, **kwargs: Any) -> Any:
    with scope.of_model(self):
        return original(self, *args, **kwargs)


@seam(TensorFlowTrainer, "evaluate")
def _evaluate(original: Original, self: Any, *args: Any, **kwargs: Any) -> Any:
    # Within a callback, the time is the callback's.
    is_validation = kwargs.get("_use_cached_eval_dataset", False)
    with contextlib.ExitStack() as stack:
        if is_validation:
            stack.enter_context(fit_clock.within(fit_clock.VALIDATION))
        stack.enter_context(scope.of_model(self))
        return _evaluated(original, self, *args, **kwargs)


def _evaluated(original: Original, self: Any, *args: Any, **kwargs: Any) -> Any:
    strategy = self.distribute_strategy
    in_job = is_ours(strategy) and strategy.num_workers > 1
    if in_job and strategy.extended.announce is not None:
        raise InputError(
            "evaluate must be called on every worker. Received: a call in a "
            "callback that runs on the first worker only; use validation_data, "
            "or a callback without OnFirstWorker."
        )
    before = getattr(self.test_function, "executions", 0)
    with unread_logs.loop():
        result = original(self, *args, **kwargs)
    if in_job and hasattr(self.test_function, "executions"):
        _require_same(
            strategy.of_each_worker(self.test_function.executions - before)
        )
    return result


def _require_same(executions: list[int]) -> None:
    """Raises if workers evaluated different numbers of batches.

    No collective would show it: each replica sums its own rows' metrics, and
    the sums are added once, at the end.
    """
    if len(set(executions)) > 1:
        found = ", ".join(
            f"worker {number} {count}"
            for number, count in enumerate(executions)
        )
        raise InputError(
            "All workers must evaluate the same batches: give each the same "
            "data, and the same steps or validation_steps. Received: "
            f"executions of the test step: {found}"
        )


@seam(CallbackList, "set_model")
def _set_model(original: Original, self: Any, model: Any) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    if is_ours(strategy):
        writers.redirect(self.callbacks, strategy)
        if not strategy.is_first_worker:
            # Followers' hooks are collectives: not in Keras's threads.
            self._configure_async_dispatch(self.callbacks)
    original(self, model)


@seam(CallbackList, "on_train_begin")
def _on_train_begin(
    original: Original, self: Any, logs: dict[str, Any] | None = None
) -> None:
    strategy = getattr(self._model, "distribute_strategy", None)
    context: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if is_ours(strategy):
        unread_logs.begin(self, "train_step")
        # Callbacks that restore a model create its missing variables.
        context = strategy.scope()
    with context:
        fit = innermost()
        if fit is None:
            _require_made_before(self.callbacks)
        is_first = fit is not None and fit.callback_list is None
        if fit is not None and is_first:
            scope.warn_if_forgotten(fit.model)
            fit.callback_list = self
            fit.watcher = _watcher(self.callbacks)
            timed_callbacks.begin(self, fit.clock)
            fit.clock.switch(fit_clock.OTHER)
        original(self, logs)
        if fit is not None and is_first and fit.watcher is not None:
            with fit.clock.within(fit_clock.CHECKPOINTS):
                fit.ready()


@seam(CallbackList, "on_test_begin")
def _on_test_begin(
    original: Original, self: Any, logs: dict[str, Any] | None = None
) -> None:
    if is_ours(getattr(self._model, "distribute_strategy", None)):
        unread_logs.begin(self, "test_step")
    original(self, logs)


@seam(Trainer, "_get_metrics_result_or_logs")
def _metrics_or_logs(
    original: Original, self: Any, logs: dict[str, Any] | None
) -> Any:
    fit = innermost()
    if fit is not None and fit.clock.kind in fit_clock.BETWEEN_STEPS:
        # A callback ended the epoch before its last step.
        fit.clock.switch(fit_clock.OTHER)
    if not logs and fit is not None and fit.model is self and fit.skipped:
        # All steps of the epoch were skipped, which shows only here if the
        # length of the data is unknown. The restored metrics are the epoch's.
        logs = self.get_metrics_result()
    return original(self, logs)


def _require_made_before(callbacks: list[keras.callbacks.Callback]) -> None:
    """Raises if `fit` was called before it was patched.

    `model.fit(…, callbacks=[Checkpoint(…)])` looks `fit` up first, then makes
    the callback, which installs the patches.
    """
    ours = [
        type(callback).__name__
        for callback in callbacks
        if type(callback).__module__.startswith("kerasmgpu.")
    ]
    frame = sys._getframe() if ours else None
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if (frame.f_code.co_name, module) == (
            "fit",
            TensorFlowTrainer.__module__,
        ):
            raise InputError(
                "Make the callbacks of kerasmgpu in a line before the one that "
                "calls fit: making the first one prepares Keras for them. "
                f"Received: callbacks={', '.join(ours)}, made in the call of fit"
            )
        frame = frame.f_back


def _watcher(callbacks: list[keras.callbacks.Callback]) -> EpochWatcher | None:
    watchers = [c for c in callbacks if isinstance(c, EpochWatcher)]
    if len(watchers) > 1:
        names = ", ".join(type(watcher).__name__ for watcher in watchers)
        raise InputError(
            "fit takes one callback that resumes training. Received: "
            f"callbacks={names}"
        )
    return watchers[0] if watchers else None
