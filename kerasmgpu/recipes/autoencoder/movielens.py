"""MovieLens ratings, from any published file or by name.

The data sets are GroupLens's (https://grouplens.org/datasets/movielens/;
Harper and Konstan, "The MovieLens Datasets", 2015); each has its own licence.
"""

import contextlib
import dataclasses
import time
import zipfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
from absl import logging

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.autoencoder import (
    MOVIELENS,
    ratings_cache,
    ratings_table,
)
from kerasmgpu.recipes.autoencoder.ratings import Ratings
from kerasmgpu.recipes.shared import download

BASE_URL = "https://files.grouplens.org/datasets/movielens"

_FILE_NAMES = ("ratings.csv", "ratings.dat", "u.data")

# Ids up to this many times the number of ratings are looked up in a table,
# which is the fastest; sparser ones are searched.
_TABLE_PER_RATING = 4


def load(path_or_name, cache_dir=None, base_url=BASE_URL):
    """Loads ratings from a file, a folder or a zip, or by name.

    Every published form is understood: `u.data` (ml-100k), `ratings.dat`
    (ml-1m, ml-10m) and `ratings.csv` (all others), as a file of any name, or
    in a folder or zip, where it may be one folder deeper. A file is parsed
    once: the next start maps the parsed form from the cache, unless the file
    has changed. A data set by name is downloaded once.

    Nothing is skipped: a line that is not a rating, and a second rating of an
    item by the same user, are errors.

    Args:
        path_or_name: Path, or one of `autoencoder.MOVIELENS`. What exists as a
            path is a path.
        cache_dir: Folder for parsed forms and downloads. Defaults to
            `$KERASMGPU_CACHE`, or `~/.cache/kerasmgpu`.
        base_url: Where named data sets are. Defaults to GroupLens's server.

    Returns:
        `ratings.Ratings`. Users and items are in the order of their ids,
        ratings in that of the file.

    Raises:
        InputError: there is no such file, it has no ratings, it is broken, or
            it can't be downloaded. The message says what to do.
        OSError: a file can't be read, or a download can't be written.

    Example:

    ```python
    ratings = load("ml-latest-small.zip")
    print(ratings.description, len(ratings))
    ```
    """
    cache_dir = Path(cache_dir or ratings_cache.default_cache_dir())
    path = Path(path_or_name).expanduser()
    if not path.exists():
        if str(path_or_name) not in MOVIELENS:
            raise InputError(
                f"{path_or_name} is no file or folder, and no data set that "
                f"can be downloaded. Known by name: {', '.join(MOVIELENS)}"
            )
        path = _fetch(str(path_or_name), cache_dir, base_url)
    source = _locate(path)
    fingerprint = ratings_cache.fingerprint(source.path)
    ratings = ratings_cache.read(cache_dir, fingerprint)
    if ratings is None:
        start = time.perf_counter()
        ratings = _parse(source)
        logging.info(
            "Parsed %s in %.1f s.", source, time.perf_counter() - start
        )
        ratings_cache.write(cache_dir, fingerprint, ratings)
    return ratings


@dataclasses.dataclass(frozen=True)
class _Source:
    """A ratings file on disk, or a member of a zip on disk."""

    path: Path
    member: str | None = None

    def __str__(self):
        where = str(self.path)
        return f"{self.member} in {where}" if self.member else where

    @contextlib.contextmanager
    def open(self):
        """Yields a binary stream; a damaged zip becomes an `InputError`."""
        if self.member is None:
            with open(self.path, "rb") as stream:
                yield stream
            return
        with (
            _zip_errors(self.path),
            zipfile.ZipFile(self.path) as archive,
            archive.open(self.member) as stream,
        ):
            yield stream


def _fetch(name, cache_dir, base_url):
    """Returns the path of the zip of a named data set, fetched if need be."""
    path = cache_dir / "downloads" / f"{name}.zip"
    if not path.exists():
        url = f"{base_url}/{name}.zip"
        download.fetch_zip(url, path, md5_url=f"{url}.md5")
    return path


def _locate(path):
    """Finds the ratings file that a path means."""
    if path.is_dir():
        for pattern in ("{}", "*/{}"):
            found = [
                found
                for name in _FILE_NAMES
                for found in sorted(path.glob(pattern.format(name)))
            ]
            if found:
                return _Source(_the_only_one(found, path))
        raise _no_ratings(path)
    # A text file may end like a zip by chance, but not be called so.
    if path.suffix.lower() != ".zip":
        return _Source(path)
    with _zip_errors(path), zipfile.ZipFile(path) as archive:
        members = [PurePosixPath(name) for name in archive.namelist()]
        # The lowest bit marks an encrypted member, which can't be read.
        if any(member.flag_bits & 1 for member in archive.infolist()):
            raise InputError(
                f"{path} is encrypted. Unpack it and pass the folder."
            )
    for depth in (1, 2):
        found = [
            member
            for member in members
            if member.name in _FILE_NAMES and len(member.parts) == depth
        ]
        if found:
            return _Source(path, str(_the_only_one(found, path)))
    raise _no_ratings(path)


def _the_only_one(found, path):
    if len(found) > 1:
        raise InputError(
            f"{path} has several ratings files: "
            f"{', '.join(str(each) for each in found)}. Pass one of them."
        )
    return found[0]


def _no_ratings(path):
    return InputError(
        f"{path} has no ratings file; expected one of "
        f"{', '.join(_FILE_NAMES)} in it, or one folder deeper."
    )


@contextlib.contextmanager
def _zip_errors(path):
    try:
        yield
    # The last one stands for a compression that zipfile doesn't know.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
    ) as error:
        raise InputError(
            f"{path} is not a sound zip file ({error}). Download it again."
        ) from error


def _parse(source):
    with source.open() as stream:
        table = ratings_table.parse(stream, str(source))
    user_ids, users = _dense(table.users)
    item_ids, items = _dense(table.items)
    ratings = Ratings(
        users=users,
        items=items,
        values=table.values,
        user_ids=user_ids,
        item_ids=item_ids,
        description=(
            f"{source}: {len(users):,} ratings of {len(user_ids):,} users and "
            f"{len(item_ids):,} items"
        ),
    )
    _check_pairs(ratings, source, table.first_line)
    return ratings


def _dense(ids):
    """Numbers ids densely, in their order.

    `np.unique(ids, return_inverse=True)` does the same; it takes many times
    the time and memory for 25 M ids.

    Args:
        ids: Non-negative int32 array `[ratings]`.

    Returns:
        `unique_ids`, int64 `[unique]`, and `positions`, int32 `[ratings]`, with
        `unique_ids[positions] == ids`.
    """
    size = int(ids.max()) + 1
    if size > max(_TABLE_PER_RATING * len(ids), 1 << 20):
        ordered = np.sort(ids)
        unique_ids = ordered[np.r_[True, ordered[1:] != ordered[:-1]]]
        positions = np.searchsorted(unique_ids, ids).astype(np.int32)
        return unique_ids.astype(np.int64), positions
    is_used = np.zeros(size, bool)
    is_used[ids] = True
    position_of = np.cumsum(is_used, dtype=np.int32) - 1
    return np.flatnonzero(is_used).astype(np.int64), position_of[ids]


def _check_pairs(ratings, source, first_line):
    """Raises where a user rates an item twice."""
    keys = ratings.users.astype(np.int64)
    keys *= ratings.num_items
    keys += ratings.items
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
