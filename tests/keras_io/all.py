"""Fills the table of examples."""

from tests.keras_io import (  # noqa: F401  (they register theirs)
    densities,
    generative,
    generative_tricks,
    graphs_and_play,
    recommenders,
    representation,
    self_supervised,
    series,
    structured,
    text,
    training,
    vision,
    vision_tasks,
)
from tests.keras_io.registry import EXAMPLES

__all__ = ["EXAMPLES"]
