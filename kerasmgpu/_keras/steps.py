"""Runs train, test and predict steps partitioned, in Keras's loops.

Keras makes a function per kind of step (`train_step`, `test_step`,
`predict_step`) and calls it for each execution. Under our strategies that
function is a `Steps` or `PredictSteps`, which partitions the step over the
replicas.
"""

import contextlib
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class _Session:
    """What runs on one iterator, under one set of settings.

    Attributes:
        key: See `Steps._key`.
        execution: Function of the iterator, an `Execution` or `XlaTrial`.
        unread: Logs in the place of those that no callback reads, and that the
            step leaves out; `None` if it returns its logs.
    """

    iterator: Any
    key: tuple[Any, ...]
    feed: Feed
    written: Written
    execution: Callable[[Any], Any]
    unread: dict[str, float] | None


class Steps:
    """Runs partitioned steps as a model's `train_function` or `test_function`.

    Args:
        step: Its bound `train_step` or `test_step`.

    Attributes:
        executions: Integer, executions that found a batch.
    """

    executions = 0
    _session: _Session | None = None

    def __init__(self, model: keras.Model, step: Callable[..., Any]) -> None:
        self._model = model
        self._step = step
        self._trains = step.__name__ == "train_step"
        self._strategy: ExactStrategy = model.distribute_strategy
        self._partitioned = self._strategy.partitioned(step, model.jit_compile)
        self._trials: dict[tuple[str, int], XlaTrial] = {}
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
        session = self._session
        if session is not None and session.key != self._key(iterator):
            session = None
        # What ran before traces nothing, and needs no scope: a Ctrl-C while one
        # is entered could leave it so for good.
        no_scope = session is not None and not self._in_job
        no_scope = no_scope and self._strategy.settings.micro_batches != "auto"
        with contextlib.nullcontext() if no_scope else self._strategy.scope():
            if session is None:
                outputs = self._run(iterator)
            else:
                outputs = self._executed(session)
        self.executions += 1
        return outputs

    @property
    def written(self) -> Written | None:
        """The `Written` that runs; `None` before the first step."""
        return None if self._session is None else self._session.written

    def _key(self, iterator: Any) -> tuple[Any, ...]:
        """Returns what a session is for: the iterator, and the settings."""
        with_logs = not unread_logs.is_unread(
            self._model, self, self._step, iterator
        )
        steps = self._model.steps_per_execution
        is_eager = _is_eager(self._model)
        return steps, with_logs, id(iterator), replaced.count(), is_eager

    def _run(self, iterator: Any) -> Any:
        """Runs the first execution of a session, or one without a session."""
        if _is_eager(self._model):
            return self._run_eagerly(iterator)
        if isinstance(
            iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)
        ):
            with making:
                self._session = session = self._prepared(iterator)
            return self._executed(session)
        outputs = None
        for _, batch in zip(range(self._model.steps_per_execution), iterator):
            outputs = self._run_batch(without_optionals(batch))
        return outputs

    def _run_batch(self, batch: Any) -> Any:
        if self._trains:
            with making:
                self._lay_out(
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
            return self._program(feed)

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

    def _executed(self, session: _Session) -> Any:
        try:
            logs = session.execution(session.iterator)
        except tf.errors.InvalidArgumentError:
            wrong = self._wrong_shape(session.feed)
            if wrong is None:
                raise
            raise wrong from None
        except tf.errors.ResourceExhaustedError as error:
            if not self._trains:
                raise
            raise memory_errors.explained(
                error, self._model, session.feed
            ) from error
        return logs if session.unread is None else session.unread

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

    def _prepared(self, iterator: Any) -> _Session:
        """Returns the session of an iterator that comes next."""
        steps, with_logs, *_ = self._key(iterator)
        feed = feeds.of(iterator)
        if self._trains:
            parts, rows = self._strategy.settings.micro_batches, feed.batch_size
            if parts != "auto" and rows is not None:
                require_rows(int(parts), rows)
        program = self._program(feed)
        unread = None if with_logs else self._unread(program)
        written = program.written(with_outputs=unread is None)
        if self._trains and self._session is None:
            unsharded = sharded_parts.why_none(self._model, self._strategy)
            if unsharded is not None:
                logging.warning("kerasmgpu: %s.", unsharded)
        key = written.name, steps
        if key not in self._trials:
            self._trials[key] = XlaTrial(self._model, program, written, steps)
        execution = self._trials[key].plain
        if self._trains:
            self._strategy.trains(program, written, feed.batch_size)
            execution = self._trials[key].begin(feed)
        return _Session(
            iterator,
            self._key(iterator),  # Layouts can replace variables.
            feed,
            written,
            execution,
            None if written.has_outputs else unread,
        )

    def _unread(self, program: Program) -> dict[str, float] | None:
        """Returns what stands for a step's logs; `None` if it must return them.

        Keras reads the epoch's logs from the metrics, unless the step returns
        other logs.
        """
        logs, names = program.trace.outputs, self._model.get_metrics_result()
        if not isinstance(logs, dict) or set(logs) != set(names):
            return None
        return dict.fromkeys(names, float("nan"))

    def _program(self, feed: Feed) -> Program:
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
            self._lay_out(
                lambda: self._partitioned.program(*given), feed.batch_size
            )
        return self._partitioned.program(*given)

    def _lay_out(self, trace: Callable[[], Program], rows: int | None) -> None:
        """Finds the model's layout with `layout="auto"`, before it trains."""
        if self._strategy.lay_out_model(self._model, trace, rows):
            self._partitioned.forget()


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
        if _is_eager(self._model):
            return self._strategy.run_on_one_device(
                self._model.predict_step, self._strategy.whole(batch)
            )
        return self._partitioned(batch)


def _is_eager(model: keras.Model) -> bool:
    return model.run_eagerly or tf.config.functions_run_eagerly()


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
