"""Settings of experiments that come with a recipe: files in its `presets/`."""

import difflib
import pathlib
import sys

from kerasmgpu.errors import InputError


def names(define_flags, ending):
    """Names of a recipe's presets.

    Args:
        define_flags: The recipe's function; its module's folder has them.
        ending: String, that of their files.
    """
    folder = _folder(define_flags)
    return sorted(path.stem for path in folder.glob(f"*{ending}"))


def path(define_flags, name, ending):
    """The file of one preset.

    Raises:
        InputError: If there is none of that name.
    """
    known = names(define_flags, ending)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" (is {near[0]} meant?)" if near else ""
        raise InputError(
            f"--preset must be one of {', '.join(known)}. Received: "
            f"{name}{meant}"
        )
    return _folder(define_flags) / f"{name}{ending}"


def _folder(define_flags):
    module = sys.modules[define_flags.__module__]
    return pathlib.Path(module.__file__).parent / "presets"
