"""Fills the table of models."""

from tests.models import (  # noqa: F401  (they register theirs)
    applications,
    contrastive,
    generative,
    optimizers,
    pictures,
    recurrent,
    transformers,
    tricks,
)
from tests.models.registry import MODELS

__all__ = ["MODELS"]
