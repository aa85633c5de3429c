"""Convolutions, pooling and images: sharded by rows, and along their windows."""

from collections.abc import Callable, Sequence

from kerasmgpu.partitioner.rules import halos
from kerasmgpu.partitioner.rules.kinds import REPLICATED, Kind, Sharded
from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.rules.table import Axes, Plan
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape, SizeLike

_IMAGES = axes("b* -> b*")
"""Axes of images: the first one can be sharded; other inputs are whole."""


def adjust_contrast(node: Node) -> Axes | None:
    """Returns the axes of a batch of images; `None` for a single image.

    A single image has three axes, and all of it has a common mean.
    """
    rank = node.inputs[0].rank
    return None if rank is None or rank < 4 else _IMAGES(node)


operation("AdjustContrastv2", axes=adjust_contrast)

operation(
    *"""
AdjustHue AdjustSaturation DepthToSpace Dilation2D
ExtractImagePatches ExtractVolumePatches HSVToRGB RGBToHSV SpaceToDepth
""".split(),
    axes=_IMAGES,
)


def shape_of_size(number: int) -> Callable[[Node], list[Shape | None]]:
    """Makes a shape rule for images that are resized to an input's value.

    Args:
        number: Number of the input that holds `[height, width]`.
    """

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
    axes=_IMAGES,
    shape=shape_of_size(1),
)

operation(
    "AvgPool",
    "AvgPool3D",
    "MaxPool",
    "MaxPool3D",
    axes=_IMAGES,
    plan=halos.POOL,
    traits={Trait.FRAGILE},
)

# cuDNN's ends the process for no rows.
operation("LRN", axes=_IMAGES, traits={Trait.NEEDS_ROWS})

operation(
    "Conv2D",
    "Conv3D",
    "DepthwiseConv2dNative",
    axes=axes("b* -> b*", linear=(0, 1)),
    plan=halos.CONVOLUTION,
    traits={Trait.FRAGILE, Trait.PRODUCT},
)


def projective_transform(node: Node) -> Axes | None:
    """Returns the axes of `(images, transforms, …)`.

    There is a transform per image, or one for all. Returns `None` if the shape
    of the transforms is unknown.
    """
    transforms = node.inputs[1].shape
    if transforms is None:
        return None
    one = "__" if transforms[0] == 1 else "b_"
    return axes(f"b*, {one} -> b*", broadcasts=True)(node)


operation(
    "ImageProjectiveTransformV2",
    "ImageProjectiveTransformV3",
    axes=projective_transform,
    shape=shape_of_size(2),
)


# `(images, boxes, indices, size)`: sharded by boxes.
operation("CropAndResize", axes=axes("*, b_, b -> b*"))

# `(gradient, images, boxes, indices)`
operation("CropAndResizeGradBoxes", axes=axes("b*, *, b_, b -> b_"))

# `(gradient, boxes, indices, size)`
operation("CropAndResizeGradImage", axes=axes("b*, b_, b -> *", linear=(0,)))


def rows_of_gradients(node: Node) -> Axes | None:
    """Returns the axes of a gradient: values of rank 4 or 5 have rows.

    Their first axes can be sharded; other inputs are whole. Returns `None` if a
    rank is unknown.
    """
    ranks = [tensor.rank for tensor in (*node.outputs, *node.inputs)]
    if None in ranks:
        return None
    terms = ["b*" if rank in (4, 5) else "*" for rank in ranks[1:]]
    return axes(", ".join(terms) + " -> b*")(node)


operation("LRNGrad", axes=rows_of_gradients, traits={Trait.NEEDS_ROWS})

operation(
    "MaxPoolGradGrad",
    "ResizeBicubicGrad",
    "ResizeBilinearGrad",
    axes=rows_of_gradients,
)

operation(
    "MaxPool3DGrad",
    "MaxPoolGrad",
    axes=rows_of_gradients,
    plan=halos.OF_MAXIMUM,
    traits={Trait.FRAGILE},
)


# `(shape, gradient)`
operation(
    "AvgPool3DGrad",
    "AvgPoolGrad",
    axes=axes("*, b* -> b*", sizes={0: 0}),
    plan=halos.OF_AVERAGE,
    traits={Trait.FRAGILE},
)

# `(gradient, size)`
operation("ResizeNearestNeighborGrad", axes=_IMAGES)

# `(shape, filter, gradient)`
_INPUT_GRADIENT = axes("*, *, b* -> b*", sizes={0: 0}, linear=(1, 2))

operation(
    "Conv2DBackpropInput",
    axes=_INPUT_GRADIENT,
    plan=halos.OF_INPUT,
    traits={Trait.FRAGILE, Trait.PRODUCT},
)

operation(
    "DepthwiseConv2dNativeBackpropInput",
    axes=_INPUT_GRADIENT,
    plan=halos.OF_INPUT,
    traits={Trait.FRAGILE},
)

operation(
    "Conv3DBackpropInputV2",
    axes=_INPUT_GRADIENT,
    plan=halos.OF_INPUT_3D,
    traits={Trait.FRAGILE},
)

# `(images, shape, gradient)`
_FILTER_GRADIENT = axes("b*, *, b* -> *", linear=(0, 2))

operation(
    "Conv2DBackpropFilter",
    axes=_FILTER_GRADIENT,
    plan=halos.OF_FILTER,
    traits={Trait.FRAGILE, Trait.PRODUCT},
)

# For no rows on GPUs, one returns what was in memory before; the other calls
# cuDNN, which takes none.
operation(
    "DepthwiseConv2dNativeBackpropFilter",
    "Conv3DBackpropFilterV2",
    axes=_FILTER_GRADIENT,
    plan=halos.OF_FILTER,
    traits={Trait.FRAGILE, Trait.NEEDS_ROWS},
)

# `(images, filter, gradient)`
operation("Dilation2DBackpropFilter", axes=axes("b*, *, b* -> *", linear=(2,)))

operation(
    "Dilation2DBackpropInput",
    axes=axes("b*, *, b* -> b*", linear=(2,)),
    shape=lambda node: [node.inputs[0].shape],
)


def space_and_batch(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans the move of a window's positions into the first axis, or back.

    Dilated convolutions move them. In the first axis, each position has a block
    of all rows; along an axis of windows, they are planned as such. Returns
    `None` if the rows aren't sharded there, or the window
    is unknown.
    """
    kind, places = kinds[0], _places_of_window(node)
    is_forward = node.type == "SpaceToBatchND"
    rule = halos.TO_BLOCKS if is_forward else halos.FROM_BLOCKS
    divided = rule(node, kinds)
    if divided is not None:
        return divided
    if not isinstance(kind, Sharded) or kind.axis != 0 or places is None:
        return None
    outer: SizeLike | None
    if is_forward:
        outer = sizes.product([kind.outer, places])
    else:
        outer = sizes.divide(kind.outer, places)
    if outer is None:
        return None
    return Plan((kind, REPLICATED, REPLICATED), (kind.in_blocks(outer),))


def space_and_batch_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape: rows times, or divided by, the window's positions.

    Returns `None` if the rank or the window is unknown.
    """
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
    """Returns the number of a window's positions; `None` if unknown."""
    window = node.inputs[1].value
    if not sizes.are_integers(window) or min(window, default=1) < 1:
        return None
    return sizes.product(window)
