"""Finds the first value of a step that is not finite."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu._keras.patches import Patches
from kerasmgpu._keras.training_state import optimizers
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import listed
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from kerasmgpu.replica_arithmetic import per_replica_batch_sizes

MOST = 5
"""Rows, columns or variables that a message lists."""


def explain(
    model: keras.Model, step: Callable[..., Any], batch: Any
) -> str | None:
    """Finds where the first value of a step that is not finite arises.

    Looks in the batch, and then runs the step again, eagerly on one device and
    without the optimizer's update.

    Args:
        model: The `keras.Model`; its trainable weights don't change.
        batch: The step's batch; with several workers, this worker's rows of
            it.

    Returns:
        String, where the first value that isn't finite arises, or why layers
        can't be searched, in one or two sentences; `None` if all values are
        finite.
    """
    found = _in_batch(batch)
    if found is not None:
        return found
    strategy = model.distribute_strategy
    sharded = any(
        isinstance(variable.value, ShardedVariable)
        for variable in model.variables
    )
    in_job = is_ours(strategy) and strategy.num_workers > 1
    if in_job and sharded:
        return (
            "The batch is finite. Its layers can't run again on this worker "
            "alone, because weights are sharded"
        )
    taps = _Taps(model, batch)
    with taps:
        try:
            if in_job:
                with strategy.scope(), strategy.extended.one_device():
                    step(batch)
            elif is_ours(strategy):
                with strategy.scope():
                    strategy.run_on_one_device(step, batch)
            else:
                step(batch)
        except _Found:
            pass
    return taps.said


def variables(model: keras.Model) -> list[str]:
    """Returns paths of trainable variables with values that aren't finite.

    Reads the first replica's copies, and all parts of sharded variables.
    """
    names = []
    for variable in model.trainable_variables:
        parts = getattr(variable.value, "parts", None) or [
            getattr(variable.value, "values", (variable.value,))[0]
        ]
        for part in parts:
            if not _is_finite(tf.convert_to_tensor(part)):
                names.append(_short(model, variable.path))
                break
    return names


def _short(model: keras.Model, path: str) -> str:
    """Drops the model's own name from a path."""
    return path.removeprefix(f"{model.name}/")


class _Found(Exception):
    """Raised to end the repeated step once the place is found."""


class _Taps:
    """Checks layers' outputs, the loss and gradients while a step runs.

    Attributes:
        said: String, the message on the first value that isn't finite; `None`
            while there is none.
    """

    def __init__(self, model: keras.Model, batch: Any) -> None:
        self._model = model
        self._rows = _num_rows(batch)
        # While a step runs on one device, the strategy reports one replica.
        self._num_replicas = model.distribute_strategy.num_replicas_in_sync
        self._patches = Patches()
        self.said: str | None = None

    def __enter__(self) -> None:
        for layer in self._model._flatten_layers(include_self=False):
            after = functools.partial(self._after_layer, layer)
            self._patches.put(layer, "call", after)
        self._patches.put(self._model, "compute_loss", self._after_loss)
        for optimizer in optimizers(self._model):
            instead = functools.partial(self._instead_of_apply, optimizer)
            self._patches.put(optimizer, "apply", instead)

    def __exit__(self, *error: object) -> None:
        self._patches.undo()

    def _after_layer(
        self, layer: Any, call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        outputs = call(*args, **kwargs)
        for tensor in _values(outputs):
            if not _is_finite(tensor):
                # Layers without a `build` may have no path.
                path = _short(self._model, layer.path or layer.name)
                self._say(
                    f"Layer {path!r} ({type(layer).__name__}) is the first "
                    f"whose output has {_what(tensor)}, of finite inputs and "
                    f"weights{self._rows_of(tensor)}"
                )
        return outputs

    def _after_loss(
        self, call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        loss = call(*args, **kwargs)
        if not _is_finite(tf.convert_to_tensor(loss)):
            self._say(
                "All layers' outputs are finite, and the loss function gives "
                f"{_what(tf.convert_to_tensor(loss))} for them: it takes a "
                "logarithm of 0, divides by 0, or overflows"
            )
        return loss

    def _instead_of_apply(
        self,
        optimizer: Any,
        apply: Callable[..., Any],
        grads: Any,
        trainable_variables: Any = None,
    ) -> None:
        if trainable_variables is None:
            trainable_variables = optimizer._trainable_variables
        pairs = list(zip(grads, trainable_variables))
        # The backward pass goes from the last layer to the first.
        for gradient, variable in reversed(pairs):
            values = getattr(gradient, "values", gradient)
            if values is not None and not _is_finite(values):
                path = _short(self._model, variable.path)
                self._say(
                    f"The loss is finite, and the gradient of {path!r} is the "
                    f"first with {_what(values)} on the way back: its layer's "
                    "derivative, or that of the layer behind it, is not finite"
                )

    def _say(self, text: str) -> None:
        self.said = text
        raise _Found

    def _rows_of(self, tensor: tf.Tensor) -> str:
        if (
            not self._rows
            or not tensor.shape.rank
            or tensor.shape[0] != self._rows
        ):
            return ""
        bad = ~np.isfinite(_array(tensor)).reshape(self._rows, -1).all(1)
        rows = np.flatnonzero(bad)
        text = f" (row{'s' if len(rows) > 1 else ''} {_numbers(rows)} of the "
        strategy = self._model.distribute_strategy
        num_replicas = self._num_replicas
        if is_ours(strategy) and strategy.num_workers > 1:
            return f"{text}{self._rows} of this worker or of the batch)"
        if num_replicas == 1:
            return f"{text}batch)"
        ends = np.cumsum(per_replica_batch_sizes(self._rows, num_replicas))
        replicas = np.unique(np.searchsorted(ends, rows, side="right"))
        return f"{text}batch, on replica {_numbers(replicas)})"


def _in_batch(batch: Any) -> str | None:
    """Describes the first bad values of a batch; `None` if all are finite."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
    names = (("x", x), ("y", y), ("sample_weight", weights))
    for name, part in names:
        for path, leaf in _paths(part, name):
            for tensor in _values(leaf):
                if _is_finite(tensor):
                    continue
                bad = np.argwhere(~np.isfinite(_array(tensor)))
                place = f"row {_numbers(np.unique(bad[:, 0]))}"
                if bad.shape[1] > 1:
                    column = np.unique(bad[:, 1:], axis=0)
                    shown = [
                        str(one[0]) if len(one) == 1 else str(tuple(one))
                        for one in column.tolist()
                    ]
                    place += f", column {listed(shown, MOST)}"
                return f"The batch itself has {_what(tensor)}: {path}, {place}"
    return None


def _paths(nest: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(nest, dict):
        for key, value in nest.items():
            yield from _paths(value, f"{name}[{key!r}]")
    elif isinstance(nest, (list, tuple)):
        for number, value in enumerate(nest):
            yield from _paths(value, f"{name}[{number}]")
    elif nest is not None:
        yield name, nest


def _values(nest: Any) -> list[tf.Tensor]:
    """Returns the concrete floating-point and complex tensors of a nest."""
    return [
        tensor
        for tensor in tf.nest.flatten(nest, expand_composites=True)
        if tf.is_tensor(tensor)
        and not tf.is_symbolic_tensor(tensor)
        and (tensor.dtype.is_floating or tensor.dtype.is_complex)
    ]


def _is_finite(tensor: Any) -> bool:
    if not tensor.dtype.is_floating or tf.is_symbolic_tensor(tensor):
        return True
    return bool(tf.reduce_all(tf.math.is_finite(tensor)))


def _what(tensor: Any) -> str:
    return "a NaN" if np.isnan(_array(tensor)).any() else "an infinity"


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor).astype("float64")


def _numbers(numbers: np.ndarray) -> str:
    return listed(numbers.tolist(), MOST)


def _num_rows(batch: Any) -> int | None:
    for tensor in tf.nest.flatten(batch):
        if getattr(tensor, "shape", None) is not None and tensor.shape.rank:
            return tensor.shape[0]
    return None
