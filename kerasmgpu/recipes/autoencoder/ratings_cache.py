"""Keeps parsed ratings on disk, so that a second start maps them in.

Polars's own files have no checksums and no columns of several lengths.
"""

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path

import numpy as np
from absl import logging

from kerasmgpu.recipes.autoencoder.ratings import DTYPES, Ratings

# Raise it when the same file would be parsed to something else.
_PARSER_VERSION = 1

_MANIFEST = "manifest.json"


def default_cache_dir():
    """Returns `$KERASMGPU_CACHE`; where not set, `~/.cache/kerasmgpu`."""
    chosen = os.environ.get("KERASMGPU_CACHE")
    return Path(chosen or "~/.cache/kerasmgpu").expanduser()


def fingerprint(source):
    """Returns what tells one state of a file from another.

    Take it before the file is parsed: then a change during parsing shows.

    Args:
        source: `Path` of the file of ratings, or of the zip that has it.

    Returns:
        Dictionary of path, size in bytes, time of change in nanoseconds and
        the version of our parser.
    """
    status = source.stat()
    return {
        "path": str(source.resolve()),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "parser_version": _PARSER_VERSION,
    }


def read(cache_dir, source_fingerprint):
    """Maps parsed ratings into memory.

    A cache that is damaged is the same as none, but for one line in the log:
    the caller parses the source again, and `write` replaces the cache.

    Args:
        cache_dir: `Path` of the cache folder.
        source_fingerprint: What `fingerprint` says now.

    Returns:
        `Ratings` with read-only, memory-mapped arrays; `None` where the
        source was not cached, has changed since, or the cache is damaged.
    """
    folder = _folder(cache_dir, source_fingerprint)
    try:
        if not folder.exists():
            return None
        manifest = json.loads((folder / _MANIFEST).read_text("utf-8"))
        if manifest["source"] != source_fingerprint:
            return None
        # `asarray` drops the memmap subclass, not the mapping.
        arrays = {
            name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
            for name in DTYPES
        }
        for name, array in arrays.items():
            if zlib.crc32(array) != manifest["crc32"][name]:
                raise ValueError(f"the checksum of {name} differs")
        return Ratings(**arrays, description=manifest["description"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        logging.warning(
            "Cached ratings in %s can't be used (%s: %s); parsing %s again.",
            folder,
            type(error).__name__,
            error,
            source_fingerprint["path"],
        )
        return None


def write(cache_dir, source_fingerprint, ratings):
    """Stores parsed ratings; a cache of an earlier state is replaced.

    The folder is written under a temporary name and renamed when complete. A
    cache is a convenience: where it can't be written, one warning says so.

    Args:
        cache_dir: `Path` of the cache folder; made where it doesn't exist.
        source_fingerprint: What `fingerprint` said before parsing.
        ratings: `Ratings`.
    """
    folder = _folder(cache_dir, source_fingerprint)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            new = Path(scratch, "new")
            new.mkdir()
            crc32 = {}
            for name in DTYPES:
                array = getattr(ratings, name)
                np.save(new / f"{name}.npy", array)
                crc32[name] = zlib.crc32(array)
            manifest = {
                "source": source_fingerprint,
                "description": ratings.description,
                "crc32": crc32,
            }
            (new / _MANIFEST).write_text(json.dumps(manifest), "utf-8")
            if folder.exists():
                # A folder can't be renamed onto another; whoever has mapped
                # the old files keeps them.
                folder.rename(Path(scratch, "old"))
            new.rename(folder)
    except OSError as error:
        logging.warning(
            "Parsed ratings are not cached, so the next start parses %s "
            "again: %s. $KERASMGPU_CACHE names another folder.",
            source_fingerprint["path"],
            error,
        )


def _folder(cache_dir, source_fingerprint):
    # One folder per path, whatever its state: old states don't pile up.
    path = source_fingerprint["path"]
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
    return Path(cache_dir, "parsed", f"{Path(path).stem}-{digest[:16]}")
