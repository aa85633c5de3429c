"""Divides each device's rows of an input among its micro-batches."""

from collections.abc import Sequence

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.references import Reference


def pass_to_devices(
    build: Function, tensor: Tensor, references: Sequence[Reference]
) -> Sequence[Reference]:
    """Records which rows of an input each device was passed.

    Returns:
        References by micro-batch, each to all rows of its device.
    """
    if build.mesh.micro_batches == 1:
        return references
    build.keep(("passed", tensor), lambda: list(references))
    return [one for one in references for _ in range(build.mesh.micro_batches)]


def passed_counts(build: Function, tensor: Tensor) -> list[Reference]:
    """Returns each micro-batch's number of rows of an input passed in shares."""
    counts = []
    for bounds in _passed_bounds(build, tensor):
        counts += [
            build.sizes.minus(end, start)
            for start, end in zip(bounds, bounds[1:])
        ]
    return counts


def passed_rows(build: Function, tensor: Tensor, place: int) -> Reference:
    """Cuts a micro-batch's rows out of those that its device was passed."""
    device, turn = divmod(place, build.mesh.micro_batches)
    reference = build.keep(("passed", tensor), list)[device]
    start, end = _passed_bounds(build, tensor)[device][turn : turn + 2]
    bounds = [
        build.sizes.packed([bound])
        for bound in (start, end, build.sizes.scalar(1))
    ]
    return build.strided_slice(reference, bounds, place)


def _passed_bounds(build: Function, tensor: Tensor) -> list[list[Reference]]:
    """Returns, by device, each micro-batch's first row, and the last one's end.

    Rows are numbered within the device.
    """
    sizes, number = build.sizes, build.mesh.micro_batches

    def bounds() -> list[list[Reference]]:
        turns = list(map(sizes.scalar, range(number + 1)))
        return [
            [sizes.first_row(turn, size, number) for turn in turns]
            for size in map(sizes.size, build.keep(("passed", tensor), list))
        ]

    return build.keep(("passed bounds", tensor), bounds)
