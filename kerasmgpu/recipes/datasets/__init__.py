"""Data of the recipes: ratings, images and reviews, read or generated."""

from kerasmgpu import _import_on_use

_import_on_use(__name__)

MOVIELENS = (
    "ml-100k",
    "ml-1m",
    "ml-10m",
    "ml-20m",
    "ml-25m",
    "ml-32m",
    "ml-latest-small",
)
"""Data sets that `movielens.load` fetches by their names."""
