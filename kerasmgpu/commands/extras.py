"""Checks for optional packages, before TensorFlow is imported."""

import importlib.util

from kerasmgpu.errors import InputError


def is_installed(module):
    """Whether a top-level module is installed; doesn't import it."""
    return importlib.util.find_spec(module) is not None


def require(module, package, extra, purpose):
    """Raises if an optional package is not installed.

    Args:
        module: String, the package's top-level module, `"sklearn"`.
        package: String, its name on PyPI, `"scikit-learn"`.
        extra: String, the extra of kerasmgpu that includes it, `"digits"`.
        purpose: String, the flag that needs it, `"--dataset=digits"`.

    Raises:
        InputError: If the module isn't installed.
    """
    if not is_installed(module):
        raise InputError(
            f"{purpose} needs {package}, which is not installed: "
            f"pip install {package}, or kerasmgpu[{extra}]"
        )
