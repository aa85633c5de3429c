"""Which worker of a job this process is: the public names of `job.cluster`."""

from kerasmgpu.job.cluster import Worker, from_environment, from_tf_config

__all__ = ["Worker", "from_environment", "from_tf_config", "is_first_worker"]


def is_first_worker() -> bool:
    """Whether this process is the one of its job that writes and prints.

    What our launcher, `TF_CONFIG` or Slurm says; true where nothing does.
    TensorFlow is not imported, and no worker waits for another.

    Raises:
        InputError: If what they say can't be understood.

    Example:

    ```python
    if kerasmgpu.is_first_worker():
        mlflow.start_run()
    ```
    """
    worker = from_environment()
    return worker is None or worker.is_first
