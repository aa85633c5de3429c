"""Fills the table of families."""

from tests.keras_hub import (  # noqa: F401  (they register theirs)
    images_and_texts,
    recommenders,
    sequences_and_sounds,
    text_encoders,
    text_generators,
    vision,
    vision_tasks,
)
from tests.keras_hub.registry import FAMILIES

__all__ = ["FAMILIES"]
