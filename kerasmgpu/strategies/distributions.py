"""Makes a `keras.distribution` the strategy in which the program goes on.

`keras.distribution.set_distribution` calls `follow`: models that are made from
then on are those of the distribution's strategy, as in `strategy.scope()`.
"""

from typing import Any

import tensorflow as tf

from kerasmgpu.engine import entered
from kerasmgpu.errors import InputError
from kerasmgpu.strategies import noted_distributions
from kerasmgpu.strategies.layouts import ABSTRACT, Distribution

_ATTRIBUTE = "_kerasmgpu_strategy"
"""Attribute of a distribution that holds its strategy."""


def strategy_of(distribution: Distribution) -> Any:
    """Returns the strategy of a distribution, made at the first call.

    Raises:
        InputError: If a device of its mesh is not available.
    """
    from kerasmgpu.strategies import strategy  # It imports this module.

    if not hasattr(distribution, _ATTRIBUTE):
        made: Any = strategy(distribution=distribution)
        made.extended.has_scope_of_program = False
        setattr(distribution, _ATTRIBUTE, made)
    return getattr(distribution, _ATTRIBUTE)


def follow(distribution: Distribution | None) -> None:
    """Enters the strategy of a distribution, and leaves the one before.

    Args:
        distribution: `keras.distribution.Distribution`; `None`: one device.

    Raises:
        InputError: In the scope of a strategy; if it is no distribution, or a
            device of its mesh is not available.
    """
    lays_out_nothing = type(distribution) in (type(None), ABSTRACT)
    note = noted_distributions.current()
    if note is not None:
        note.take(None if lays_out_nothing else distribution)
        return
    if entered.current() is None and tf.distribute.has_strategy():
        if distribution is None:
            return
        raise InputError(
            "A distribution can't be set in the scope of a strategy. "
            f"Received: {distribution}; set it outside of `with "
            "strategy.scope():`, or use only one of the two"
        )
    entered.enter(None if lays_out_nothing else strategy_of(distribution))
