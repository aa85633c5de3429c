"""Convolutions, pooling and images: sharded by rows only."""

from collections.abc import Callable, Sequence

from kerasmgpu.partitioner.rules.kinds import REPLICATED, Kind, Sharded
from kerasmgpu.partitioner.rules.table import Axes, Labels, Plan
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape, SizeLike


def rows_of_images(node: Node) -> Axes | None:
    """`(images, …)`: only the images' first axis may be sharded."""
    rank = node.outputs[0].rank
    if rank is None or node.inputs[0].rank is None:
        return None
    if node.type == "AdjustContrastv2" and rank < 4:
        return None  # The first axis is one of those with a common mean.
    rest = (None,) * (len(node.inputs) - 1)
    linear = (0, 1) if "Conv" in node.type else ()
    return Axes(
        (_rows(node.inputs[0]), *rest), (_rows(node.outputs[0]),), linear=linear
    )


operation(
    *"""
AdjustContrastv2 AdjustHue AdjustSaturation DepthToSpace Dilation2D
ExtractImagePatches ExtractVolumePatches HSVToRGB LRN RGBToHSV SpaceToDepth
""".split(),
    axes=rows_of_images,
)


def shape_of_size(number: int) -> Callable[[Node], list[Shape | None]]:
    """Images of the size, `[height, width]`, that an input of a number holds."""

    def shape(node: Node) -> list[Shape | None]:
        images, size = node.inputs[0].shape, node.inputs[number].value
        if images is None or len(images) != 4:
            return [None]
        if not isinstance(size, tuple) or len(size) != 2:
            size = (None, None)
        return [(images[0], *size, images[3])]

    return shape


operation(
    *"""
ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate
""".split(),
    axes=rows_of_images,
    shape=shape_of_size(1),
)

operation(
    "AvgPool",
    "AvgPool3D",
    "MaxPool",
    "MaxPool3D",
    axes=rows_of_images,
    traits={Trait.FRAGILE},
)

operation(
    "Conv2D",
    "Conv3D",
    "DepthwiseConv2dNative",
    axes=rows_of_images,
    traits={Trait.FRAGILE, Trait.PRODUCT},
)


def projective_transform(node: Node) -> Axes | None:
    """`(images, transforms, …)`: a transform per image, or one for all."""
    images, transforms = node.inputs[:2]
    if images.rank is None or transforms.shape is None:
        return None
    rows = None if transforms.shape[0] == 1 else "rows"
    rest = (None,) * (len(node.inputs) - 2)
    return Axes(
        (_rows(images), (rows, None), *rest),
        (_rows(node.outputs[0]),),
        broadcasts=True,
    )


operation(
    "ImageProjectiveTransformV2",
    "ImageProjectiveTransformV3",
    axes=projective_transform,
    shape=shape_of_size(2),
)


def crop_and_resize(node: Node) -> Axes | None:
    """`(images, boxes, indices, size)`: sharded by boxes; images must be whole."""
    out = node.outputs[0].rank
    if out is None:
        return None
    boxes = ("b",)
    return Axes(
        (None, ("b", None), boxes, None), (("b", *(None,) * (out - 1)),)
    )


operation("CropAndResize", axes=crop_and_resize)


def boxes_gradient(node: Node) -> Axes | None:
    """`(gradient, images, boxes, indices)`: sharded by boxes; images are whole."""
    if node.inputs[0].rank is None:
        return None
    crops = ("b", *(None,) * (node.inputs[0].rank - 1))
    return Axes((crops, None, ("b", None), ("b",)), (("b", None),))


operation("CropAndResizeGradBoxes", axes=boxes_gradient)


def cropped_gradient(node: Node) -> Axes | None:
    """`(gradient, boxes, indices, size)`: sums over the boxes."""
    rank, out = node.inputs[0].rank, node.outputs[0].rank
    if rank is None or out is None:
        return None
    crops = ("b", *(None,) * (rank - 1))
    images = (None,) * out
    return Axes(
        (crops, ("b", None), ("b",), None),
        (images,),
        sums=("b",),
        linear=(0,),
    )


operation("CropAndResizeGradImage", axes=cropped_gradient)


def rows_of_gradients(node: Node) -> Axes | None:
    """The first axis of each value of rank 4 or 5 may be sharded."""
    if None in _ranks(*node.outputs, *node.inputs):
        return None
    return Axes(
        tuple(
            _rows(tensor) if tensor.rank in (4, 5) else None
            for tensor in node.inputs
        ),
        (_rows(node.outputs[0]),),
    )


operation(
    "LRNGrad",
    "MaxPoolGradGrad",
    "ResizeBicubicGrad",
    "ResizeBilinearGrad",
    axes=rows_of_gradients,
)

operation(
    "MaxPool3DGrad",
    "MaxPoolGrad",
    axes=rows_of_gradients,
    traits={Trait.FRAGILE},
)


def pool_gradient(node: Node) -> Axes | None:
    """`(shape, gradient)` or `(gradient, size)`."""
    if None in _ranks(*node.outputs, *node.inputs):
        return None
    if node.type == "ResizeNearestNeighborGrad":
        return Axes((_rows(node.inputs[0]), None), (_rows(node.outputs[0]),))
    return Axes(
        (None, _rows(node.inputs[1])), (_rows(node.outputs[0]),), sizes={0: 0}
    )


operation(
    "AvgPool3DGrad", "AvgPoolGrad", axes=pool_gradient, traits={Trait.FRAGILE}
)

operation("ResizeNearestNeighborGrad", axes=pool_gradient)


def input_gradient(node: Node) -> Axes | None:
    """`(shape, filter, gradient)`."""
    if None in _ranks(node.outputs[0], node.inputs[2]):
        return None
    return Axes(
        (None, None, _rows(node.inputs[2])),
        (_rows(node.outputs[0]),),
        sizes={0: 0},
        linear=(1, 2),
    )


operation(
    "Conv2DBackpropInput",
    axes=input_gradient,
    traits={Trait.FRAGILE, Trait.PRODUCT},
)

operation(
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNativeBackpropInput",
    axes=input_gradient,
    traits={Trait.FRAGILE},
)


def filter_gradient(node: Node) -> Axes | None:
    """`(images, shape, gradient)`; of `Dilation2D`: the filter, not its shape."""
    out = node.outputs[0].rank
    if out is None or None in _ranks(
        *node.outputs, node.inputs[0], node.inputs[2]
    ):
        return None
    rows = _rows(node.inputs[0])
    return Axes(
        (rows, None, _rows(node.inputs[2])),
        ((None,) * out,),
        sums=("rows",),
        linear=(0, 2) if node.type != "Dilation2DBackpropFilter" else (),
    )


operation(
    "Conv2DBackpropFilter",
    axes=filter_gradient,
    traits={Trait.FRAGILE, Trait.PRODUCT},
)

operation(
    "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNativeBackpropFilter",
    axes=filter_gradient,
    traits={Trait.FRAGILE},
)

operation("Dilation2DBackpropFilter", axes=filter_gradient)


def space_and_batch(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Of dilated convolutions: a block of all rows per position of a window."""
    kind, places = kinds[0], _places_of_window(node)
    if not isinstance(kind, Sharded) or kind.axis != 0 or places is None:
        return None
    outer: SizeLike | None
    if node.type == "SpaceToBatchND":
        outer = sizes.product([kind.outer, places])
    else:
        outer = sizes.divide(kind.outer, places)
    if outer is None:
        return None
    return Plan((kind, REPLICATED, REPLICATED), (kind.in_blocks(outer),))


def space_and_batch_shape(node: Node) -> list[Shape | None] | None:
    """Multiplies or divides rows by the positions of a window."""
    source, out = node.inputs[0].shape, node.outputs[0].static
    places = _places_of_window(node)
    if not source or not out or places is None:
        return None
    rows: SizeLike | None
    if node.type == "SpaceToBatchND":
        rows = sizes.product([source[0], places])
    else:
        rows = sizes.divide(source[0], places)
    return [(rows, *out[1:])]


operation(
    "BatchToSpaceND",
    "SpaceToBatchND",
    plan=space_and_batch,
    shape=space_and_batch_shape,
)


def _places_of_window(node: Node) -> SizeLike | None:
    """Number of positions of a window; `None` if unknown."""
    window = node.inputs[1].value
    if not sizes.are_integers(window) or min(window, default=1) < 1:
        return None
    return sizes.product(window)


def _ranks(*tensors: Tensor) -> list[int | None]:
    return [tensor.rank for tensor in tensors]


def _rows(tensor: Tensor) -> Labels:
    """Labels of images of known rank: rows first; other axes must be whole."""
    return ("rows", *(None for _ in tensor.shape[1:]))
