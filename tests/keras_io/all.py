"""Fills the tables of examples and of reports."""

from tests.keras_io import (  # noqa: F401  (they register theirs)
    densities,
    generative,
    generative_tricks,
    graphs_and_play,
    recommenders,
    reports_of_data,
    reports_of_jobs,
    reports_of_layers,
    reports_of_saving,
    reports_of_steps,
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
