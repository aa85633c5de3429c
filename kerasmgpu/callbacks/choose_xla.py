"""The `ChooseXla` callback: times steps with and without XLA, then chooses."""

import time
from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks, xla_choice
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import (
    checked_arguments,
    checked_integer,
)
from kerasmgpu.job.cluster import is_first_worker


class ChooseXla(keras.callbacks.Callback):
    """Times training with and without XLA; keeps the faster way.

    Keras turns XLA on by itself on one GPU and leaves it off under every
    `tf.distribute` strategy; which is faster depends on the model, the batch
    and the device. Under kerasmgpu's strategies, training begins without XLA;
    a thread compiles the step meanwhile. Then `fit` alternates between both for
    some steps, prints both times, and goes on with the faster one. These are
    ordinary training steps. `jit_compile="auto"`, Keras's default, does so by
    itself on GPUs. If a `fit` ends before the choice is made, the next one goes
    on from there.

    The step draws the random numbers of a step without XLA, and rounds
    differently, so two runs that choose differently are equal up to rounding.
    For runs that are equal bit for bit, pass `jit_compile=True` or `False` to
    `compile` instead. `docs/speed.md` says which steps stay without XLA.

    For a model outside of kerasmgpu's strategies, the first steps of `fit` are
    timed and wait for compilation, and the choice is stored in
    `model.jit_compile`.

    Args:
        executions: Integer, number of timed executions of each kind (an
            execution is `steps_per_execution` steps). Defaults to `20`.

    Attributes:
        uses_xla: Boolean, the choice for the model of the last `fit`; `None`
            before it is made, and with `jit_compile=True`, where there is none.

    Raises:
        InputError: If `executions` is not an integer above 0.

    Example:

    ```python
    model.fit(dataset, epochs=5, callbacks=[kerasmgpu.callbacks.ChooseXla()])
    ```
    """

    @checked_arguments
    def __init__(self, executions: int = 20) -> None:
        super().__init__()
        self.executions = checked_integer(executions, "executions", 1)
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        if (
            model.run_eagerly
            or xla_choice.choice(model) is not None
            or not xla_choice.is_possible(model)
        ):
            return
        if is_ours(model.distribute_strategy):
            request = xla_choice.Request(self.executions, self.decide)
            xla_choice.ask(model, request)
        else:
            _Trial(self)

    @property
    def uses_xla(self) -> bool | None:
        return None if self.model is None else xla_choice.choice(self.model)

    def decide(self, seconds: xla_choice.Seconds) -> bool:
        """Chooses whether to use XLA; collective between workers.

        The first worker prints both medians. Later `fit`s of this model are not
        timed again.

        Args:
            seconds: Dictionary from whether XLA is used to the list of the
                seconds of its executions.

        Returns:
            Boolean, `True` if XLA is faster by a margin of 3 %.
        """
        chosen = xla_choice.faster(self.model, seconds, _print)
        xla_choice.set_choice(self.model, chosen)
        return chosen


def _print(line: str) -> None:
    """Prints a line, in a job once."""
    if is_first_worker():
        print(line, flush=True)


class _Trial(step_hooks.StepHook):
    """Runs each execution with or without XLA, until the choice is made."""

    def __init__(self, callback: ChooseXla) -> None:
        self._callback = callback
        self._model = callback.model
        self._steps = step_hooks.add(callback.model, self, innermost=True)
        self._kind = bool(self._model.jit_compile)
        self._functions = {self._kind: self._steps.function}
        self._timings = xla_choice.timings(callback.executions, (False, True))
        self._next = next(self._timings)

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        self._use(self._next)
        start = time.perf_counter()
        logs = run(iterator)
        self._model.optimizer.iterations.numpy()  # Waits for the devices.
        try:
            self._next = self._timings.send(time.perf_counter() - start)
        except StopIteration as done:
            self._kind = self._callback.decide(done.value)
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
