"""Ratings of items by users, as three plain arrays."""

import dataclasses

import numpy as np

from kerasmgpu.recipes.shared import holding_out

DTYPES = {
    "users": np.int32,
    "items": np.int32,
    "values": np.float32,
    "user_ids": np.int64,
    "item_ids": np.int64,
}
"""Names of the arrays of `Ratings` to their types."""


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class Ratings:
    """Who rated what, and how.

    Rating `k` says that user `users[k]` gave item `items[k]` the rating
    `values[k]`. Users and items are numbered densely from 0; `user_ids` and
    `item_ids` lead back to the numbers in the file. No (user, item) pair
    occurs twice.

    Args:
        users: int32 array `[ratings]`, each in `[0, num_users)`.
        items: int32 array `[ratings]`, each in `[0, num_items)`.
        values: float32 array `[ratings]`, on the file's own scale
            (MovieLens: 0.5 or 1 up to 5 stars).
        user_ids: int64 array `[num_users]`, the id in the file of each user.
        item_ids: int64 array `[num_items]`, the id in the file of each item.
        description: One line for people: where the ratings are from.

    Raises:
        ValueError: an array has another dtype, rank or length.

    Example:

    ```python
    ratings = Ratings(
        users=np.array([0, 0, 1], np.int32),
        items=np.array([0, 1, 1], np.int32),
        values=np.array([4.0, 3.5, 5.0], np.float32),
        user_ids=np.array([7, 9]),
        item_ids=np.array([10, 20]),
        description="three ratings",
    )
    train, held_out = ratings.split(held_out=0.34)
    ```
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    user_ids: np.ndarray
    item_ids: np.ndarray
    description: str

    def __post_init__(self):
        for name, dtype in DTYPES.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1:
                raise ValueError(
                    f"{name} must be a {np.dtype(dtype)} vector. Received: "
                    f"dtype {array.dtype}, shape {array.shape}"
                )
        if not len(self.users) == len(self.items) == len(self.values):
            raise ValueError(
                "users, items and values must have one entry per rating. "
                f"Received lengths: {len(self.users)}, {len(self.items)}, "
                f"{len(self.values)}"
            )

    @property
    def num_users(self):
        """Number of users, with or without ratings in this part."""
        return len(self.user_ids)

    @property
    def num_items(self):
        """Number of items, with or without ratings in this part."""
        return len(self.item_ids)

    def __len__(self):
        return len(self.values)

    def split(self, held_out=0.1, seed=0):
        """Splits the ratings at random into two parts.

        Every rating is in exactly one part, in the order it has here. Both
        parts keep all users and items, so their positions stay comparable.
        The same seed gives the same split.

        Args:
            held_out: Fraction of the ratings to hold out, between 0 and 1,
                both excluded; each part gets at least one. Defaults to `0.1`.
            seed: Non-negative integer. Defaults to `0`.

        Returns:
            `(train, held_out)`, both `Ratings`.

        Raises:
            InputError: the fraction or the seed is out of range, or there are
                fewer than two ratings.
        """
        is_held_out = holding_out.chosen(
            len(self), held_out, seed, "ratings", self.description
        )
        return (
            self._part(~is_held_out, f"{1 - held_out:.0%} for training"),
            self._part(is_held_out, f"{held_out:.0%} held out"),
        )

    def _part(self, chosen, name):
        return dataclasses.replace(
            self,
            users=self.users[chosen],
            items=self.items[chosen],
            values=self.values[chosen],
            description=f"{self.description}; {name}",
        )
