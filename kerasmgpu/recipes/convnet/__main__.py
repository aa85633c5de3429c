"""`python -m kerasmgpu.recipes.convnet`: see the package."""

from kerasmgpu.recipes import convnet
from kerasmgpu.recipes.shared import shared_flags

if __name__ == "__main__":
    shared_flags.start(convnet)
