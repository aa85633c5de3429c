import numpy as np

from kerasmgpu.callbacks.checkpoints.callback_states import CallbackStates


class Counter:
    """Stands for a callback."""

    def __init__(self, patience, wait=0):
        self.patience = patience
        self.wait = wait
        self.best = np.float32(np.nan)
        self.params = {"epochs": 3}
        self.model = self.function = print


class Other(Counter):
    pass


def test_what_training_changed_is_restored_and_settings_are_not():
    counter = Counter(patience=5)
    states = CallbackStates([counter])
    counter.wait, counter.seen, counter.params = 3, [1, 2], {"epochs": 9}
    saved = states.read()
    assert saved[0]["attributes"] == {"wait": 3, "seen": [1, 2]}
    again = Counter(patience=7)
    CallbackStates([again]).restore(saved)
    assert (again.patience, again.wait, again.seen) == (7, 3, [1, 2])
    assert again.params == {"epochs": 3}


def test_callbacks_are_matched_by_class_and_order():
    callbacks = [Counter(1), Other(1), Counter(1)]
    states = CallbackStates(callbacks)
    for wait, callback in enumerate(callbacks):
        callback.wait = wait + 1
    saved = states.read()
    first, second, other = Counter(1), Counter(1), Other(1)
    CallbackStates([other, first, second]).restore(saved[:2])
    assert (first.wait, second.wait, other.wait) == (1, 0, 2)
