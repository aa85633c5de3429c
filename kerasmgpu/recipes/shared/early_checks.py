"""What a run is refused for before TensorFlow is imported."""

from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import run_folder


def require_place(settings):
    """Refuses what is wrong with a run's place: its job and its folder.

    `TrainingRun` asks both again; until then, seconds would pass.

    Args:
        settings: The recipe's settings.

    Raises:
        InputError: If the environment's variables of a job are malformed, or
            the output folder can't be used.
    """
    if cluster.is_first_worker():
        run_folder.RunFolder(settings.output_dir, settings)
