"""Runs train, test and predict steps partitioned, in Keras's loops.

Keras makes a function per kind of step (`train_step`, `test_step`,
`predict_step`) and calls it for each execution. Under our strategies that
function is a `Steps` or `PredictSteps`, which partitions the step over the
replicas.
"""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from absl import logging
from keras.src.backend.tensorflow import trainer as trainer_module

from kerasmgpu._keras import (
    build,
    memory_errors,
    scope,
    sharded_parts,
    unread_logs,
    wrong_shapes,
    xla_choice,
)
from kerasmgpu._keras.versions import TensorFlowTrainer
from kerasmgpu._keras.xla_trial import XlaTrial
from kerasmgpu.engine import feeds, fit_clock
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours
from kerasmgpu.engine.feeds import Feed, without_optionals
from kerasmgpu.engine.joint_calls import joint_calls
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime import replaced
from kerasmgpu.partitioner.runtime.function import as_tensor
from kerasmgpu.partitioner.runtime.making import making
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.replica_arithmetic import require_rows


@seam(TensorFlowTrainer, "_maybe_symbolic_build")
def _maybe_symbolic_build(
    original: Original, self: Any, iterator: Any = None, data_batch: Any = None
) -> None:
    """Skips our models: tracing their first step creates the variables."""
    scope.check(self)
    if not is_ours(self._distribute_strategy):
        with fit_clock.within(fit_clock.TRACING):
            original(self, iterator, data_batch)


@seam(TensorFlowTrainer, "_make_function")
def _make_function(
    original: Original, self: Any, step_function: Callable[..., Any]
) -> Callable[..., Any]:
    if not is_ours(self._distribute_strategy):
        if getattr(step_function, "__name__", "") == "train_step":
            scope.require_own_weights(self)
        return original(self, step_function)
    return Steps(self, step_function)


@seam(TensorFlowTrainer, "make_predict_function")
def _make_predict_function(
    original: Original, self: Any, force: bool = False
) -> Callable[..., Any]:
    if not is_ours(self._distribute_strategy):
        return original(self, force)
    if self.predict_function is None or force:
        self.predict_function = PredictSteps(self)
    return self.predict_function


class Steps:
    """Runs partitioned steps as a model's `train_function` or `test_function`.

    Args:
        step: Its bound `train_step` or `test_step`.

    Attributes:
        written: The `Written` that runs; `None` before the first step.
        executions: Integer, executions that found a batch.
    """

    written: Written | None = None
    executions = 0

    def __init__(self, model: keras.Model, step: Callable[..., Any]) -> None:
        self._model = model
        self._step = step
        self._trains = step.__name__ == "train_step"
        self._strategy: ExactStrategy = model.distribute_strategy
        self._partitioned = self._strategy.partitioned(step, model.jit_compile)
        self._executions: dict[tuple[str, int], XlaTrial] = {}
        self._last: tuple[Any, Any, Any] = (None, None, None)
        self._in_job = self._strategy.num_workers > 1
        _say_what_xla_does(model)

    def __call__(self, iterator: Any) -> Any:
        """Runs `steps_per_execution` steps.

        Args:
            iterator: Iterator of a data set, or a Python iterator of batches.

        Returns:
            Logs of the last step.

        Raises:
            StopIteration, tf.errors.OutOfRangeError: If the data is exhausted.
        """
        if self._in_job:
            joint_calls.note(self._step.__name__)
        before, settings, execution = self._last
        same = before is iterator and settings == self._settings(iterator)
        # What ran before traces nothing, and needs no scope: a Ctrl-C while one
        # is entered could leave it so for good.
        no_scope = same and not self._in_job
        no_scope = no_scope and self._strategy.settings.micro_batches != "auto"
        with contextlib.nullcontext() if no_scope else self._strategy.scope():
            if same:
                outputs = self._executed(execution, iterator)
            else:
                outputs = self._run(iterator)
        self.executions += 1
        return outputs

    def _settings(self, iterator: Any) -> tuple[Any, ...]:
        eagerly = self._model.run_eagerly or tf.config.functions_run_eagerly()
        with_logs = not unread_logs.is_unread(
            self._model, self, self._step, iterator
        )
        steps = self._model.steps_per_execution
        return steps, with_logs, replaced.count(), eagerly

    def _run(self, iterator: Any) -> Any:
        if self._model.run_eagerly or tf.config.functions_run_eagerly():
            return self._run_eagerly(iterator)
        if isinstance(
            iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)
        ):
            return self._from_data_set(iterator)
        outputs = None
        for _, batch in zip(range(self._model.steps_per_execution), iterator):
            outputs = self._run_batch(without_optionals(batch))
        return outputs

    def _run_batch(self, batch: Any) -> Any:
        if self._trains:
            with making:
                self._strategy.lay_out_model(
                    self._model,
                    lambda: self._partitioned.prepared(
                        tf.nest.map_structure(as_tensor, batch)
                    )[0],
                    tf.nest.flatten(batch)[0].shape[0],
                )
        return self._partitioned(batch)

    @property
    def programs(self) -> list[Program]:
        """The partitioned programs of the steps traced so far."""
        return self._partitioned.programs

    def prepare(self, feed: Feed) -> Program:
        """Creates the variables that the first step would create."""
        with making, self._strategy.scope():
            program, _ = self._program(feed, with_logs=True)
        return program

    def _run_eagerly(self, iterator: Any) -> Any:
        outputs, is_over = None, True
        for batch in itertools.islice(
            iterator, self._model.steps_per_execution
        ):
            is_over = False
            batch = without_optionals(self._strategy.prepared(batch))
            outputs = self._strategy.run_on_one_device(
                self._step, self._strategy.whole(batch)
            )
        if is_over:
            raise StopIteration
        return outputs

    def _from_data_set(self, iterator: Any) -> Any:
        steps, with_logs, *_ = self._settings(iterator)
        with making:
            execution = self._execution(iterator, steps, with_logs)
        self._last = iterator, self._settings(iterator), execution
        return self._executed(execution, iterator)

    def _executed(self, execution: Callable[[Any], Any], iterator: Any) -> Any:
        try:
            return execution(iterator)
        except tf.errors.InvalidArgumentError:
            wrong = self._wrong_shape(feeds.of(iterator))
            if wrong is None:
                raise
            raise wrong from None
        except tf.errors.ResourceExhaustedError as error:
            if not self._trains:
                raise
            raise memory_errors.explained(
                error, self._model, feeds.of(iterator)
            ) from error

    def _wrong_shape(self, feed: Feed) -> InputError | None:
        """Returns an error of batches whose shape doesn't fit the model.

        A step of several shapes is traced for unknown sizes, and fails in the
        middle of a replica. Traced for these batches alone, it says where.
        """
        if len(self.programs) < 2:
            return None
        batch = without_optionals(feed.batch_specification)
        try:
            with self._strategy.scope():
                self._partitioned.trace_alone((batch,))
        except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
            line = wrong_shapes.in_one_line(error)
            return InputError(
                f"the batches don't fit model {self._model.name!r}: {line}. "
                f"Received: {wrong_shapes.described(batch)}"
            )
        return None

    def _execution(
        self, iterator: Any, steps: int, with_logs: bool
    ) -> Callable[..., Any]:
        feed = feeds.of(iterator)
        if self._trains:
            parts, rows = self._strategy.settings.micro_batches, feed.batch_size
            if parts != "auto" and rows is not None:
                require_rows(int(parts), rows)
        program, names = self._program(feed, with_logs)
        written = program.written(with_outputs=names is None)
        if self._trains and self.written is None:
            unsharded = sharded_parts.why_none(self._model, self._strategy)
            if unsharded is not None:
                logging.warning("kerasmgpu: %s.", unsharded)
        self.written = written
        if self._trains:
            self._strategy.trains(program, written, feed.batch_size)
        execution = self._steered(program, written, steps, feed)
        if names is None or written.has_outputs:
            return execution
        unread = dict.fromkeys(names, float("nan"))

        def without_logs(iterator: Any) -> dict[str, float]:
            execution(iterator)
            return unread

        return without_logs

    def _steered(
        self, program: Program, written: Written, steps: int, feed: Feed
    ) -> Callable[[Any], Any]:
        key = (written.name, steps)
        if key not in self._executions:
            self._executions[key] = XlaTrial(
                self._model, program, written, steps
            )
        steered = self._executions[key]
        if not self._trains or self._model.jit_compile:
            return steered.plain
        request = xla_choice.request(self._model)
        if self._in_job and not feed.agrees:
            if request is not None:
                steered.say_why_not(
                    "workers may have batches of different sizes in one step"
                )
            return steered.plain
        steered.begin(request)
        return steered

    def _program(
        self, feed: Feed, with_logs: bool
    ) -> tuple[Program, set[str] | None]:
        """Returns a step's program and the names of the logs it omits.

        The names are `None` if the program returns all logs.
        """
        specification = without_optionals(feed.batch_specification)
        in_shares = feed.in_shares
        if self._trains:
            build.build_optimizer(self._model)
        scope.check(self._model)
        self._strategy.check_layouts(self._model)
        if (
            self._trains
            and self._strategy.settings.micro_batches == "auto"
            and not self.programs
        ):
            parts = memory_errors.first_micro_batches(self._model, feed)
            self._partitioned.micro_batches = max(
                self._strategy.of_each_worker(parts)
            )
        given = (specification,), in_shares, feed.batch_shapes
        if self._trains:
            self._strategy.lay_out_model(
                self._model,
                lambda: self._partitioned.program(*given),
                feed.batch_size,
            )
        program = self._partitioned.program(*given)
        names = None
        if not with_logs:
            # Keras reads the epoch's logs from the metrics, unless the step
            # returns other logs.
            logs = program.trace.outputs
            names = set(self._model.get_metrics_result())
            if not isinstance(logs, dict) or set(logs) != names:
                names = None
        return program, names


class PredictSteps:
    """Runs partitioned steps as a model's `predict_function`."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._strategy: ExactStrategy = model.distribute_strategy
        self._partitioned = self._strategy.partitioned(
            model.predict_step, model.jit_compile
        )

    def __call__(self, batches: Any) -> Any:
        """Returns the concatenated predictions of several batches.

        Args:
            batches: List of batches, as an iterator of the data set gave them.
        """
        if self._strategy.num_workers > 1:
            joint_calls.note("predict_step")
        with self._strategy.scope():
            outputs = [self._predict(batch) for batch in batches]
        if len(outputs) == 1:
            return outputs[0]
        return tf.nest.map_structure(
            lambda *parts: trainer_module.concat(parts), *outputs
        )

    def _predict(self, batch: Any) -> Any:
        batch = without_optionals(self._strategy.prepared(batch))
        if self._model.run_eagerly or tf.config.functions_run_eagerly():
            return self._strategy.run_on_one_device(
                self._model.predict_step, self._strategy.whole(batch)
            )
        return self._partitioned(batch)


def trainer_of(function: Any) -> keras.Model | None:
    """Returns the model whose step `function` is; `None` for other functions.

    A model is any subclass of Keras's trainer, `keras.Model` or not.
    """
    function = getattr(function, "python_function", function)
    seen = 0
    while hasattr(function, "__wrapped__") and seen < 10:
        function, seen = function.__wrapped__, seen + 1
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, TensorFlowTrainer) else None


def _say_what_xla_does(model: keras.Model) -> None:
    """Logs once what `jit_compile="auto"` does on GPUs."""
    if xla_choice.automatic(model) is not None:
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: model %r begins without XLA (jit_compile='auto'). XLA "
            "compiles its training step while it trains, and stays where it is "
            "faster. Random numbers (dropout) are those without XLA: plain "
            "Keras compiles on one GPU and draws XLA's, as jit_compile=True "
            "does here.",
            1,
            model.name,
        )
