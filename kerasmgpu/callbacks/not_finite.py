"""The `NotFinite` callback: locates the first NaN or infinity."""

import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu import _keras
from kerasmgpu._keras import fit, step_hooks
from kerasmgpu._keras.checked_steps import CHECK_OF_PARTS, CheckedStep
from kerasmgpu.callbacks import finite_search
from kerasmgpu.callbacks.kept_batches import KeptBatches
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError, checked_arguments, listed
from kerasmgpu.job import workers

_REPLICA = re.compile(r"replica_(\d+)/")


class NotFinite(keras.callbacks.Callback):
    """Ends training at the first NaN or infinity, and says where it arises.

    The error names the step and its epoch, the worker and the replica, and the
    first of:

    - values of the batch that are not finite: the tensor, rows and columns;
    - a layer that gives a NaN or infinity for finite inputs, and its rows;
    - the loss function;
    - with `gradients=True`, a variable whose gradient is not finite;
    - variables that the previous step's update has made not finite.

    Each replica checks its part of the loss inside the compiled step; nothing
    is sent and nothing waits. The step fails before its update, so trainable
    weights and slots stay those from before the step, to be saved or looked at.
    Its batch was kept, and runs once more on one device, layer by layer, to
    find the place.

    If only a gradient is not finite, training ends one step later, at the loss,
    unless `gradients=True`. Overflows that a `LossScaleOptimizer` skips don't
    end it: the loss is checked before scaling. At the end of training the
    weights are checked, too.

    Outside of our strategies XLA drops checks: with `jit_compile=True`, which
    is Keras's own choice on a GPU, a warning says that weights are checked at
    the end only.

    Under a strategy that shards weights, in a job of several workers, the
    error names the step, but not the layer. Put this callback before
    `ChooseXla` in the list of callbacks.

    Args:
        gradients: Boolean, whether to check each step's gradients, too. It
            reads them once more, as clipping by norm does. Defaults to
            `False`.

    Raises:
        InputError: From `fit`, at the first value that is not finite.

    Example:

    ```python
    callbacks = [kerasmgpu.callbacks.NotFinite()]
    model.fit(dataset, epochs=5, callbacks=callbacks)
    ```
    """

    # No batch hooks: Keras would wait for each step's results.

    needs_all_workers = True
    """All workers run it: it adds checks to the step."""

    @checked_arguments
    def __init__(self, gradients: bool = False) -> None:
        super().__init__()
        self.gradients = gradients
        self._hook: _Checks | None = None
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self._hook is None or self._hook.model is not self.model:
            self._hook = _Checks(self.model, self.gradients)
        self._hook.begin()

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self._hook is not None:
            self._hook.begin_epoch(epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        names = finite_search.variables(self.model)
        if names:
            raise InputError(
                "The last step's update has left weights that are not finite: "
                f"{listed(names, finite_search.MOST)}. Lower the learning rate "
                "or clip gradients; NotFinite(gradients=True) names the gradient"
            )


class _Checks(step_hooks.StepHook):
    """Runs checked steps, and explains the one that fails."""

    def __init__(self, model: keras.Model, gradients: bool) -> None:
        self.model = model
        self._strategy = model.distribute_strategy
        self._checked = CheckedStep(model, gradients)
        self._kept = KeptBatches(self._strategy)
        # The model's function, and the function with checks that replaces it.
        self._functions: tuple[Any, Any] = (None, None)
        self._iterator: Any = None
        self._wrapped: Any = None
        self._epoch = self._steps_of_epoch = self._steps = 0
        self._counted = 0

    def begin(self) -> None:
        """Prepares a `fit`: resets counts and installs the checked function."""
        if self.model.jit_compile and not is_ours(self._strategy):
            logging.warning(
                "kerasmgpu: NotFinite checks only the weights, at the end of "
                "training: XLA drops the checks of a step. Received: "
                "jit_compile=True; set jit_compile=False, or build the model "
                "in kerasmgpu.strategy().scope()."
            )
        self._steps = 0
        self._counted = self._checked.done(0)
        self._kept.reset()
        self._iterator = None
        hooked = step_hooks.add(self.model, self, innermost=True)
        self._checked.install()
        plain, checked = self._functions
        if plain is not hooked.function:
            plain = hooked.function
            checked = step_hooks.remake(self.model)
        hooked.function = checked
        self._functions = plain, checked

    def begin_epoch(self, epoch: int) -> None:
        """Records an epoch's number, and how many steps came before it."""
        self._epoch, self._steps_of_epoch = epoch, 0
        # The last execution of an epoch may have had fewer steps.
        self._steps = self._checked.done(0) - self._counted

    def on_removed(self) -> None:
        self._checked.remove()
        hooked = self.model.train_function
        if hooked.function is self._functions[1]:
            hooked.function = self._functions[0]

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        if iterator is not self._iterator:  # Once per epoch.
            self._iterator = iterator
            self._wrapped = self._kept.timed(iterator)
        try:
            logs = run(self._wrapped)
        except tf.errors.InvalidArgumentError as error:
            if CHECK_OF_PARTS not in str(error):
                raise
            text = str(error)
        else:
            steps = self.model.steps_per_execution
            self._steps += steps
            self._steps_of_epoch += steps
            return logs
        raise InputError(self._explained(text))

    def _explained(self, error: str) -> str:
        """Returns the message about a step that failed, from TensorFlow's."""
        found = _REPLICA.search(error)
        written = getattr(self.model.train_function, "written", None)
        parts = 1 if written is None else written.lowered.mesh.micro_batches
        # The prefix has the number of the replica's micro-batch, of all.
        replica = int(found[1]) // parts if found else 0
        within = self._within_execution(replica)
        number = self._steps + within
        running = fit.innermost()
        skipped = running.skipped if running is not None else 0
        where = (
            f"epoch {self._epoch + 1}, step "
            f"{skipped + self._steps_of_epoch + within + 1} "
            f"(step {number + 1} of this fit)"
        )
        num_workers = workers.count(self._strategy)
        local = self._strategy.num_replicas_in_sync // num_workers
        index = workers.index(self._strategy)
        on = f"worker {index}, " if num_workers > 1 else ""
        what = self._searched(number)
        return (
            f"The loss is not finite: {where}, {on}replica "
            f"{index * local + replica}. {what}"
        )

    def _within_execution(self, replica: int) -> int:
        """Counts the finished steps of the execution that failed on a local replica."""
        steps = self.model.steps_per_execution
        done = self._checked.done(replica) - self._counted - self._steps
        return max(0, min(done, steps - 1))

    def _searched(self, number: int) -> str:
        names = finite_search.variables(self.model)
        if names:
            return (
                f"The update of the step before has made variables of "
                f"{listed(names, finite_search.MOST)} not finite; the gradient "
                f"that is at fault belongs to {names[-1]}, the last of them, or "
                "comes from the layer behind it. Lower the learning rate or "
                "clip gradients; NotFinite(gradients=True) names the gradient"
            )
        batches = dict(self._kept.take())
        if number not in batches:
            return "Its batch was not kept, so the layer is not known"
        # An execution of several steps requests its next batch early: two
        # batches that arrive at once may have swapped numbers.
        for batch in (batches.pop(number), *batches.values()):
            found = finite_search.explain(self.model, self._checked.step, batch)
            if found is not None:
                return found
        return (
            "The batch and the weights are finite, and the step ran again "
            "without a value that isn't: it comes from random operations such "
            "as dropout, or from the order of sums"
        )
