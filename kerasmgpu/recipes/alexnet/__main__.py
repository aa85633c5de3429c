"""`python -m kerasmgpu.recipes.alexnet`: see the package."""

from kerasmgpu.recipes import alexnet
from kerasmgpu.recipes.shared import shared_flags

if __name__ == "__main__":
    shared_flags.start(alexnet)
