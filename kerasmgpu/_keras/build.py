"""Variables that are made late: in a first step, by a first call, by `adapt`.

They are those of one device in both respects:

- **Where**: what is made in a strategy's scope has its variables there, also
  those that it makes when the scope is left. Keras knows this of optimizers and
  models only, and makes variables wherever they are first needed.
- **How often**: a trace that makes variables is made twice, as by
  `tf.function`: code may do other things the first time. What Keras makes in a
  step of a model whose layers are built (metrics and losses that `compile` was
  given by name; in `optimizers.py` an optimizer's variables) changes nothing
  else in the step, and one trace is enough.

Checked on Keras 3.10 and 3.15.
"""

import contextlib

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.layer import TFLayer
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from kerasmgpu._keras.optionals import without_optionals
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam
from kerasmgpu.partitioner.tracing import done_once

_MADE_IN = "_kerasmgpu_made_in"


@seam(CompileLoss, "__init__")
@seam(CompileMetrics, "__init__")
@seam(TFLayer, "__init__")
def _init(original, self, *args, **kwargs):
    """Notes the strategy in whose scope a layer, or a `compile`, is."""
    original(self, *args, **kwargs)
    strategy = tf.distribute.get_strategy()
    if is_ours(strategy):
        # Past Keras, which tracks what is set and may have closed its list.
        object.__setattr__(self, _MADE_IN, strategy)


@seam(keras.Layer, "_open_name_scope")
def _open_name_scope(original, self):
    """The context in which a layer is built (and called, once it is)."""
    names = original(self)
    # A step that is traced is one of a strategy's model, or of none.
    if self.built or not tf.executing_eagerly():
        return names
    return _inside(scope_of(self), names)


@contextlib.contextmanager
def _inside(scope, names):
    with scope, names:
        yield


@seam(CompileLoss, "build")
@seam(CompileMetrics, "build")
def _build_compiled(original, self, y_true, y_pred):
    with scope_of(self), done_once():
        original(self, y_true, y_pred)


@seam(TFOptimizer, "__init__")
def _init_optimizer(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    if not is_ours(self._distribution_strategy):
        return
    object.__setattr__(self, _MADE_IN, self._distribution_strategy)
    build = self.build  # Each kind of optimizer has one of its own.

    def build_in_scope(*args, **kwargs):
        with scope_of(self):
            return build(*args, **kwargs)

    object.__setattr__(self, "build", build_in_scope)


def scope_of(owner):
    """The scope that something was made in, unless the program is in one."""
    strategy = getattr(owner, _MADE_IN, None)
    if strategy is None or tf.distribute.has_strategy():
        return contextlib.nullcontext()
    return strategy.scope()


def build_as_first_step(model, specification):
    """Makes the variables that the first step of a model makes.

    For models that no strategy trains: `steps.Steps.prepare` does it for ours,
    and Keras for those of TensorFlow's.

    Args:
        model: Compiled `keras.Model`.
        specification: Nest of `tf.TypeSpec`s of a batch.
    """
    specification = without_optionals(specification)
    if not (model.run_eagerly or tf.config.functions_run_eagerly()):
        step = tf.function(model.train_step, autograph=False)
        step.get_concrete_function(specification)
    elif type(model).call is not keras.Model.call:
        # Eager steps may do what can't be traced.
        batch = tf.nest.map_structure(_symbolic, specification)
        model._symbolic_build(data_batch=batch)


def _symbolic(leaf):
    """The Keras tensor that stands for a leaf of any batch."""
    if not isinstance(leaf, tf.TypeSpec):
        return leaf
    shape = list(leaf.shape)
    if shape:
        shape[0] = None
    dtype = keras.backend.standardize_dtype(leaf.dtype)
    is_sparse = isinstance(leaf, tf.SparseTensorSpec)
    return keras.KerasTensor(shape, dtype, sparse=is_sparse)
