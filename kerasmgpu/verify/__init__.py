"""Is my model the same on N replicas? Checked on this machine, without GPUs.

    python -m kerasmgpu.verify my_module:build

trains the user's own compiled model for a few steps on one device, with stock
Keras, and on N logical CPU devices, with `kerasmgpu.MirroredStrategy`, each in
a process of its own, and prints what differs, where it first does, and the
likely cause. The files, from the inside out:

* `comparison`: distances between two runs, in plain NumPy;
* `causes`: what a distance means, in words;
* `outcome`: what a run leaves in its folder, and how it is read;
* `batches`, `training`, `layer_outputs`, `child`: one run, in its process;
* `references`: how a function is named, so that another process finds it;
* `user_models`: what that function returns;
* `runs`: starts the runs one after the other and compares them;
* `report`: the tables;
* `__main__`: the command.

The module itself can be called: `kerasmgpu.verify(build, data)` is the function
`verify` below. (Python makes a package's submodule its attribute, so a function
could not have the name that `python -m kerasmgpu.verify` needs.)
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
    seed: int = 7,
    timeout_seconds: float = 300,
    show: bool = True,
) -> dict[str, Any]:
    """Trains a model on one device and on replicas, and reports what differs.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or the pair of that and its data; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. It is called in
            the strategy's scope, in other processes, so it must be at the top
            level of a module.
        data: The same for the data: arrays `x`, `(x, y)` or `(x, y,
            sample_weight)` (nests of NumPy arrays `[rows, …]`), or batches of
            them as a `tf.data.Dataset`, a `keras.utils.PyDataset` or a
            generator. Arrays may also be given themselves. Default: what
            `build` returns with the model, or the function `data` of its
            module.
        replica_counts: Sequence of integers of at least 2.
        steps: Integer, steps to train. Defaults to 5.
        global_batch_size: Integer, rows of a batch of arrays. Default: at most
            26, chosen for uneven shares.
        tolerance: Float, the largest weight difference that counts as parity.
            Default: 1e-5 for float32, 1e-12 for float64.
        float64: Boolean, trains in float64, where rounding can't hide a fault.
            Defaults to `False`.
        seed: Integer of at least 0. Defaults to 7.
        timeout_seconds: Number, seconds that each run may take. Defaults to
            300.
        show: Boolean, prints progress and the tables. Defaults to `True`.

    Returns:
        Dictionary, as `--output` writes it: `"in_parity"`, and `"runs"` with
        the distances, the first differing step and layer, and the causes.

    Raises:
        InputError: If the model can't be trained on one device, or an
            argument can't be used as it is.

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
    from kerasmgpu.verify import runs

    return runs.run(
        build,
        data,
        replica_counts,
        steps=steps,
        global_batch_size=global_batch_size,
        tolerance=tolerance,
        float64=float64,
        seed=seed,
        timeout_seconds=timeout_seconds,
        show=show,
    )


class _CallableModule(types.ModuleType):
    """A module that is also the function of its name."""

    __call__ = staticmethod(verify)


sys.modules[__name__].__class__ = _CallableModule
