"""The `Audit` callback: compares training steps with one device's."""

import os
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu import _keras, atomic_files
from kerasmgpu._keras import fit, step_hooks
from kerasmgpu.callbacks import audit_verdict, evidence
from kerasmgpu.callbacks.audit_verdict import Finding
from kerasmgpu.callbacks.run_record import RunRecord
from kerasmgpu.callbacks.step_audit import NotComparable, StepAudit
from kerasmgpu.engine import fit_clock
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import checked_arguments, checked_integer
from kerasmgpu.job import workers
from kerasmgpu.partitioner.runtime.execution import watched
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.stores.places import checked_place, place
from kerasmgpu.stores.store_path import StorePath

FIRST = 3
"""The execution whose first step is compared first; one before it has traced."""

SHARE = 0.01
"""Largest share of the time of training that later audits take."""


class Audit(keras.callbacks.Callback):
    """Proves while a model trains that replicas train as one device.

    Now and then a training step is run again on one device, from the same weights,
    slots, seeds and metrics and on the same batch, and what both leave is compared,
    layer by layer. Training goes on with what the replicas left: weights, metrics
    and random numbers have the same bits with and without this callback.

    If they differ by more than rounding, the step runs once more there and on each
    other device, and a line says which of these it is:

    - a fault of kerasmgpu: the devices agree with each other;
    - a kernel that isn't deterministic: a device differs from itself;
    - a broken device, by its name: it differs from the others, each time.

    A device whose copies of the weights have other bits is named, too.

    If memory runs out on one device, it takes the rows in micro-batches. Steps are
    left out, with a line that says why, if running them again would change
    something or draw other numbers (`tf.random.normal`, Python functions, prints),
    with `run_eagerly=True`, and with `batch_norm="per_replica"`, which is another
    model.

    The third step is the first to be compared; with `steps_per_execution`, the
    first step of the third execution. That takes some seconds, since TensorFlow
    makes a function for one device. From then on a step is compared every `every`
    steps, or less often, so that it takes less than 1 % of the time.

    In a job all workers need it; each compares with its own devices.

    Args:
        every: Integer, least number of steps from one comparison to the next.
            Defaults to `500`.
        path: String or path-like, the file for `kerasmgpu evidence`: versions,
            devices, settings and the largest difference of each layer. Or a URL of
            an object store. Defaults to `None`: `evidence.json` in the folder of a
            `RunRecord` of the same `fit`, if there is one.

    Attributes:
        findings: List of `(step, verdict)` of the last `fit`, steps from 1.

    Raises:
        InputError: If `every` is no integer above 0, or `path` can't be written.

    Example:

    ```python
    audit = kerasmgpu.callbacks.Audit(path="runs/1/evidence.json")
    model.fit(dataset, epochs=5, callbacks=[audit])
    ```
    """

    # No batch hooks: Keras would wait for each step's results.

    needs_all_workers = True
    """All workers run it: sums and sharded variables are read by all."""

    @checked_arguments
    def __init__(
        self,
        every: int = 500,
        path: str | os.PathLike[str] | StorePath | None = None,
    ) -> None:
        super().__init__()
        self.every = checked_integer(every, "every", 1)
        self.path = None if path is None else str(checked_place(path, "path"))
        if self.path is not None:
            atomic_files.require_place(self.path, "path")
        self._hook: _Audits | None = None
        _keras.install()

    @property
    def findings(self) -> list[tuple[int, str]]:
        return [] if self._hook is None else list(self._hook.findings)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._hook = None
        why = _why_not(self.model)
        if why is None:
            self._hook = _Audits(self.model, self.every, self.path)
        else:
            _say(self.model, f"no step is compared with one device: {why}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._hook is not None:
            self._hook.sum_up()


def _why_not(model: keras.Model) -> str | None:
    strategy = model.distribute_strategy
    if not is_ours(strategy):
        return "the model isn't in the scope of a strategy of kerasmgpu"
    if model.run_eagerly or tf.config.functions_run_eagerly():
        return "steps run eagerly, which one device does"
    if strategy.settings.batch_norm != "global":
        return 'batch_norm="per_replica" is another model than one device\'s'
    return None


def _say(model: keras.Model, text: str) -> None:
    """Logs a line, on the first worker."""
    if workers.is_first(model.distribute_strategy):
        logging.info("kerasmgpu: audit: %s.", text)


class _Audits(step_hooks.StepHook):
    """Compares steps when it is time.

    Attributes:
        findings: List of pairs of a step, from 1, and its verdict.
    """

    def __init__(
        self, model: keras.Model, every: int, path: str | None
    ) -> None:
        self._model, self._every = model, every
        self._strategy = model.distribute_strategy
        self._audit = StepAudit(model)
        self._evidence = evidence.Evidence(model, path)
        self.findings: list[tuple[int, str]] = []
        self._executions = self._steps = 0
        self._next, self._took, self._since = 0, 0.0, 0.0
        step_hooks.add(model, self, innermost=True)

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        self._executions += 1
        if self._is_due():
            with watched(self._around_step):
                logs = run(iterator)
        else:
            logs = run(iterator)
        self._steps += self._model.steps_per_execution
        return logs

    def on_removed(self) -> None:
        self._audit.forget()

    def _is_due(self) -> bool:
        """Whether to compare the next step; the same on all workers."""
        if self._executions < FIRST or self._steps < self._next:
            return False
        self._next = self._steps + self._every
        if not self.findings:
            return True
        passed = time.perf_counter() - self._since
        return bool(
            self._strategy.any_worker(
                workers.is_first(self._strategy)
                and passed * SHARE >= self._took
            )
        )

    def _around_step(
        self,
        program: Program,
        written: Written,
        run: Callable[[list[tf.Tensor]], list[tf.Tensor]],
        tensors: list[tf.Tensor],
    ) -> list[tf.Tensor]:
        """Compares the first step of an execution."""
        step = self._steps + 1
        if self.findings and self.findings[-1][0] == step:
            return run(tensors)  # One of the others.
        began = time.perf_counter()
        with fit_clock.within(f"{fit_clock.CALLBACK}Audit"):
            try:
                outputs, found = self._audit(program, written, run, tensors)
            except NotComparable as error:
                found = Finding(audit_verdict.NOT_RUN, {}, str(error))
                self.findings.append((step, found.verdict))
                outputs = run(tensors)
            else:
                self.findings.append((step, found.verdict))
            self._note(step, found, time.perf_counter() - began)
        return outputs

    def _note(self, step: int, found: Finding, seconds: float) -> None:
        """Writes and says what was found of a step, once all workers have it."""
        if self._strategy.num_workers > 1:
            found = self._of_all_workers(found)
        self._took, self._since = seconds, time.perf_counter()
        if found.verdict == audit_verdict.NOT_RUN:
            self._next = 1 << 62  # It would be so each time.
            _say(self._model, f"step {step} is not compared: {found.text}")
        elif not found.is_equal:
            line = f"kerasmgpu: audit of step {step}: {found.text}"
            logging.warning("%s.", line)
        if workers.is_first(self._strategy):
            if self._evidence.path is None:
                self._evidence.path = _beside_record()
            self._evidence.add(step, found, seconds, self._audit.micro_batches)

    def _of_all_workers(self, found: Finding) -> Finding:
        """Returns the worst finding of all workers; collective."""
        own = audit_verdict.VERDICTS.index(found.verdict)
        each = self._strategy.of_each_worker(own)
        if max(each) == own:
            return found
        worst = audit_verdict.VERDICTS[max(each)]
        text = f"worker {each.index(max(each))}: {worst}; its log says more"
        return Finding(worst, found.by_layer, text)

    def sum_up(self) -> None:
        """Prints a line on all steps that were compared."""
        made = self._evidence
        if not made.num_steps or not workers.is_first(self._strategy):
            return
        largest, layer = max(
            ((value, layer) for layer, value in made.largest.items()),
            default=(0.0, "none"),
        )
        count = f"{made.num_steps} step{'s' if made.num_steps > 1 else ''}"
        as_nudged = ""
        if made.verdict == audit_verdict.ROUNDING:
            as_nudged = ", as if weights were nudged"
        where = f"; see {made.path}" if made.path else ""
        print(
            f"audit: {count} compared with one device: {made.verdict}, largest "
            f"difference {largest:.0e} of an update (layer {layer!r})"
            f"{as_nudged}{where}",
            flush=True,
        )


def _beside_record() -> str | None:
    """Returns the path beside `run.json` of the running `fit`, if it has one."""
    running = fit.innermost()
    if running is None or running.callback_list is None:
        return None
    for callback in running.callback_list.callbacks:
        if isinstance(callback, RunRecord):
            return str(place(callback.folder) / evidence.NAME)
    return None
