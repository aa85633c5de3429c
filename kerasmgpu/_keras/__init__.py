"""Patches of Keras, and all uses of its private API.

`install()` puts a dispatcher at each seam (`seams.py`). For models of our
strategies it runs partitioned steps; for all other models it calls the
original, so their behaviour does not change. The other files hold the seams by
subject. `seams.SEAMS` lists the patched names, which
`tests/_keras/test_keras_seams.py` checks one by one;
`python -m tests._keras.private_names` also lists private names that are only
read. `versions.py` has the versions of Keras and TensorFlow they were checked
on. Private API of TensorFlow's graphs is used in `partitioner/` as well.
"""

import kerasmgpu._keras.versions  # noqa: F401  Before any private name.
from kerasmgpu._keras import (  # noqa: F401
    build,
    generators,
    iterators,
    loops,
    losses,
    normalization,
    optimizers,
    scalars,
    slices,
    steps,
    sums,
    tapes,
)
from kerasmgpu._keras.engine import (
    LocalExtended,
    WorkerExtended,
    abort_collectives,
    global_seed,
    has_started,
    set_length,
)
from kerasmgpu._keras.files import num_files
from kerasmgpu._keras.seams import install
from kerasmgpu._keras.steps import trainer_of

__all__ = [
    "LocalExtended",
    "WorkerExtended",
    "abort_collectives",
    "global_seed",
    "has_started",
    "install",
    "num_files",
    "set_length",
    "trainer_of",
]
