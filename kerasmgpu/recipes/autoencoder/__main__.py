"""`python -m kerasmgpu.recipes.autoencoder`: see the package."""

from kerasmgpu.recipes import autoencoder
from kerasmgpu.recipes.shared import shared_flags

if __name__ == "__main__":
    shared_flags.start(autoencoder)
