"""The functions that `keras.distribution` asks its backend for.

Keras has them for JAX; `kerasmgpu._keras_hook` puts these in the module of its
TensorFlow backend, where some are missing and others start TensorFlow. They
do what JAX's do, but for two things. A job is one program: devices are those of
all its workers, and `num_processes()` is 1, so that Keras does not shard data
sets, since workers read global batches. And where a tensor is placed is planned
for the whole step, so `distribute_tensor` marks tensors for it.

Checked on Keras 3.10 and 3.15.
"""

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.name_scope import current_path
from keras.src.random.seed_generator import make_default_seed
from keras.src.utils.rng_utils import get_random_seed

from kerasmgpu.engine import devices
from kerasmgpu.errors import InputError, checked_integer
from kerasmgpu.job import cluster
from kerasmgpu.partitioner.step.constraints import laid_out

Axes = tuple[str | None, ...]
"""Mesh axis of each dimension of a tensor; `None`: not sharded."""


@dataclasses.dataclass(frozen=True)
class NamedMesh:
    """What `DeviceMesh.backend_mesh` is, by the names of `jax.sharding.Mesh`.

    Attributes:
        axis_names: Names of the mesh's axes.
        sizes: Number of devices along each axis.
        names: Names of the devices such as `"gpu:0"`, the last axis first.
    """

    axis_names: tuple[str, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def shape(self) -> dict[str, int]:
        """Maps each axis to its number of devices."""
        return dict(zip(self.axis_names, self.sizes, strict=True))

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def devices(self) -> np.ndarray:
        """Array of the devices' names, of the mesh's shape."""
        return np.array(self.names).reshape(self.sizes)


@dataclasses.dataclass(frozen=True)
class NamedSharding:
    """What `TensorLayout.backend_layout` is, by the names of JAX's.

    Attributes:
        mesh: The `NamedMesh`.
        spec: Mesh axis of each dimension, or `None`.
    """

    mesh: NamedMesh
    spec: Axes

    @property
    def is_fully_replicated(self) -> bool:
        sizes = self.mesh.shape
        return all(axis is None or sizes[axis] == 1 for axis in self.spec)


_imagined: dict[str, int] = {}
"""Numbers of devices that `list_devices` lists by kind, though none exist."""

_listed: list[str] = []
"""Names of those that it has listed."""


@contextlib.contextmanager
def imagined_devices(count: int, kind: str) -> Iterator[list[str]]:
    """Context in which `list_devices` lists devices that needn't exist.

    Args:
        kind: `"GPU"` or `"CPU"`.

    Yields:
        List of strings, to which the names that it lists are added.
    """
    _imagined[kind] = count
    _listed.clear()
    try:
        yield _listed
    finally:
        del _imagined[kind]


def list_devices(device_type: str | None = None) -> list[str]:
    """Returns the names of the job's devices of one kind.

    Does not start TensorFlow: logical CPU devices can still be made. In a job
    each worker counts as having as many devices as this one, so GPUs that
    workers see together, as those of `mpirun` may, are counted once per worker
    until the job is joined.

    Args:
        device_type: `"cpu"`, `"gpu"` or `"tpu"`. Default: accelerators, or CPUs
            where there are none.

    Returns:
        List of names such as `"gpu:0"`, the first worker's first.

    Example:

    ```python
    keras.distribution.list_devices()  # ["gpu:0", "gpu:1"]
    ```
    """
    kinds = [device_type] if device_type else [*_imagined, "gpu", "tpu", "cpu"]
    worker = cluster.from_environment()
    num_workers = 1 if worker is None else worker.num_workers
    for kind in map(str.lower, kinds):
        own = num_workers * devices.num_logical(kind.upper())
        if count := _imagined.get(kind.upper(), own):
            names = [f"{kind}:{index}" for index in range(count)]
            if kind.upper() in _imagined:
                _listed.extend(names)
            return names
    return []


def get_device_count(device_type: str | None = None) -> int:
    """Returns the number of the devices of `list_devices`."""
    return len(list_devices(device_type))


def num_processes() -> int:
    """Returns 1: a job is one program, whose data sets Keras must not shard."""
    return 1


def process_id() -> int:
    """Returns 0, see `num_processes`."""
    return 0


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Checks that the job is the one described; without a job, sets one seed.

    A worker joins its job when it makes a strategy, and takes the first
    worker's RNG state then. Without a job all RNGs are seeded, unless
    `keras.utils.set_random_seed` did.

    Args:
        job_addresses: String, `"host:port"` of all processes or the first one,
            separated by commas.
        num_processes: Integer, number of processes.
        process_id: Integer, 0-based index of this process.

    Raises:
        InputError: If the arguments contradict each other or this worker's
            place in its job, or if they describe a job of several processes
            that was not started as one.
    """
    addresses = [one for one in (job_addresses or "").split(",") if one.strip()]
    if num_processes is not None:
        num_processes = checked_integer(num_processes, "num_processes", 1)
        if len(addresses) > 1 and len(addresses) != num_processes:
            raise InputError(
                f"The provided job_addresses {addresses} has {len(addresses)} "
                f"jobs, but num_processes is {num_processes}"
            )
    elif len(addresses) > 1:
        num_processes = len(addresses)
    if process_id is not None:
        most = None if num_processes is None else num_processes - 1
        process_id = checked_integer(process_id, "process_id", 0, most)
    worker = cluster.from_environment()
    if worker is None:
        if (num_processes or 1) > 1 or (
            num_processes is None and (addresses or process_id)
        ):
            raise InputError(
                "keras.distribution.initialize: this process is not a worker "
                "of a job. Start the workers with `kerasmgpu launch`, srun or "
                "mpirun, or set TF_CONFIG; then initialize() needs no "
                f"arguments. Received: job_addresses={job_addresses!r}, "
                f"num_processes={num_processes}, process_id={process_id}"
            )
        if get_random_seed() is None:
            keras.utils.set_random_seed(make_default_seed())
    elif num_processes not in (None, worker.num_workers) or process_id not in (
        None,
        worker.index,
    ):
        raise InputError(
            "keras.distribution.initialize: this process is worker "
            f"{worker.index} of {worker.num_workers}, by its environment. "
            f"Received: num_processes={num_processes}, process_id={process_id}."
            " Leave the arguments (and KERAS_DISTRIBUTION_NUM_PROCESSES, "
            "KERAS_DISTRIBUTION_PROCESS_ID) out"
        )


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """Lays out tensors, whose values stay what they are; checks their ranks.

    In a step on a mesh, what a layout divides along an axis of the mesh that
    doesn't divide rows is divided there, and the rest is whole along it. Eager
    tensors are returned as they are.

    Args:
        tensor: Tensor, or nest of tensors, such as a layer's outputs. NumPy
            arrays become tensors.
        layout: `keras.distribution.TensorLayout`, or its `backend_layout`. Of a
            tensor with more dimensions the last ones are not sharded.

    Raises:
        InputError: If a tensor has fewer dimensions, or for another layout.
    """
    if isinstance(layout, keras.distribution.TensorLayout):
        axes = layout.axes
    else:
        axes = sharding_of(layout).spec
    return keras.tree.map_structure(
        functools.partial(_of_rank, axes=axes), tensor
    )


def output_path(layer: keras.Layer) -> str:
    """Returns the path by which Keras asks for the layout of a layer's outputs.

    A layer without variables has no `path`, but one where it was called first.
    """
    parts = layer._parent_path, layer.name
    path = layer.path or "/".join(part for part in parts if part)
    return f"{path}/output"


@contextlib.contextmanager
def asked(distribution: Any) -> Iterator[None]:
    """Context in which Keras asks a distribution for layouts of outputs.

    Args:
        distribution: `keras.distribution.Distribution`; `None` for no change.
    """
    # Not `set_distribution`: the program goes on in what it has set.
    name, tracker = "distribution", global_state.GLOBAL_STATE_TRACKER
    before = getattr(tracker, name, None)
    if distribution is not None:
        setattr(tracker, name, distribution)
    try:
        yield
    finally:
        setattr(tracker, name, before)


def _of_rank(tensor: Any, axes: Axes) -> Any:
    if isinstance(tensor, np.ndarray):
        tensor = tf.convert_to_tensor(tensor)
    path = current_path()
    what = f"the output of {path!r}" if path else "the tensor"
    return placed(tensor, axes, what)


def placed(tensor: Any, axes: Axes, what: str) -> Any:
    """Lays out one tensor; see `distribute_tensor`.

    Args:
        axes: Mesh axis of each dimension, or `None`.
        what: What it is, for messages.
    """
    check_rank(axes, getattr(tensor, "shape", None), what)
    strategy = tf.distribute.get_strategy()
    layouts = getattr(strategy, "layouts", None)
    layouts = layouts or getattr(strategy, "noted_layouts", None)
    is_traced = isinstance(tensor, tf.Tensor) and hasattr(tensor, "graph")
    if layouts is None or not is_traced or tf.executing_eagerly():
        return tensor
    divided = layouts.axes_of(axes) or (None,) * len(layouts.axes)
    made, mask = laid_out(tensor, divided, what), get_keras_mask(tensor)
    if mask is not None:  # A model's outputs have theirs.
        set_keras_mask(made, mask)
    return made


def check_rank(axes: Axes, shape: Any, what: str) -> None:
    """Raises `InputError` if a layout has more axes than a shape dimensions.

    Args:
        shape: Shape in any form; of unknown rank if `None`.
        what: What has the shape, for the message.
    """
    rank = tf.TensorShape(shape).rank
    if rank is not None and len(axes) > rank:
        raise InputError(
            f"The layout of {what} has {len(axes)} axes for {rank} dimensions. "
            f"Received: axes={axes}, shape={tuple(shape)}. Give one axis of "
            "the mesh, or None, for each dimension."
        )


def sharding_of(layout: Any) -> NamedSharding:
    """Returns the backend's form of a layout in any form.

    Raises:
        InputError: If it is no layout, or has no mesh.
    """
    if isinstance(layout, keras.distribution.TensorLayout):
        layout = layout.backend_layout
    if not isinstance(layout, NamedSharding):
        raise InputError(
            "layout must be a keras.distribution.TensorLayout. "
            f"Received: layout={layout!r}"
        )
    return layout


def _to_backend_mesh(device_mesh: Any) -> NamedMesh:
    """Returns the backend's form of a `keras.distribution.DeviceMesh`."""
    return NamedMesh(
        tuple(device_mesh.axis_names),
        tuple(device_mesh.devices.shape),
        tuple(map(str, device_mesh.devices.flatten())),
    )


def _to_backend_layout(tensor_layout: Any) -> NamedSharding:
    """Returns the backend's form of a `keras.distribution.TensorLayout`.

    Raises:
        InputError: If the layout has no mesh yet.
    """
    if tensor_layout.device_mesh is None:
        raise InputError(
            "Cannot create sharding when device mesh is not set for "
            f"TensorLayout. Received: axes={tensor_layout.axes}"
        )
    return NamedSharding(
        tensor_layout.device_mesh.backend_mesh, tuple(tensor_layout.axes)
    )


def validate_axes(original: Callable[..., None], layout: Any) -> None:
    """Checks the axes of a new `TensorLayout`, also that each is there once.

    Raises:
        InputError: If an axis shards two dimensions.
    """
    original(layout)
    _check_axes(layout.axes, "A TensorLayout")


def make_mesh(
    original: Callable[..., None],
    mesh: Any,
    shape: Any,
    axis_names: Any,
    devices: Any = None,
) -> None:
    """Makes a `DeviceMesh`; says how a machine without GPUs gets its devices.

    Raises:
        InputError: If the mesh needs more devices than the CPU has been made.
    """
    try:
        original(mesh, shape, axis_names, devices)
    except ValueError as error:
        names = list_devices() if devices is None else list(np.ravel(devices))
        is_complete = shape and axis_names and len(shape) == len(axis_names)
        needed = math.prod(shape) if is_complete else 0
        if not needed > len(names) > 0 or not all(
            str(name).lower().startswith("cpu") for name in names
        ):
            raise
        raise InputError(
            f"The mesh {tuple(shape)} needs {needed} devices. Received: "
            f"{len(names)}, and no GPU is visible; make logical CPU devices "
            "before anything else uses TensorFlow: "
            f"kerasmgpu.strategy(virtual_devices={needed})"
        ) from error


def set_layout(
    original: Callable[..., None], layout_map: Any, key: str, layout: Any
) -> None:
    """Adds a layout to a `LayoutMap`; errors of its axes name the key.

    Raises:
        InputError: If an axis shards two dimensions, or the key is no pattern:
            Keras would find that out when it looks up the first variable.
    """
    try:
        re.compile(key)
    except re.error as error:
        raise InputError(
            "A key of a LayoutMap is a path or a regular expression. Received: "
            f"{key!r}, which is neither: {error}"
        ) from error
    if isinstance(layout, tuple):
        _check_axes(layout, f"The layout of {key!r}")
    original(layout_map, key, layout)


def _check_axes(axes: Axes, what: str) -> None:
    twice = {str(axis) for axis in axes if axis and axes.count(axis) > 1}
    if twice:
        raise InputError(
            f"{what} names an axis of the mesh twice: {', '.join(sorted(twice))}"
            f". Received: axes={axes}. An axis shards at most one dimension of "
            "a tensor; put None for the others."
        )
