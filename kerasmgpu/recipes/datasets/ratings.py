"""Ratings of items by users, as plain arrays."""

import dataclasses

import numpy as np

from kerasmgpu.recipes.datasets import holding_out


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class Ratings:
    """User `users[k]` gave item `items[k]` the rating `values[k]`.

    Users and items are numbered densely from 0; no pair occurs twice. `users`
    and `items` are int32 and `values` float32, `[ratings]`. `user_ids` and
    `item_ids` are int64: the file's ids in increasing order, including ids
    without ratings in this part. `description` is one line about the source.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    user_ids: np.ndarray
    item_ids: np.ndarray
    description: str

    @property
    def num_users(self) -> int:
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        return len(self.item_ids)

    @property
    def keys(self) -> np.ndarray:
        """int64 `[ratings]`: one number per pair, ordered by user, then item."""
        return self.users.astype(np.int64) * self.num_items + self.items

    def __len__(self) -> int:
        return len(self.values)

    def split(
        self, held_out: float = 0.1, seed: int = 0
    ) -> tuple["Ratings", "Ratings"]:
        """Splits at random; both parts keep the order and the numbering."""
        is_held_out = holding_out.chosen(
            len(self), held_out, seed, "ratings", self.description
        )
        return (
            self._part(~is_held_out, f"{1 - held_out:.0%} for training"),
            self._part(is_held_out, f"{held_out:.0%} held out"),
        )

    def _part(self, chosen: np.ndarray, name: str) -> "Ratings":
        return dataclasses.replace(
            self,
            users=self.users[chosen],
            items=self.items[chosen],
            values=self.values[chosen],
            description=f"{self.description}; {name}",
        )
