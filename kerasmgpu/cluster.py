"""Which worker of a job this process is: the public names of `job.cluster`."""

from kerasmgpu.job.cluster import Worker, from_environment, from_tf_config

__all__ = ["Worker", "from_environment", "from_tf_config"]
