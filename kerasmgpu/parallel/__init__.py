"""Any function of batched tensors, split over devices.

    parallel = kerasmgpu.make_parallel(predict, num_replicas=2)
    rows = parallel(x=images, temperature=0.5)

The rows of every batched input are divided over the devices, each device runs
a copy of the function on its share, and the outputs are concatenated in the
order of the rows. The copies share their variables: there is one of each, where
it was created, and devices read it from there. To train a Keras model with a
copy of the variables on every device, take `kerasmgpu.MirroredStrategy`.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from kerasmgpu import devices as device_choice
from kerasmgpu.errors import InputError
from kerasmgpu.parallel import copies, rows
from kerasmgpu import shares as split


@dataclasses.dataclass(frozen=True)
class Shared:
    """A value that every copy gets whole; see `shared`."""

    value: object


def shared(value):
    """Marks an input of a parallel function that is not split by rows.

    Needed only for arrays and tensors whose first axis is not the batch.
    Variables, scalars and other Python values are never split.

    Args:
        value: Array or tensor (also sparse or ragged), or a nest of them.

    Returns:
        The same nest, each part marked.

    Example:

    ```python
    project = kerasmgpu.make_parallel(tf.matmul)
    project(rows, kerasmgpu.parallel.shared(matrix))
    ```
    """
    return tf.nest.map_structure(Shared, value)


def make_parallel(
    fn, num_replicas=None, devices=None, virtual_devices=None, **tensors
):
    """Makes a function run on several devices, each with a share of the rows.

    The result is called like `fn` and returns what `fn` returns for the whole
    batch, if a row of its output depends on the same row of its inputs only.
    Shares differ by at most one row; where there are fewer rows than devices,
    the other devices have nothing to do. Gradients flow through it, to
    inputs, variables and tensors that `fn` closes over, and are computed on
    the device of the share. It may be called eagerly, in a `tf.function` and
    in a Keras `train_step`; either way the copies run at the same time.

    Inputs and outputs may be any nest (tuples, dictionaries, ...) of tensors,
    `tf.SparseTensor`s and `tf.RaggedTensor`s. Every array or tensor with an
    axis is split along its first, unless it is marked by `shared`; variables,
    scalars, strings and other Python values go to every copy as they are.

    `fn` is traced as by `tf.function`: it creates its variables in its first
    call only, and a Python number that changes from call to call is better
    passed as a tensor. XLA compiles for one device: a Keras model that calls
    it is compiled with `jit_compile=False`.

    Args:
        fn: Function whose outputs have one row per row of its inputs.
        num_replicas: Number of devices. Default: all GPUs; with no GPU all
            logical CPU devices.
        devices: Names instead of a number, such as `["GPU:0", "GPU:2"]`.
        virtual_devices: Number of logical CPU devices to make and use.
        **tensors: Where keyword arguments of `fn` are given, it is called
            with them at once.

    Returns:
        A function like `fn`; or what it returns, where `tensors` are given.

    Raises:
        InputError: If the devices can't be had. When called: if no input has
            rows, if inputs have different numbers of rows, or if an output
            has not one row per row of the inputs.

    Example:

    ```python
    w = tf.Variable([[2.0]])
    parallel = kerasmgpu.make_parallel(lambda x: x @ w, num_replicas=2)
    x = tf.constant([[1.0], [2.0], [3.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(parallel(x))
    print(loss.numpy(), tape.gradient(loss, w).numpy())  # 4.0 [[2.]]
    kerasmgpu.make_parallel(lambda x: x @ w, 2, x=x)  # [[2.], [4.], [6.]]
    ```
    """
    if not callable(fn):
        raise InputError(
            f"make_parallel needs a function. Received: {fn!r}; give the "
            "function itself, not what it returns"
        )
    names = device_choice.choose(num_replicas, devices, virtual_devices)
    parallel = _Parallel(fn, names)
    return parallel(**tensors) if tensors else parallel


class _Parallel:
    """What `make_parallel` returns."""

    def __init__(self, fn, devices):
        self.fn = fn
        self.devices = devices
        self._compiled = tf.function(self._run, reduce_retracing=True)

    def __call__(self, *args, **kwargs):
        inputs = (args, kwargs)
        is_split = tuple(map(_is_split, tf.nest.flatten(inputs)))
        if not any(is_split):
            raise InputError(
                "A parallel function needs an array or tensor of rows to "
                f"split. Received: {rows.described(inputs)}"
            )
        inputs = tf.nest.map_structure(_plain, inputs)
        if not tf.executing_eagerly():
            return self._run(inputs, is_split)
        # Run eagerly, one copy would wait for the other.
        try:
            return self._compiled(inputs, is_split)
        except tf.errors.InvalidArgumentError as error:
            # An assertion of ours, which TensorFlow puts between brackets.
            for check in (rows.DIFFERENT_ROWS, rows.OTHER_ROWS):
                before, found, after = error.message.partition(f"[{check}")
                if found:
                    line = found[1:] + after.partition("] [Condition")[0]
                    raise InputError(line) from error
            raise

    @tf.autograph.experimental.do_not_convert
    def _run(self, inputs, is_split):
        """Splits the inputs, runs the copies, and joins their outputs.

        Args:
            inputs: `(args, kwargs)` of `fn`.
            is_split: Tuple, for each leaf of `inputs` whether it has rows.
        """
        leaves = tf.nest.flatten(inputs)
        num_rows = rows.common_rows(
            [
                (name, leaf)
                for name, leaf, has_rows in zip(
                    rows.input_names(inputs), leaves, is_split
                )
                if has_rows
            ]
        )
        shares = rows.shares_of(num_rows, len(self.devices))
        outputs = []
        for device, (start, end, kept) in zip(self.devices, shares):
            share = [
                rows.between(leaf, start, end) if has_rows else leaf
                for leaf, has_rows in zip(leaves, is_split)
            ]
            output = copies.run_on(
                device, self.fn, tf.nest.pack_sequence_as(inputs, share)
            )
            outputs.append(rows.checked(output, end - start, kept))
        return tf.nest.map_structure(rows.joined, *outputs)


def _is_split(leaf):
    """Whether a leaf of the inputs is split by rows."""
    if isinstance(leaf, np.ndarray):
        return leaf.ndim > 0
    return split.has_rows(leaf) and not copies.is_variable(leaf)


def _plain(leaf):
    """The leaf without its mark, arrays as tensors."""
    value = leaf.value if isinstance(leaf, Shared) else leaf
    if isinstance(value, (np.ndarray, np.generic)):
        return tf.convert_to_tensor(value)
    return value
