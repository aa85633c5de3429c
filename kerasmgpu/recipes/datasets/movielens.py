"""MovieLens ratings, from any published file or by name.

The data sets are GroupLens's (https://grouplens.org/datasets/movielens/;
Harper and Konstan, "The MovieLens Datasets", 2015); each has its own licence.
"""

import contextlib
import dataclasses
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from absl import logging

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import MOVIELENS, downloads, ratings_table
from kerasmgpu.recipes.datasets.ratings import Ratings

BASE_URL = "https://files.grouplens.org/datasets/movielens"

_FILE_NAMES = ("ratings.csv", "ratings.dat", "u.data")


def load(
    path_or_name: str | os.PathLike[str],
    cache_dir: str | os.PathLike[str] | None = None,
    base_url: str = BASE_URL,
) -> Ratings:
    """Loads `Ratings` from a file, a folder or a zip, or by name.

    Takes every published form: `u.data` (ml-100k), `ratings.dat` (ml-1m,
    ml-10m) and `ratings.csv` (all others), as a file of any name, or in a
    folder or zip, where it may be one folder deeper. A file is parsed once:
    the next start reads the parsed form from the cache, unless the file has
    changed. A data set by name is downloaded once.

    A line that is not a rating, and a second rating of an item by the same
    user, are errors. Users and items are in the order of their ids, ratings in
    that of the file. The names are those in `MOVIELENS`; an existing path has priority.
    The cache is in `$KERASMGPU_CACHE`, or `~/.cache/kerasmgpu`, by default.
    """
    chosen = cache_dir or os.environ.get("KERASMGPU_CACHE")
    cache_dir = Path(chosen or "~/.cache/kerasmgpu").expanduser()
    path = Path(path_or_name).expanduser()
    if not path.exists():
        if str(path_or_name) not in MOVIELENS:
            raise InputError(
                f"{path_or_name} is no file or folder, and no data set that "
                f"can be downloaded. Known by name: {', '.join(MOVIELENS)}"
            )
        path = cache_dir / "downloads" / f"{path_or_name}.zip"
        if not path.exists():
            downloads.fetch_zip(f"{base_url}/{path_or_name}.zip", path)
    source = _locate(path)
    cache = ratings_table.RatingsCache(cache_dir, source.path)
    table = cache.read()
    if table is not None:
        return _ratings(table, source)
    start = time.perf_counter()
    with source.open() as stream:
        table, first_line = ratings_table.parse(stream, str(source))
    ratings = _ratings(table, source)
    _require_pairs_once(ratings, source, first_line)
    logging.info("Parsed %s in %.1f s.", source, time.perf_counter() - start)
    cache.write(table)
    return ratings


def load_split(
    train_path: str, test_path: str, cache_dir: str | None = None
) -> tuple[Ratings, Ratings, np.ndarray]:
    """Loads the two parts of a split; each as `load` does.

    Such splits are `u1.base` and `u1.test` of ml-100k, and `r1.train` and
    `r1.test`, which ml-10m's `split_ratings.sh` writes. Returns training
    ratings; test ratings of users and items that have training ratings, with
    the same numbers; and a float32 array of the other test ratings.
    """
    train = load(train_path, cache_dir)
    given = load(test_path, cache_dir)
    users, is_user = _positions(train.user_ids, given.user_ids)
    items, is_item = _positions(train.item_ids, given.item_ids)
    known = is_user[given.users] & is_item[given.items]
    paths = f"--data_path={train_path} and --test_path={test_path}"
    if not known.any():
        raise InputError(
            "No test rating has a user and an item with training ratings. "
            f"Received: {paths}; give the two files of one split"
        )
    test = Ratings(
        users[given.users[known]],
        items[given.items[known]],
        given.values[known],
        train.user_ids,
        train.item_ids,
        f"{Path(test_path).name}: {len(given):,} ratings to test on",
    )
    shared = np.intersect1d(test.keys, train.keys, assume_unique=True)
    if len(shared):
        key = test.keys[np.isin(test.keys, shared)][0]
        user, item = divmod(int(key), train.num_items)
        raise InputError(
            "Test ratings can't be training ratings as well. Received: "
            f"{paths}, which share {len(shared):,} ratings, such as that of "
            f"item {train.item_ids[item]} by user {train.user_ids[user]}; give "
            "the two files of one split, such as u1.base and u1.test"
        )
    return train, test, given.values[~known]


def _positions(
    ids: np.ndarray, sought: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of `sought` in the sorted `ids`, and a mask of those found."""
    positions = np.searchsorted(ids, sought).astype(np.int32) % len(ids)
    return positions, ids[positions] == sought


@dataclasses.dataclass(frozen=True)
class _Source:
    """A ratings file on disk, or a member of a zip on disk."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.member} in {self.path}" if self.member else str(self.path)
        )

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yields a binary stream; a damaged zip raises an `InputError`."""
        if self.member is None:
            with open(self.path, "rb") as stream:
                yield stream
        else:
            with (
                _zip(self.path) as archive,
                archive.open(self.member) as stream,
            ):
                yield stream


def _zip(path: Path) -> contextlib.AbstractContextManager[zipfile.ZipFile]:
    return downloads.open_zip(path, str(path), "Download it again.")


def _locate(path: Path) -> _Source:
    """The only ratings file in a file, a folder or a zip."""
    if path.is_dir():
        found = (p for pattern in ("*", "*/*") for p in path.glob(pattern))
        names = [str(p.relative_to(path)) for p in found]
        return _Source(path / _the_only_one(names, path))
    # A text file may end like a zip by chance, but not be named so.
    if path.suffix.lower() != ".zip":
        return _Source(path)
    with _zip(path) as archive:
        # The lowest bit marks an encrypted member, which can't be read.
        if any(member.flag_bits & 1 for member in archive.infolist()):
            raise InputError(
                f"{path} is encrypted. Unpack it and pass the folder."
            )
        return _Source(path, _the_only_one(archive.namelist(), path))


def _the_only_one(names: list[str], where: Path) -> str:
    """The only ratings file at the top, or else one folder deeper."""
    names = sorted(n for n in names if n.rpartition("/")[2] in _FILE_NAMES)
    for depth in (0, 1):
        found = [name for name in names if name.count("/") == depth]
        if len(found) > 1:
            raise InputError(
                f"{where} has several ratings files: {', '.join(found)}. Pass "
                "one of them."
            )
        if found:
            return found[0]
    raise InputError(
        f"{where} has no ratings file; expected one of "
        f"{', '.join(_FILE_NAMES)} in it, or one folder deeper."
    )


def _ratings(table: pl.DataFrame, source: _Source) -> Ratings:
    """Converts a table to `Ratings`: ids become dense numbers in their order."""

    def numbered(column: pl.Series) -> tuple[np.ndarray, np.ndarray]:
        numbers = (column.rank("dense") - 1).cast(column.dtype)
        ids = column.unique().sort().cast(pl.Int64)
        return numbers.to_numpy(), ids.to_numpy()

    users, user_ids = numbered(table["user"])
    items, item_ids = numbered(table["item"])
    return Ratings(
        users,
        items,
        table["rating"].to_numpy(),
        user_ids,
        item_ids,
        f"{source}: {len(table):,} ratings of {len(user_ids):,} users and "
        f"{len(item_ids):,} items",
    )


def _require_pairs_once(
    ratings: Ratings, source: _Source, first_line: int
) -> None:
    """Raises where a user rates an item twice."""
    keys = ratings.keys
    if np.all(keys[1:] > keys[:-1]):
        return  # Ordered by user and item, as most published files are.
    ordered = np.sort(keys)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        rows = np.flatnonzero(keys == twice[0])[:2]
        user, item = divmod(int(twice[0]), ratings.num_items)
        raise InputError(
            f"Lines {rows[0] + first_line} and {rows[1] + first_line} of "
            f"{source} both rate item {ratings.item_ids[item]} by user "
            f"{ratings.user_ids[user]}; expected one rating per pair. Delete "
            "one of them."
        )
