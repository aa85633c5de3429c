"""What a run is refused for before TensorFlow is imported."""

from kerasmgpu.commands import plots
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import run_folder


def require_place(settings, **options):
    """Refuses what is wrong with a run's place: its job and its folder.

    `TrainingRun` asks both again; until then, seconds would pass. Without
    matplotlib one line says that the folder gets no plot.

    Args:
        settings: The recipe's settings.
        **options: Keywords of `run_folder.RunFolder`.

    Raises:
        InputError: If the environment's variables of a job are malformed, or
            the output folder can't be used.
    """
    if cluster.is_first_worker():
        run_folder.RunFolder(settings.output_dir, settings, **options)
        tell_if_no_plots(settings)


def tell_if_no_plots(settings):
    """Prints one line if a run's folder gets no plot: matplotlib is missing.

    Args:
        settings: The recipe's settings.
    """
    if settings.output_dir is not None and cluster.is_first_worker():
        plots.tell_if_missing()
