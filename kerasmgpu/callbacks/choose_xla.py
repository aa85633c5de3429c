"""With XLA or without? Both train for a few steps, and the faster one stays."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
from absl import logging

from kerasmgpu.errors import checked_integer
from kerasmgpu.job import workers

_WARM_UP = 2
"""Executions of a block that are not measured: they trace and compile."""

_WORTH = 0.97
"""XLA stays where its step takes less than this share of a step without it.

It compiles again for every new shape, the last batch of an epoch for one.
"""


class ChooseXla(keras.callbacks.Callback):
    """Measures whether `jit_compile=True` trains faster, and keeps what does.

    Keras turns XLA on by itself on one GPU and leaves it off under every
    `tf.distribute` strategy; which is faster depends on the model, the batch
    and the device. This trains the first steps of `fit` in turns without XLA
    and with it, logs both times, and goes on with the faster. They are steps
    like all others, so nothing is lost but the time to compile. The choice
    goes into `model.jit_compile`, and later calls of `fit` keep to it.

    The two round differently, so two runs that choose differently agree to
    rounding only. For runs that are the same bit for bit, give `compile` the
    choice: `jit_compile=True` or `False`.

    Args:
        executions: Integer, how many executions of each kind are measured
            (steps, or `steps_per_execution` of them). Defaults to `20`.

    Raises:
        InputError: If `executions` is no integer above 0.

    Example:

    ```python
    model.fit(dataset, epochs=5, callbacks=[kerasmgpu.callbacks.ChooseXla()])
    ```
    """

    def __init__(self, executions: int = 20) -> None:
        super().__init__()
        self.executions = checked_integer(executions, "executions", 1)
        self._decided = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        _end_trial(model)  # One that an interrupted `fit` has left.
        if model.run_eagerly or self._decided is model:
            return
        previous, model.jit_compile = model.jit_compile, True
        is_possible, model.jit_compile = model.jit_compile, previous
        if is_possible:  # Else Keras has said that it is not.
            holder = _holder(model)
            holder.train_function = _Trial(self, holder.train_function)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        _end_trial(self.model)  # Too few steps.

    def decide(self, seconds: dict[bool, list[float]]) -> bool:
        """Logs and returns the choice.

        Args:
            seconds: Dictionary from `jit_compile` to the seconds of its
                executions.

        Returns:
            The choice as a boolean.
        """
        medians = [statistics.median(seconds[kind]) for kind in (False, True)]
        strategy = self.model.distribute_strategy
        if workers.count(strategy) > 1:
            # All must choose alike; the slowest worker counts.
            medians = workers.gather(strategy, medians).max(0).tolist()
        without, with_xla = (
            1e3 * value / self.model.steps_per_execution for value in medians
        )
        choice = with_xla < _WORTH * without
        logging.info(
            "kerasmgpu: a step takes %.4g ms without XLA and %.4g ms with it; "
            "going on %s it.",
            without,
            with_xla,
            "with" if choice else "without",
        )
        self._decided = self.model
        return choice


class _Trial:
    """Stands in for Keras's `train_function` until the choice is made."""

    def __init__(
        self, callback: ChooseXla, function: Callable[..., Any]
    ) -> None:
        self._callback = callback
        self._model = callback.model
        self._before = bool(self._model.jit_compile)
        self._functions = {self._before: function}
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        # In turns, so that a machine that gets slower is fair to both.
        half = -(-callback.executions // 2)
        self._blocks = [(kind, half) for kind in (False, True)] * 2
        self._done = -_WARM_UP

    def __call__(self, iterator: Any) -> Any:
        kind, length = self._blocks[0]
        # Keras reads it when it makes a function, we when one is traced.
        self._model.jit_compile = kind
        function = self._function(kind)
        start = time.perf_counter()
        logs = function(iterator)
        self._model.optimizer.iterations.numpy()  # Waits for the devices.
        if self._done >= 0:
            self._seconds[kind].append(time.perf_counter() - start)
        self._done += 1
        if self._done == length:
            self._blocks.pop(0)
            self._done = -_WARM_UP
        if not self._blocks:
            self._go_on(self._callback.decide(self._seconds))
        return logs

    def end(self) -> None:
        """Goes back to what the model was compiled for."""
        self._go_on(self._before)

    def _go_on(self, kind: bool) -> None:
        self._model.jit_compile = kind
        _holder(self._model).train_function = self._functions[kind]

    def _function(self, kind: bool) -> Callable[..., Any]:
        if kind not in self._functions:
            wrapped = self._model.train_function
            try:
                self._model.make_train_function(force=True)
                self._functions[kind] = self._model.train_function
            finally:
                self._model.train_function = wrapped
        return self._functions[kind]


def _end_trial(model: keras.Model) -> None:
    """Goes back from a trial without a choice, if there is one."""
    function = _holder(model).train_function
    if isinstance(function, _Trial):
        function.end()


def _holder(model: keras.Model) -> Any:
    """Whose attribute Keras's `train_function` is: the model's or a wrapper's.

    `ThroughputLogger` wraps the function, before or after this callback.
    """
    holder = model
    while hasattr(holder.train_function, "train_function"):
        holder = holder.train_function
    return holder
