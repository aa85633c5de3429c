"""`python -m kerasmgpu.recipes.deepconn`: see the package."""

from kerasmgpu.recipes import deepconn
from kerasmgpu.recipes.shared import shared_flags

if __name__ == "__main__":
    shared_flags.start(deepconn)
