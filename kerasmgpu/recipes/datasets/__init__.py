"""Data of the recipes: ratings, images and reviews, read or generated."""

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
