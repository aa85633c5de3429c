"""`python -m kerasmgpu.recipes.image_batch_study`: see the package."""

from kerasmgpu.recipes import image_batch_study
from kerasmgpu.recipes.shared import shared_flags

if __name__ == "__main__":
    shared_flags.start(image_batch_study)
