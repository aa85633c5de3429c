"""What `__init__.py` loads when it is used, for type checkers and editors."""

from kerasmgpu import callbacks as callbacks
from kerasmgpu import memory as memory
from kerasmgpu import placement as placement
from kerasmgpu import replica_arithmetic as replica_arithmetic
from kerasmgpu import schedules as schedules
from kerasmgpu.check import check as check  # The module that is called.
from kerasmgpu.errors import InputError as InputError
from kerasmgpu.finders import find_batch_size as find_batch_size
from kerasmgpu.finders import find_learning_rate as find_learning_rate
from kerasmgpu.job import cluster as cluster
from kerasmgpu.job.cluster import is_first_worker as is_first_worker
from kerasmgpu.launch.notebook import WorkerError as WorkerError
from kerasmgpu.launch.notebook import notebook_launch as notebook_launch
from kerasmgpu.replica_arithmetic import global_batch_size as global_batch_size
from kerasmgpu.replica_arithmetic import (
    per_replica_batch_sizes as per_replica_batch_sizes,
)
from kerasmgpu.replica_arithmetic import (
    scale_learning_rate as scale_learning_rate,
)
from kerasmgpu.strategies import MirroredStrategy as MirroredStrategy
from kerasmgpu.strategies import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from kerasmgpu.strategies import strategy as strategy
from kerasmgpu.strategies.determinism import deterministic as deterministic
from kerasmgpu.strategies.found_layout import find_layout as find_layout
from kerasmgpu.strategies.functions import make_parallel as make_parallel
from kerasmgpu.strategies.functions import partition as partition
from kerasmgpu.strategies.input_speed import compare_input as compare_input
from kerasmgpu.strategies.layout_report import layout_report as layout_report
from kerasmgpu.verify import verify as verify  # The module that is called.

__version__: str

def _import_on_use(
    package: str, call: object = None, homes: dict[str, str] | None = None
) -> None: ...
