"""The `ChooseXla` callback: times steps with and without XLA, then chooses."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
from absl import logging

from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks
from kerasmgpu.errors import checked_integer
from kerasmgpu.job import workers

_WARM_UP = 2
"""Executions at the start of a block that are not timed: they may compile."""

_WORTH = 0.97
"""XLA is chosen if a step takes less than this share of a step without it.

The margin pays for recompiling on every new shape, such as an epoch's last
batch.
"""


class ChooseXla(keras.callbacks.Callback):
    """Times training with and without `jit_compile`; keeps the faster setting.

    Keras turns XLA on by itself on one GPU and leaves it off under every
    `tf.distribute` strategy; which is faster depends on the model, the batch
    and the device. This callback alternates between training without XLA and
    with it for the first steps of `fit`, logs both times, and continues with
    the faster setting. These are ordinary training steps, so the only cost is
    the time to compile. The choice is stored in `model.jit_compile`; later
    calls of `fit` use it.

    XLA rounds differently, so two runs that choose differently are equal up to
    rounding only. For runs that are equal bit for bit, pass `jit_compile=True`
    or `False` to `compile` instead.

    Args:
        executions: Integer, number of timed executions of each kind (an
            execution is `steps_per_execution` steps). Defaults to `20`.

    Raises:
        InputError: If `executions` is not an integer above 0.

    Example:

    ```python
    model.fit(dataset, epochs=5, callbacks=[kerasmgpu.callbacks.ChooseXla()])
    ```
    """

    def __init__(self, executions: int = 20) -> None:
        super().__init__()
        self.executions = checked_integer(executions, "executions", 1)
        self._decided: keras.Model | None = None
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        if model.run_eagerly or self._decided is model:
            return
        previous, model.jit_compile = model.jit_compile, True
        is_possible, model.jit_compile = model.jit_compile, previous
        if is_possible:  # Else Keras has reset it, with a warning.
            _Trial(self)

    def decide(self, seconds: dict[bool, list[float]]) -> bool:
        """Chooses whether to use XLA; collective between workers.

        Logs both medians. Later `fit`s of this model are not timed again.

        Args:
            seconds: Dictionary from `jit_compile` to the list of the seconds
                of its executions.

        Returns:
            Boolean, the value for `jit_compile`. `True` if XLA is faster by
            a margin (`_WORTH`).
        """
        medians = [statistics.median(seconds[kind]) for kind in (False, True)]
        strategy = self.model.distribute_strategy
        if workers.count(strategy) > 1:
            # All workers must choose alike: compare the slowest worker's times.
            medians = workers.gather(strategy, medians).max(0).tolist()
        without, with_xla = (
            1e3 * value / self.model.steps_per_execution for value in medians
        )
        choice = with_xla < _WORTH * without
        logging.info(
            "kerasmgpu: a step takes %.4g ms without XLA and %.4g ms with it; "
            "training continues %s it.",
            without,
            with_xla,
            "with" if choice else "without",
        )
        self._decided = self.model
        return choice


class _Trial(step_hooks.StepHook):
    """Runs each execution with or without XLA, until the choice is made."""

    def __init__(self, callback: ChooseXla) -> None:
        self._callback = callback
        self._model = callback.model
        self._steps = step_hooks.add(callback.model, self, innermost=True)
        self._kind = bool(self._model.jit_compile)
        self._functions = {self._kind: self._steps.function}
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        # Two blocks of each, alternating: a machine that becomes slower during
        # the trial affects both.
        half = -(-callback.executions // 2)
        self._blocks = [(kind, half) for kind in (False, True)] * 2
        self._done = -_WARM_UP

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        kind, length = self._blocks[0]
        self._use(kind)
        start = time.perf_counter()
        logs = run(iterator)
        self._model.optimizer.iterations.numpy()  # Waits for the devices.
        if self._done >= 0:
            self._seconds[kind].append(time.perf_counter() - start)
        self._done += 1
        if self._done == length:
            self._blocks.pop(0)
            self._done = -_WARM_UP
        if not self._blocks:
            self._kind = self._callback.decide(self._seconds)
            step_hooks.remove(self._model, self)
        return logs

    def on_removed(self) -> None:
        """Applies the choice or, if there is none yet, the earlier setting."""
        self._use(self._kind)

    def _use(self, kind: bool) -> None:
        # Keras reads it when it makes a function, kerasmgpu when it traces one.
        self._model.jit_compile = kind
        if kind not in self._functions:
            self._functions[kind] = step_hooks.remake(self._model)
        self._steps.function = self._functions[kind]
