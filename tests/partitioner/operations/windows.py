"""Convolutions, pooling and images."""

from tests.partitioner.operations.table import operation


@operation(2)
def convolution(scope):
    """With a constant filter."""
    x, images = _images(scope)
    channels = images.shape[3]
    kernel = [*_window(scope, images), channels, 2]
    padding = scope.choice(["SAME", "VALID"])
    strides = scope.integer(1, 2)
    name = scope.choice(["conv2d", "depthwise_conv2d", "conv2d_transpose"])
    constant = scope.constant(kernel, x.dtype)
    if name == "conv2d":
        text = f"tf.nn.conv2d({images}, {constant}, {strides}, '{padding}')"
    elif name == "depthwise_conv2d":
        strides = [1, strides, strides, 1]
        text = (
            f"tf.nn.depthwise_conv2d({images}, {constant}, {strides}, "
            f"'{padding}')"
        )
    else:
        constant = scope.constant([1, 1, 2, channels], x.dtype)
        height, width = images.shape[1:3]
        out = f"[tf.shape({images})[0], {height}, {width}, 2]"
        text = f"tf.nn.conv2d_transpose({images}, {constant}, {out}, 1, 'SAME')"
    scope.let(text, images)


@operation()
def pool(scope):
    """The mean or the largest of each window."""
    name = scope.choice(["avg_pool2d", "max_pool2d"])
    x, images = _images(scope, exact=name == "max_pool2d")
    padding = scope.choice(["SAME", "VALID"])
    window, strides = _window(scope, images), scope.integer(1, 2)
    sources = (images,) if name == "max_pool2d" else ()
    scope.let(
        f"tf.nn.{name}({images}, {window}, {strides}, '{padding}')", *sources
    )


@operation()
def along_time(scope):
    """A convolution along one axis."""
    x = scope.value("wide", least=3, most=3, where=_has_pixels)
    constant = scope.constant([2, x.shape[2], 2], x.dtype)
    scope.let(f"tf.nn.conv1d({x}, {constant}, 1, 'SAME')", x)


@operation()
def resize(scope):
    """To another size."""
    _, images = _images(scope)
    method = scope.choice(["bilinear", "nearest", "bicubic", "area"])
    size = [scope.integer(1, 4), scope.integer(1, 4)]
    scope.let(f"tf.image.resize({images}, {size}, '{method}')")


@operation()
def depth(scope):
    """Pixels to channels, or images to patches."""
    _, images = _images(scope)
    if scope.flag():
        scope.let(f"tf.nn.space_to_depth({images}, 2)", images)
    else:
        scope.let(
            f"tf.image.extract_patches({images}, [1, 2, 2, 1], [1, 1, 1, 1], "
            "[1, 1, 1, 1], 'SAME')",
            images,
        )


@operation()
def flip(scope):
    """Left and right."""
    _, images = _images(scope)
    scope.let(f"tf.image.flip_left_right({images})", images)


@operation(1)
def dilation(scope):
    """The largest sum of each window, or its gradient."""
    _, images = _images(scope, exact=True)
    shape = [*_window(scope, images), images.shape[3]]
    kernel = scope.constant(shape, images.dtype)
    strides = [1, scope.integer(1, 2), 1, 1]
    padding = scope.choice(["SAME", "VALID"])
    made = scope.let(
        f"tf.nn.dilation2d({images}, {kernel}, {strides}, '{padding}', "
        "'NHWC', [1, 1, 1, 1])",
        images,
    )
    if scope.flag():
        scope.let(
            f"tf.raw_ops.Dilation2DBackpropInput(input={images}, "
            f"filter={kernel}, out_backprop={made}, strides={strides}, "
            f"rates=[1, 1, 1, 1], padding='{padding}')",
            images,
            made,
        )


def _images(scope, exact=False):
    """A value and images that are made of it."""
    x = scope.value("wide", least=2, most=4, where=_has_pixels, exact=exact)
    if x.rank == 4:
        return x, x
    new = "None, " * (4 - x.rank)
    return x, scope.let(f"{x}[..., {new.removesuffix(', ')}]", x)


def _window(scope, images):
    """A window that fits: for others oneDNN gives a wrong shape, or crashes."""
    return [min(scope.integer(1, 2), size) for size in images.shape[1:3]]


def _has_pixels(value):
    """The first axis may be empty, the others may not."""
    return 0 not in value.shape
