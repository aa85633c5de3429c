"""`python -m kerasmgpu.recipes.polynomial`: see the package."""

from kerasmgpu.recipes import polynomial
from kerasmgpu.recipes.shared import shared_flags

if __name__ == "__main__":
    shared_flags.start(polynomial)
