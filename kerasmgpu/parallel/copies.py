"""One copy of a parallel function: computed, and differentiated, on a device."""

import tensorflow as tf

from kerasmgpu.parallel import rows


def run_on(device, fn, inputs):
    """Runs `fn`, and later its gradient, on a device.

    TensorFlow leaves the device of gradients open: without care, a GPU that
    computed its share would hand the larger half of the work, the backward
    pass, to the first GPU. (`tf.gradients` of TensorFlow 1 could colocate.)

    Args:
        device: String, name of the device.
        fn: Function to run.
        inputs: `(args, kwargs)` of `fn`.
    """
    leaves = tf.nest.flatten(inputs)
    is_tensor = [
        tf.is_tensor(leaf) and not is_variable(leaf) for leaf in leaves
    ]
    tensors = [leaf for leaf, given in zip(leaves, is_tensor) if given]

    def place(tensors):
        remaining = iter(tensors)
        return tf.nest.pack_sequence_as(
            inputs,
            [
                next(remaining) if given else leaf
                for leaf, given in zip(leaves, is_tensor)
            ],
        )

    place = tf.autograph.experimental.do_not_convert(place)

    @tf.function
    def run(*tensors):
        args, kwargs = place(tensors)
        with tf.device(device):
            return fn(*args, **kwargs)

    # Tensors that `fn` closes over have gradients too. (Variables are among
    # the captured inputs as handles; the tape knows them by themselves.)
    captured = run.get_concrete_function(*tensors).captured_inputs
    return _with_gradient_on(
        device, run, tensors, list(filter(_has_gradient, captured))
    )


def _with_gradient_on(device, run, tensors, captured):
    """`run(*tensors)` whose gradient is computed on `device`."""
    structure = None

    @tf.custom_gradient
    def copy(*flat):
        nonlocal structure
        inputs = tf.nest.pack_sequence_as(
            tensors, flat[: len(flat) - len(captured)], expand_composites=True
        )
        sources = [*flat[: len(flat) - len(captured)], *captured]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([source for source in sources if _has_gradient(source)])
            structure = run(*inputs)
        rows.require_tensors(structure)
        outputs = tf.nest.flatten(structure, expand_composites=True)

        def gradient(*output_gradients, variables=()):
            pairs = [
                (output, output_gradient)
                for output, output_gradient in zip(outputs, output_gradients)
                if _has_gradient(output)
            ]
            with tf.device(device):
                gradients = tape.gradient(
                    [output for output, _ in pairs],
                    [*sources, *variables],
                    [output_gradient for _, output_gradient in pairs],
                )
            of_inputs = gradients[: len(sources)]
            if not variables:
                return of_inputs
            return of_inputs, gradients[len(sources) :]

        return outputs, gradient

    flat = tf.nest.flatten(tensors, expand_composites=True)
    outputs = copy(*flat, *captured)
    return tf.nest.pack_sequence_as(structure, outputs, expand_composites=True)


def _has_gradient(tensor):
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def is_variable(leaf):
    """Whether it is a variable, TensorFlow's or Keras's."""
    return hasattr(leaf, "assign")
