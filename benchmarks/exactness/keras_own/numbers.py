"""What models made in a test, to compare with what they make on one device."""

import functools

import numpy as np
import tensorflow as tf

from kerasmgpu._keras.versions import TensorFlowTrainer

METHODS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)

TOLERANCE = 1e-4
"""Largest difference of two values: of the largest in the array, if above 1."""


class Numbers:
    """Records what every call of a model's `fit` and the like made.

    Attributes:
        calls: List of dictionaries, one per call: `{"method": [name],
            "returned": arrays, "variables": arrays, "optimizer": arrays}`.
            Replace it to record elsewhere.
    """

    def __init__(self):
        self.calls = []
        self._is_inside = False

    def install(self):
        """Lets each of Keras's models report to this."""
        for method in METHODS:
            original = getattr(TensorFlowTrainer, method)
            setattr(TensorFlowTrainer, method, self._recorded(original))

    def _recorded(self, original):
        @functools.wraps(original)
        def method(model, *args, **kwargs):
            if self._is_inside:  # `fit` evaluates, say.
                return original(model, *args, **kwargs)
            self._is_inside = True
            try:
                returned = original(model, *args, **kwargs)
            finally:
                self._is_inside = False
            optimizer = getattr(model, "optimizer", None)
            self.calls.append(
                {
                    "method": original.__name__,
                    "returned": _arrays(getattr(returned, "history", returned)),
                    "variables": _arrays(getattr(model, "variables", [])),
                    "optimizer": _arrays(getattr(optimizer, "variables", [])),
                }
            )
            return returned

        return method


def differences(one, many):
    """Where two lists of calls differ by more than rounding, in words.

    Args:
        one: `Numbers.calls` of a test on one device.
        many: Those of the same test under a strategy.

    Returns:
        List of strings.
    """
    if [c["method"] for c in one] != [c["method"] for c in many]:
        return ["other methods of models were called"]
    return [
        f"call {number}, {call['method']}, {what}: {words}"
        for number, (call, other) in enumerate(zip(one, many), 1)
        for what in ("returned", "variables", "optimizer")
        for words in _differences(call[what], other[what])
    ]


def _differences(one, many):
    if len(one) != len(many):
        return [f"{len(one)} arrays on one device, {len(many)} here"]
    return [
        f"array {number} is {_short(a)} on one device, {_short(b)} here"
        for number, (a, b) in enumerate(zip(one, many))
        if not _is_same(a, b)
    ]


def _is_same(one, many):
    if one.shape != many.shape or one.dtype != many.dtype:
        return False
    if one.dtype.kind not in "fc":
        return np.array_equal(one, many)
    largest = np.max(np.abs(one[np.isfinite(one)]), initial=0.0)
    tolerance = TOLERANCE * max(1.0, largest)
    return np.allclose(many, one, rtol=0, atol=tolerance, equal_nan=True)


def _arrays(nest):
    """Copies of all numbers of a nest; what isn't a number is left out."""
    arrays = []
    for leaf in tf.nest.flatten(nest, expand_composites=True):
        leaf = getattr(leaf, "value", leaf)  # Of a variable of Keras.
        if isinstance(leaf, tf.Variable):
            leaf = tf.convert_to_tensor(leaf)
        array = np.array(leaf)
        if array.dtype.kind in "fciub":
            arrays.append(array)
        elif array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            arrays.append(array.astype("float32"))
    return arrays


def _short(array):
    values = np.array2string(array.ravel()[:6], precision=6, separator=",")
    return f"{array.dtype}{list(array.shape)} {values}"
