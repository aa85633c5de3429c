"""Settings of Keras that belong to a thread, handed to the replicas' threads."""

from keras.src.backend.common import global_state

_THREAD_STATE = (
    "dtype_policy",
    "custom_objects_scope_dict",
    "flash_attention",
    "traceback_filtering",
    "global_random_seed",
)
"""Global settings of Keras that a replica's thread must see as its parent."""


def thread_state():
    """Keras's thread-local settings of this thread, for a replica's thread."""
    return {
        name: value
        for name in _THREAD_STATE
        if (value := global_state.get_global_attribute(name)) is not None
    }


def set_thread_state(state):
    """Gives this thread the settings that `thread_state()` returned."""
    for name, value in state.items():
        global_state.set_global_attribute(name, value)
