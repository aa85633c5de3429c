"""Patches of Keras, and all uses of its private API.

`install()` puts a dispatcher at each seam (`engine/seams.py`). For models of
our strategies it runs partitioned steps; for all other models it calls the
original, so their behaviour does not change. The other files hold the seams by
subject. `seams.SEAMS` lists the patched names, those of TensorFlow in `engine/`
included; tests check them one by one. `python -m tests._keras.private_names`
also lists private names that are only read. `versions.py` has the versions of
Keras that they were checked on. Private API of TensorFlow is used in `engine/`
and `partitioner/`.
"""

import kerasmgpu._keras.versions  # noqa: F401  Before any private name.
from kerasmgpu import _import_on_use
from kerasmgpu._keras import (  # noqa: F401
    build,
    divided_inputs,
    grain_states,
    initializers,
    iterators,
    loops,
    normalization,
    outside_steps,
    progress_bar,
    recomputed,
    repeated_updates,
    replica_draws,
    steps,
    stored_weights,
)
from kerasmgpu._keras.steps import trainer_of
from kerasmgpu.engine import (  # noqa: F401
    compiled_graphs,
    device_iterators,
    distributed_variables,
    entered,
    generators,
    graph_resets,
    loaded_functions,
    seams,
    tapes,
)

_import_on_use(__name__)

__all__ = ["install", "trainer_of"]


def install() -> None:
    """Installs all patches; does nothing when called again."""
    seams.install()
