"""Defers the creation of variables to a first step, a first call or `adapt`.

- **Scope**: an object that was made in a strategy's scope creates its variables
  in that scope, even after the program has left it. Keras does this for
  optimizers and models only.
- **Number of traces**: a step that creates variables is traced twice, as by
  `tf.function`, since its code may take another path the first time. Metrics
  and losses that `compile` was given by name change nothing else in the step,
  so one trace is enough; an optimizer is built before the trace.

Checked on Keras 3.10 and 3.15.
"""

import contextlib
import inspect
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.layer import TFLayer
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from kerasmgpu._keras.made_variables import made_by
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours
from kerasmgpu.engine.feeds import without_optionals
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.tracing import done_once

_made_in = {}
"""Maps ids of objects to the strategies in whose scopes they were made.

Not a `WeakKeyDictionary`: users' layers may define `__eq__`.
"""


@seam(CompileLoss, "__init__")
@seam(CompileMetrics, "__init__")
@seam(TFLayer, "__init__")
def _init(original: Original, self: Any, *args: Any, **kwargs: Any) -> None:
    """Records the strategy of the scope that this object is made in."""
    original(self, *args, **kwargs)
    strategy = tf.distribute.get_strategy()
    if is_ours(strategy):
        _record(self, strategy)


def _record(owner: Any, strategy: ExactStrategy) -> None:
    _made_in[id(owner)] = strategy
    weakref.finalize(owner, _made_in.pop, id(owner), None).atexit = False


@seam(keras.Layer, "_open_name_scope")
def _open_name_scope(
    original: Original, self: Any
) -> AbstractContextManager[Any]:
    """Returns the context in which a layer is built and called."""
    names = original(self)
    if self.built:
        return names
    # While a step is traced, its model's scope is already entered.
    is_traced = not tf.executing_eagerly()
    scope = contextlib.nullcontext() if is_traced else scope_of(self)
    return _inside(scope, made_by(self), names)


@seam(keras.Layer, "add_weight")
def _add_weight(
    original: Original, self: Any, *args: Any, **kwargs: Any
) -> Any:
    """Creates a weight, also of a built layer: `enable_lora`, `quantize`."""
    if not tf.executing_eagerly():
        return original(self, *args, **kwargs)
    with scope_of(self), made_by(self):
        return original(self, *args, **kwargs)


@contextlib.contextmanager
def _inside(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


@seam(CompileLoss, "build")
@seam(CompileMetrics, "build")
def _build_compiled(
    original: Original, self: Any, y_true: Any, y_pred: Any
) -> None:
    with scope_of(self), done_once():
        original(self, y_true, y_pred)


@seam(TFOptimizer, "__init__")
def _init_optimizer(
    original: Original, self: Any, *args: Any, **kwargs: Any
) -> None:
    original(self, *args, **kwargs)
    if not is_ours(self._distribution_strategy):
        return
    _record(self, self._distribution_strategy)
    build = self.build  # Subclasses override it, so there is no seam for it.

    def build_in_scope(*args: Any, **kwargs: Any) -> Any:
        with scope_of(self), made_by(self):
            return build(*args, **kwargs)

    # Bypasses Keras's attribute tracker. The only attribute that we give to
    # an object of Keras.
    object.__setattr__(self, "build", build_in_scope)


def scope_of(owner: Any) -> AbstractContextManager[Any]:
    """Returns the scope that `owner` was made in; a no-op inside any scope."""
    strategy = _made_in.get(id(owner))
    if strategy is None or tf.distribute.has_strategy():
        return contextlib.nullcontext()
    return strategy.scope()


def build_optimizer(model: keras.Model) -> None:
    """Builds a model's optimizer before its step is traced, if possible.

    A step may take another path while the optimizer is not built (loss scaling
    does), so `tf.function` then traces it twice. If the optimizer is built
    beforehand, one trace is enough. If a layer has no weights yet, the step
    builds the optimizer, and is traced twice. The same holds for a `train_step`
    that doesn't name `optimizer`: a GAN's uses other optimizers, and the one
    that `compile` makes by default would get slots that nothing needs. And for an
    optimizer whose `build` assigns, such as Keras's `ScheduleFreeAdamW`: on one
    device these assignments belong to the first trace, which never runs.

    Args:
        model: Compiled `keras.Model` in one of our scopes.
    """
    optimizer = model.optimizer
    if optimizer is None or optimizer.built:
        return
    if not _names_optimizer(type(model).train_step) or _may_assign(optimizer):
        return
    if all(layer.built for layer in model._flatten_layers()):
        optimizer.build(model.trainable_variables)


def _names_optimizer(train_step: Callable[..., Any]) -> bool:
    """Whether code names `optimizer` or `train_step`; true if it is unknown."""
    names = _names_in(train_step)
    if names is None:
        return True  # Unknown: one trace is cheaper.
    return not names.isdisjoint({"optimizer", "train_step"})


def _names_in(code_of: Callable[..., Any]) -> set[str] | None:
    """Returns the names that a function's code has; `None` if unknown."""
    function: Any = inspect.unwrap(code_of)
    if not isinstance(function, types.FunctionType):
        return None
    codes, names = [function.__code__], set[str]()
    for code in codes:
        names.update(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return names


def _may_assign(optimizer: Any) -> bool:
    """Whether an optimizer's `build` may assign variables.

    Of a user's own `build`, this is not known.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None and _may_assign(inner):
        return True
    for kind in type(optimizer).__mro__:
        if "build" in vars(kind):
            names = _names_in(vars(kind)["build"])
            is_kerass = kind.__module__.startswith("keras.src.")
            if not is_kerass or names is None or "assign" in names:
                return True
    return False


def build_as_first_step(model: keras.Model, specification: Any) -> None:
    """Creates the variables that the first step of a model would create.

    For models without a strategy: `steps.Steps.prepare` does the same for our
    strategies, and Keras itself for TensorFlow's.

    Args:
        model: Compiled `keras.Model`.
        specification: Nest of `tf.TypeSpec`s of a batch.
    """
    specification = without_optionals(specification)
    if not (model.run_eagerly or tf.config.functions_run_eagerly()):
        step = tf.function(model.train_step, autograph=False)
        step.get_concrete_function(specification)
    elif type(model).call is not keras.Model.call:
        # Eager steps may contain code that can't be traced.
        batch = tf.nest.map_structure(_symbolic, specification)
        model._symbolic_build(data_batch=batch)


def _symbolic(leaf: Any) -> Any:
    """Returns a `KerasTensor` of unknown batch size for a leaf's `TypeSpec`."""
    if not isinstance(leaf, tf.TypeSpec):
        return leaf
    shape = list(leaf.shape)
    if shape:
        shape[0] = None
    dtype = keras.backend.standardize_dtype(leaf.dtype)
    is_sparse = isinstance(leaf, tf.SparseTensorSpec)
    return keras.KerasTensor(shape, dtype, sparse=is_sparse)
