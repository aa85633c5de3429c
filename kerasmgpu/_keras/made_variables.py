"""Tells strategies that shard which variable Keras is creating.

TensorFlow's variable creators see a name and a value. Keras knows the path,
whether an optimizer or an `Embedding` creates it, and its layout in the current
`keras.distribution`, which is kept as on JAX: in `variable._layout`, which the
optimizer's slots take over, and in `variable.value.sharding`, for programs that
print it. Checked on Keras 3.10 and 3.15.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.tensorflow.optimizer import TFOptimizer

from kerasmgpu._keras.distribution_backend import (
    NamedSharding,
    check_rank,
    sharding_of,
)
from kerasmgpu._keras.versions import TensorFlowVariable
from kerasmgpu.division import NewVariable
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime import replaced


@dataclasses.dataclass(frozen=True)
class MadeVariable:
    """Describes a variable that Keras is creating.

    Attributes:
        path: The variable's path, such as `"dense/kernel"`.
        is_slot: Whether an optimizer creates it.
        is_embedding: Whether it is a table of an `Embedding` layer: it has a row
            for each of the layer's inputs.
        layout: Its layout in the distribution, or `None` without one. It may
            have fewer axes than the variable has dimensions; the last ones are
            not sharded then.
        trainable: Whether it was trainable when it was created.
    """

    path: str
    is_slot: bool
    is_embedding: bool
    layout: NamedSharding | None = None
    trainable: bool = True


_MADE, _WEIGHT = "_kerasmgpu_made", "_kerasmgpu_weight"
"""Attributes of a Keras variable: its first `MadeVariable`, and of a slot the
weight for which the optimizer made it."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.owners: list[Any] = []
        self.variables: list[MadeVariable] = []


_thread = _Thread()


def current() -> MadeVariable | None:
    """Returns the variable that this thread is creating, or `None`."""
    return _thread.variables[-1] if _thread.variables else None


def described(variable: Any) -> NewVariable:
    """Describes a variable of Keras as the strategy saw it when it was created.

    Its layout is the present one.
    """
    made = getattr(variable, _MADE, None) or MadeVariable("", False, False)
    layout, held = getattr(variable, "_layout", None), variable.value
    return description(
        dataclasses.replace(
            made, layout=None if layout is None else sharding_of(layout)
        ),
        variable.path,
        tuple(variable.shape),
        keras.backend.standardize_dtype(variable.dtype),
        made.is_slot or weight_of(variable) is not None,
        made.trainable,
        getattr(held, "synchronization", None)
        == tf.VariableSynchronization.ON_READ,
    )


def description(
    made: MadeVariable | None,
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    is_slot: bool,
    trainable: bool,
    is_combined: bool,
) -> NewVariable:
    """Returns the `NewVariable` of a variable, of Keras if `made` is given.

    A slot has no layout: it has the axes of its weight.
    """
    kind = "slot" if is_slot else "weight" if trainable else "other"
    spec: tuple[str | None, ...] = ()
    if made is not None and made.layout is not None and not is_slot:
        spec = tuple(made.layout.spec)
    is_embedding = made is not None and made.is_embedding
    return NewVariable(
        path, shape, dtype, kind, is_embedding, spec, is_combined
    )


def weight_of(slot: Any) -> Any:
    """Returns the weight for which an optimizer made a variable, or `None`."""
    return getattr(slot, _WEIGHT, None)


def infers_shapes() -> bool:
    """Whether Keras calls layers only to know the shapes of their outputs."""
    return in_symbolic_scope()


@contextlib.contextmanager
def made_by(owner: Any) -> Iterator[None]:
    """Marks variables created in a `with` block as those of `owner`."""
    _thread.owners.append(owner)
    try:
        yield
    finally:
        _thread.owners.pop()


@seam(TensorFlowVariable, "_initialize")
def _initialize(original: Original, self: Any, value: Any) -> None:
    owner = _thread.owners[-1] if _thread.owners else None
    is_slot = isinstance(owner, keras.optimizers.Optimizer)
    made = MadeVariable(
        self.path,
        is_slot,
        _is_table(owner, self),
        _layout(self, value, is_slot),
        bool(self.trainable),
    )
    if not hasattr(self, _MADE):  # A layout that is found makes it anew.
        setattr(self, _MADE, made)
    _thread.variables.append(made)
    try:
        original(self, value)
    finally:
        _thread.variables.pop()
    if made.layout is not None:
        self._value.sharding = made.layout


def _is_table(owner: Any, variable: Any) -> bool:
    """Whether rows of a variable are looked up; not those of LoRA's second one."""
    if not isinstance(owner, keras.layers.Embedding):
        return False
    shape = variable._shape
    return shape is None or tuple(shape[:1]) == (owner.input_dim,)


@seam(TFOptimizer, "add_variable_from_reference")
def _add_slot(
    original: Original,
    self: Any,
    reference_variable: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    slot = original(self, reference_variable, *args, **kwargs)
    setattr(slot, _WEIGHT, reference_variable)
    return slot


@seam(TensorFlowVariable, "__init__")
def _init(original: Original, self: Any, *args: Any, **kwargs: Any) -> None:
    # Keras 3.10 drops the argument on TensorFlow.
    self._layout = kwargs.get("layout")
    original(self, *args, **kwargs)


def set_layout(variable: Any, layout: Any) -> None:
    """Says in which layout a Keras variable is already.

    Args:
        variable: `keras.Variable`.
        layout: `keras.distribution.TensorLayout`.
    """
    variable._layout = layout
    variable._value.sharding = sharding_of(layout)


def lay_out(variable: Any, layout: Any) -> None:
    """Makes the value of a Keras variable anew, laid out in another way.

    Steps and partitioned functions that captured it are traced again.

    Args:
        variable: `keras.Variable` that is sharded, in the scope of whose
            strategy it runs. If it is divided between workers, all must call it.
        layout: `keras.distribution.TensorLayout`.
    """
    before, value = variable._value, keras.ops.convert_to_numpy(variable)
    variable._layout = layout
    variable._initialize(value)
    # By it, optimizers know the variables that they were built with. That of
    # copies is their first one's.
    made = getattr(variable._value, "_primary", variable._value)
    made._unique_id = before._unique_id
    replaced.note(before)


def _layout(variable: Any, value: Any, is_slot: bool) -> NamedSharding | None:
    """Returns the layout of a variable that Keras is creating.

    A key for a weight may match a slot of fewer dimensions, such as Adafactor's
    rows and columns of `".*kernel"`: the slot has no layout then.

    Raises:
        InputError: If it has more axes than the variable has dimensions.
    """
    strategy = tf.distribute.get_strategy()
    distribution = keras.distribution.distribution()
    if is_ours(strategy):  # Perhaps that of a distribution before this one.
        distribution = strategy.distribution
    layout = getattr(variable, "_layout", None)
    if layout is None and distribution is not None:
        if variable._shape is None:  # Keras sets it later.
            variable._shape = variable._validate_shape(value.shape)
        layout = distribution.get_variable_layout(variable)
        if is_slot and layout is not None:
            axes = sharding_of(layout).spec
            layout = None if len(axes) > len(variable.shape) else layout
        variable._layout = layout
    if layout is None:
        return None
    sharding = sharding_of(layout)
    check_rank(sharding.spec, variable.shape, f"variable {variable.path!r}")
    return sharding
