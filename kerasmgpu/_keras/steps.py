"""The steps of a model: where Keras asks for them, and what it gets.

Keras makes a function per kind of step (`train_step`, `test_step`,
`predict_step`) and calls it for each execution. Under one of our strategies that
function is an object of ours, which partitions the step over the replicas.
"""

import itertools

import tensorflow as tf
from absl import logging
from keras.src.backend.tensorflow import trainer as trainer_module

from kerasmgpu._keras import scope, unread_logs
from kerasmgpu._keras.optionals import without_optionals
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam
from kerasmgpu._keras.trainers import TensorFlowTrainer
from kerasmgpu.partitioner import report


@seam(TensorFlowTrainer, "_maybe_symbolic_build")
def _maybe_symbolic_build(original, self, iterator=None, data_batch=None):
    """Variables are made while the first step is traced, as on one device."""
    scope.check(self)
    if not is_ours(self._distribute_strategy):
        original(self, iterator, data_batch)


@seam(TensorFlowTrainer, "_make_function")
def _make_function(original, self, step_function):
    if not is_ours(self._distribute_strategy):
        if getattr(step_function, "__name__", "") == "train_step":
            scope.require_own_weights(self)
        return original(self, step_function)
    return Steps(self, step_function)


@seam(TensorFlowTrainer, "make_predict_function")
def _make_predict_function(original, self, force=False):
    if not is_ours(self._distribute_strategy):
        return original(self, force)
    if self.predict_function is None or force:
        self.predict_function = PredictSteps(self)
    return self.predict_function


class Steps:
    """What Keras calls for an execution of training or test steps.

    Args:
        model: The model.
        step: Its bound `train_step` or `test_step`.
    """

    def __init__(self, model, step):
        self._model = model
        self._step = step
        self._trains = step.__name__ == "train_step"
        self._strategy = model.distribute_strategy
        self._partitioned = self._strategy.partitioned(step, model.jit_compile)
        self._executions = {}
        self._last = (None, None, None)
        _say_that_xla_is_off(model)

    def __call__(self, iterator):
        """Runs `steps_per_execution` steps.

        Args:
            iterator: Iterator of a data set, or a Python iterator of batches.

        Returns:
            Logs of the last step.

        Raises:
            StopIteration, tf.errors.OutOfRangeError: If there is no data.
        """
        with self._strategy.scope():
            if self._model.run_eagerly or tf.config.functions_run_eagerly():
                return self._run_eagerly(iterator)
            if isinstance(
                iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)
            ):
                return self._from_data_set(iterator)
            outputs = None
            for _, batch in zip(
                range(self._model.steps_per_execution), iterator
            ):
                outputs = self._partitioned(without_optionals(batch))
            return outputs

    @property
    def programs(self):
        """The partitioned programs of the steps that were traced so far."""
        return self._partitioned.programs

    def prepare(self, data):
        """Makes the variables that the first step would make.

        Args:
            data: The data set of the steps, or an iterator of it.
        """
        with self._strategy.scope():
            self._program(data, with_logs=True)

    def _run_eagerly(self, iterator):
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

    def _from_data_set(self, iterator):
        steps = self._model.steps_per_execution
        with_logs = not unread_logs.is_unread(
            self._model, self, self._step, iterator
        )
        last, settings, execution = self._last
        if last is not iterator or settings != (steps, with_logs):
            execution = self._execution(iterator, steps, with_logs)
            self._last = (iterator, (steps, with_logs), execution)
        return execution(iterator)

    def _execution(self, iterator, steps, with_logs):
        program, names = self._program(iterator, with_logs)
        written = program.written(with_outputs=names is None)
        if self._trains:
            self._strategy.reduced_bytes_per_step = report.summed_bytes(written)
        key = (written.name, steps)
        if key not in self._executions:
            self._executions[key] = self._strategy.execution(
                program, written, steps
            )
        execution = self._executions[key]
        if written.has_outputs:
            return execution
        unread = dict.fromkeys(names, float("nan"))

        def without_logs(iterator):
            execution(iterator)
            return unread

        return without_logs

    def _program(self, iterator, with_logs):
        """The program of a step, and the names of the logs that it leaves out.

        The names are `None` where it leaves out nothing.
        """
        specification = without_optionals(
            self._strategy.batch_specification(iterator)
        )
        in_shares = self._strategy.in_shares(iterator)
        scope.check(self._model)
        program = self._partitioned.program((specification,), in_shares)
        names = None
        if not with_logs:
            # The epoch's logs are the metrics' own results, unless the step
            # returns something else.
            logs = program.trace.outputs
            names = set(self._model.get_metrics_result())
            if not isinstance(logs, dict) or set(logs) != names:
                names = None
        return program, names


class PredictSteps:
    """What Keras calls for an execution of predict steps.

    Args:
        model: The model.
    """

    def __init__(self, model):
        self._model = model
        self._strategy = model.distribute_strategy
        self._partitioned = self._strategy.partitioned(
            model.predict_step, model.jit_compile
        )

    def __call__(self, batches):
        """Predictions of several batches, one after the other.

        Args:
            batches: List of what an iterator of the data set gave.
        """
        with self._strategy.scope():
            outputs = [self._predict(batch) for batch in batches]
        if len(outputs) == 1:
            return outputs[0]
        return tf.nest.map_structure(
            lambda *parts: trainer_module.concat(parts), *outputs
        )

    def _predict(self, batch):
        batch = without_optionals(self._strategy.prepared(batch))
        if self._model.run_eagerly or tf.config.functions_run_eagerly():
            return self._strategy.run_on_one_device(
                self._model.predict_step, self._strategy.whole(batch)
            )
        return self._partitioned(batch)


def trainer_of(function):
    """The model whose step `function` is, or `None` for any other function.

    A model is whatever has Keras's trainer mixed in, `keras.Model` or not.
    """
    function = getattr(function, "python_function", function)
    seen = 0
    while hasattr(function, "__wrapped__") and seen < 10:
        function, seen = function.__wrapped__, seen + 1
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, TensorFlowTrainer) else None


def _say_that_xla_is_off(model):
    """One line where plain Keras would have turned XLA on: on GPUs."""
    if model.jit_compile:
        return
    devices = model.distribute_strategy.extended.worker_devices
    if any("GPU" in device for device in devices):
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: model %r trains without XLA, which is what Keras makes "
            "of jit_compile='auto' under a strategy. jit_compile=True compiles "
            "it; callbacks.ChooseXla() measures which is faster.",
            1,
            model.name,
        )
