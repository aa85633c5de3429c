"""Checks that a model trains the same on N replicas as on one device.

    python -m kerasmgpu.verify my_module:build

trains the user's compiled model for a few steps on one device, with stock
Keras, and on N logical CPU devices, with `kerasmgpu.MirroredStrategy`, each in
a separate process. It prints the differences, the first step and layer to
differ, and the likely cause. No GPU is needed. The files, from the inside out:

* `comparison`: distances between two runs, in plain NumPy;
* `causes`: likely causes of a difference, as sentences;
* `outcome`: a run's result, with its files of arrays;
* `training`, `layer_outputs`, `child`: one run, in its process;
* `verification`: starts the runs one after the other and compares them;
* `parity_report`: the tables;
* `__main__`: the command.

The module is callable: `kerasmgpu.verify(build, data)` calls the function
`verify` below. (Importing the subpackage `kerasmgpu.verify`, which
`python -m` needs, would replace a function of this name in `kerasmgpu`.)
"""

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def verify(
    build: Callable[[], Any] | str,
    data: (
        Callable[[], Any] | str | np.ndarray | tuple[np.ndarray, ...] | None
    ) = None,
    replica_counts: Sequence[int] = (2, 4),
    *,
    steps: int = 5,
    global_batch_size: int | None = None,
    tolerance: float | None = None,
    float64: bool = False,
    shard: str | None = None,
    micro_batches: int = 1,
    seed: int = 7,
    timeout_seconds: float = 300,
    show: bool = True,
) -> dict[str, Any]:
    """Trains a model on one device and on replicas, and reports differences.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or a pair `(model, data)`; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. It is called in
            the strategy's scope, in other processes, so it must be at the top
            level of a module.
        data: Function without arguments, or its name, that returns the data:
            arrays `x`, `(x, y)` or `(x, y, sample_weight)` (nests of NumPy
            arrays `[rows, …]`), or batches of them as a `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a generator. Arrays may also be passed
            directly. Default: the data that `build` returns, or the function
            `data` of its module.
        replica_counts: Sequence of integers of at least 2.
        steps: Integer, steps to train. Defaults to 5.
        global_batch_size: Integer, rows of a batch of arrays. Default: at most
            26, chosen for uneven shares.
        tolerance: Float, the largest weight difference that counts as parity.
            Default: 1e-5 for float32, 1e-12 for float64.
        float64: Boolean, whether to train in float64, where rounding can't
            hide a fault. Defaults to `False`.
        shard: String, `"optimizer"`, `"weights"` or `"embeddings"`: what the
            replicas' strategy shards. Variables of any size are. Default:
            nothing.
        micro_batches: Integer, micro-batches of each replica. Defaults to 1.
        seed: Integer of at least 0. Defaults to 7.
        timeout_seconds: Number, time-out of each run in seconds. Defaults to
            300.
        show: Boolean, whether to print progress and the tables. Defaults to
            `True`.

    Returns:
        Dictionary, as `--output` writes it: `"in_parity"`, and `"runs"` with
        the distances, the first differing step and layer, and the causes.

    Raises:
        InputError: If the model can't be trained on one device, or an
            argument is invalid.

    Example:

    ```python
    def build():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def data():
        random = np.random.default_rng(0)
        return random.normal(size=(100, 4)), random.normal(size=(100, 1))

    if __name__ == "__main__":
        report = kerasmgpu.verify(build, data, replica_counts=(2, 4))
        print(report["in_parity"])
    ```
    """
    from kerasmgpu.verify import verification

    return verification.run(
        build,
        data,
        replica_counts,
        steps=steps,
        global_batch_size=global_batch_size,
        tolerance=tolerance,
        float64=float64,
        shard=shard,
        micro_batches=micro_batches,
        seed=seed,
        timeout_seconds=timeout_seconds,
        show=show,
    )


class _CallableModule(types.ModuleType):
    """A module that can be called, as its function `verify`."""

    __call__ = staticmethod(verify)


sys.modules[__name__].__class__ = _CallableModule
