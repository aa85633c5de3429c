"""Adds hooks around each execution of the training step, for any model.

Keras's callbacks can't see the iterator of a step, replace its function, or
measure the call alone. A callback that must do so adds a `StepHook` to its
model in `on_train_begin`; all hooks of a `fit` share one wrapper of the
model's `train_function`, which is removed when `fit` returns or raises.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras


class StepHook:
    """Interface of a hook around each execution of a step."""

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        """Calls `run(iterator)`, which executes the step; returns its logs."""
        return run(iterator)

    def on_removed(self) -> None:
        """Called when the hook is removed: restores what it has changed."""


class HookedSteps:
    """A model's `train_function`, called through hooks.

    Attributes:
        function: The wrapped `train_function`; a hook may replace it.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.hooks = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    @property
    def hooks(self) -> list[StepHook]:
        """List of `StepHook`s; each calls the next one."""
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: list[StepHook]) -> None:
        self._hooks = hooks
        self._around: Callable[[Any], Any] = self._run
        for hook in reversed(hooks):
            self._around = functools.partial(hook.around, self._around)

    def __call__(self, iterator: Any) -> Any:
        return self._around(iterator)

    def _run(self, iterator: Any) -> Any:
        return self.function(iterator)


def add(
    model: keras.Model, hook: StepHook, innermost: bool = False
) -> HookedSteps:
    """Adds a hook to a model in training.

    Args:
        model: The `keras.Model`, with its `train_function`.
        innermost: Boolean, whether to run the hook inside all others, next to
            the step, instead of around them. Defaults to `False`.
    """
    if not isinstance(model.train_function, HookedSteps):
        model.train_function = HookedSteps(model.train_function)
    hooked = model.train_function
    # New lists: an execution in progress keeps the hooks that it began with.
    hooks = [*hooked.hooks, hook] if innermost else [hook, *hooked.hooks]
    hooked.hooks = hooks
    return hooked


def remove(model: keras.Model, hook: StepHook) -> None:
    """Removes a hook from a model; after the last one, the wrapper too."""
    hooked = model.train_function
    if not isinstance(hooked, HookedSteps) or hook not in hooked.hooks:
        return
    hooked.hooks = [other for other in hooked.hooks if other is not hook]
    hook.on_removed()
    if not hooked.hooks:
        model.train_function = hooked.function


def remake(model: keras.Model) -> Callable[[Any], Any]:
    """Makes a model's `train_function` anew; keeps the hooks around it."""
    hooked = model.train_function
    try:
        model.make_train_function(force=True)
        function: Callable[[Any], Any] = model.train_function
    finally:
        model.train_function = hooked
    hooked.function = function
    return function


@contextlib.contextmanager
def scope(model: keras.Model) -> Iterator[None]:
    """Removes, after a `with` block, the hooks that were added in it."""
    before = hooks_of(model)
    try:
        yield
    finally:
        for hook in hooks_of(model):
            if hook not in before:
                remove(model, hook)


def hooks_of(model: keras.Model) -> list[StepHook]:
    """Returns the hooks of a model in training, the outermost first."""
    hooked = getattr(model, "train_function", None)
    return hooked.hooks if isinstance(hooked, HookedSteps) else []
