"""The interface through which steps, variables and tapes call our strategies."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeGuard

import tensorflow as tf

from kerasmgpu.engine.feeds import Feed
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.runtime.execution import Execution
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.runtime.one_device import OneDevice
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.strategy_settings import Settings


class ExactStrategy(Protocol):
    """The methods of a strategy that `_keras/` and `engine/` call.

    `strategies.exact_steps.ExactSteps` implements and documents them; mypy
    checks that none is missing.

    Attributes:
        settings: Its `Settings`.
        distribution: The `keras.distribution.Distribution` that lays out
            variables, or `None`.
        layouts: Its `strategies.layouts.Layouts`, or `None`.
        extended: A `OneDevice`, TensorFlow's engine.
    """

    settings: Settings
    distribution: Any
    layouts: Any
    extended: Any
    num_replicas_in_sync: int

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the context in which variables get a copy per replica."""

    def check_layouts(self, model: Any) -> None:
        """Warns of keys of a layout map that match nothing in a model."""

    def lay_out_model(
        self, model: Any, trace: Callable[[], Program], rows: int | None
    ) -> bool:
        """Finds a layout for a model that begins to train, if it must.

        Returns whether the step must be traced again.
        """

    # Workers of the job.

    @property
    def num_workers(self) -> int:
        """Number of processes of the job."""

    @property
    def is_first_worker(self) -> bool:
        """Whether this is the job's first process, which writes files."""

    def any_worker(self, flag: bool) -> bool:
        """Whether `flag` is true on any worker; collective."""

    def of_each_worker(self, number: int) -> list[int]:
        """Returns the numbers of all workers, in their order; collective."""

    def from_first_worker(self, data: bytes) -> bytes:
        """Broadcasts the first worker's bytes to all workers; collective."""

    # From a data set to a step's inputs.

    def dataset_for_steps(
        self, dataset: tf.data.Dataset, in_order: bool = False
    ) -> Feed:
        """Chooses how the batches of a data set reach the steps."""

    def prepared(self, batch: Any) -> Any:
        """Converts an iterator's batch to inputs of a partitioned function."""

    def whole(self, batch: Any) -> Any:
        """All-gathers the rows of a batch from `prepared`; collective."""

    # Steps.

    @property
    def replicas(self) -> Replicas:
        """This process's replicas."""

    def partitioned(
        self,
        function: Callable[..., Any],
        jit_compile: bool = False,
        name: str | None = None,
    ) -> Partitioned:
        """Partitions a function of global batches over the replicas."""

    def execution(
        self,
        program: Program,
        written: Written,
        steps: int,
        run: Callable[[list[tf.Tensor]], list[tf.Tensor]] | None = None,
    ) -> Execution:
        """Returns a function that takes an iterator and runs several steps."""

    def trains(
        self, program: Program, written: Written, rows: int | None
    ) -> None:
        """Records the training step that runs from now on."""

    def run_on_one_device(
        self, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Runs a function eagerly on one device; returns its result."""


def is_ours(strategy: object) -> TypeGuard[ExactStrategy]:
    """Whether a strategy trains exactly, i.e. is one of kerasmgpu's."""
    return isinstance(getattr(strategy, "extended", None), OneDevice)
