"""Where Keras is entered: everything that reaches past its public API.

`install()` puts a dispatcher at each seam (`seams.py`): for models of one of our
strategies it does what `fit` needs to run partitioned steps, everywhere else it
calls the original, so nothing changes for models that were not built in our
scope. The other files hold the seams by subject and say what each is for;
`seams.SEAMS` lists the names that ours stand in front of, which
`tests/_keras/test_keras_seams.py` checks one by one;
`python -m tests._keras.private_names` lists those that are only read, too.
`versions.py` says which versions of Keras and TensorFlow they are known in.
TensorFlow's own graphs are entered by `partitioner/` as well.
"""

import kerasmgpu._keras.versions  # noqa: F401  Before all names that may be gone.
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
