"""Random programs of windows over images whose rows, or columns, a mesh divides.

    python -m tests.partitioner.window_programs --programs=500
    python -m tests.partitioner.window_programs --seed=17

A program is a chain of convolutions, pools, paddings and slices. Its result and its
gradients on a mesh are compared with those of one device, in float64.
"""

import argparse
import math
import random

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.step.constraints import laid_out
from tests.devices import device_name

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
MESHES = {
    (2,): (1,),
    (3,): (1,),
    (5,): (2,),
    (2, 2): (0, 1),
    (2, 3): (0, 2),
    (3, 2): (1, 2),
}
"""Meshes, and the axis of the images that each of their axes divides."""

TOLERANCE = 1e-11
LONGEST = 40


def difference(seed):
    """The largest relative difference of a program's results, and its text."""
    drawn = random.Random(seed)
    shape, divided = drawn.choice(list(MESHES.items()))
    # With an axis that isn't of rows only, a batch is passed whole.
    sizes = [drawn.randint(2, 3), *(drawn.randint(3, 19) for _ in range(2)), 2]
    program = Program(drawn, sizes)

    def on_mesh(x, *filters):
        marked = laid_out(x, [axis or None for axis in divided])
        return program(marked, *filters, given=x)

    x = tf.constant(np.random.default_rng(seed).normal(size=sizes))
    expected = tf.function(program)(x, *program.filters)
    found = Partitioned(on_mesh, replicas(shape, 0 in divided))(
        x, *map(tf.identity, program.filters)
    )
    worst = 0.0
    for one, other in zip(expected, found, strict=True):
        scale = max(1.0, float(np.abs(one).max(initial=0)))
        away = np.abs(np.subtract(one, other)).max(initial=0) / scale
        worst = max(worst, float(away) if np.isfinite(away) else math.inf)
    return worst, f"{sizes} on {shape}: {', '.join(program.lines)}"


def replicas(shape, divides_rows):
    names = [
        f"/job:localhost/replica:0/task:0/device:{device_name(n)}"
        for n in range(math.prod(shape))
    ]
    return Replicas(Mesh.on(names, HOST, divides_rows=divides_rows, axes=shape))


class Program:
    """A chain of random operations; returns its loss, result and gradients.

    Args:
        drawn: `random.Random`.
        sizes: Shape of the images.

    Attributes:
        filters: The filters, whose gradients are also compared.
        lines: What the operations are.
    """

    def __init__(self, drawn, sizes):
        self.filters, self.lines, self._steps = [], [], []
        shape = tuple(sizes)
        for _ in range(drawn.randint(1, 5)):
            name, step, *filters = OPERATIONS[drawn.randrange(len(OPERATIONS))](
                drawn, shape
            )
            filters = [tf.constant(one) for one in filters]
            try:
                made = step(tf.zeros(shape, tf.float64), *filters).shape
            except (ValueError, tf.errors.InvalidArgumentError):
                continue  # The window is larger than the images.
            if 0 in made or max(made) > LONGEST:
                continue
            self.lines.append(name)
            self._steps.append((step, len(filters), tuple(made) == shape))
            self.filters += filters
            shape = tuple(made)
        self._weights = drawn.random()

    def __call__(self, x, *filters, given=None):
        given, left = x if given is None else given, list(filters)
        with tf.GradientTape() as tape:
            tape.watch([given, *filters])
            value = tf.identity(x) if given is x else x
            if given is not x:
                tape.watch(value)
            source = value
            for step, number, is_same in self._steps:
                own, left = left[:number], left[number:]
                before, value = value, tf.tanh(step(value, *own))
                if is_same:
                    value += before
            loss = tf.reduce_mean(tf.cos(value + self._weights))
        gradients = tape.gradient(loss, [source, *filters])
        return [loss, value, *(g for g in gradients if g is not None)]


def _filter(drawn, *shape):
    return np.random.default_rng(drawn.randrange(1 << 30)).normal(size=shape)


def _window(drawn, longest=5):
    return [drawn.randint(1, longest) for _ in range(2)]


def _padding(drawn, most):
    kind = drawn.choice(["SAME", "VALID", "EXPLICIT"])
    if kind != "EXPLICIT":
        return kind
    around = [[drawn.randint(0, max(m - 1, 0)) for _ in range(2)] for m in most]
    return [[0, 0], *around, [0, 0]]


def convolution(drawn, shape):
    window, made = _window(drawn), drawn.randint(1, 3)
    steps, padding = _window(drawn, 3), _padding(drawn, window)
    return (
        f"conv {window} by {steps}, {padding}",
        lambda x, f: tf.nn.conv2d(x, f, steps, padding),
        _filter(drawn, *window, shape[-1], made),
    )


def dilated(drawn, shape):
    window, holes = _window(drawn, 3), _window(drawn, 3)
    padding = drawn.choice(["SAME", "VALID"])
    return (
        f"conv {window} with holes {holes}, {padding}",
        lambda x, f: tf.nn.convolution(x, f, 1, padding, dilations=holes),
        _filter(drawn, *window, shape[-1], 2),
    )


def depthwise(drawn, shape):
    window, step = _window(drawn), drawn.randint(1, 3)
    padding = _padding(drawn, window)
    return (
        f"depthwise {window} by {step}, {padding}",
        lambda x, f: tf.nn.depthwise_conv2d(x, f, [1, step, step, 1], padding),
        _filter(drawn, *window, shape[-1], drawn.randint(1, 2)),
    )


def transposed(drawn, shape):
    window, steps = _window(drawn), _window(drawn, 3)
    padding = drawn.choice(["SAME", "VALID"])
    less = 0 if padding == "SAME" else 1
    made = [
        n * s + less * max(w - s, 0)
        for n, s, w in zip(shape[1:3], steps, window)
    ]
    return (
        f"transposed {window} by {steps}, {padding}",
        lambda x, f: tf.nn.conv2d_transpose(
            x, f, [tf.shape(x)[0], *made, 2], steps, padding
        ),
        _filter(drawn, *window, 2, shape[-1]),
    )


def pool(drawn, shape):
    kind, window = drawn.choice(["MAX", "AVG"]), _window(drawn, 4)
    steps, padding = _window(drawn, 3), drawn.choice(["SAME", "VALID"])
    return (
        f"{kind} of {window} by {steps}, {padding}",
        lambda x: tf.nn.pool(x, window, kind, steps, padding),
    )


def padded_pool(drawn, shape):
    window, steps = _window(drawn, 4), _window(drawn, 3)
    padding = _padding(drawn, window)
    return (
        f"max pool {window} by {steps}, {padding}",
        lambda x: tf.nn.max_pool2d(x, window, steps, padding),
    )


def padding(drawn, shape):
    around = [
        [0, 0],
        *([drawn.randint(0, 6), drawn.randint(0, 6)] for _ in "hw"),
    ]
    around.append([0, 0])
    return f"pad {around}", lambda x: tf.pad(x, around)


def sliced(drawn, shape):
    begin = [drawn.randint(0, n - 1) for n in shape[1:3]]
    end = [drawn.randint(b + 1, n) for b, n in zip(begin, shape[1:3])]
    step = [drawn.randint(1, 3) for _ in "hw"]
    (h, w), (a, b), (s, t) = begin, end, step
    return f"[:, {h}:{a}:{s}, {w}:{b}:{t}]", lambda x: x[:, h:a:s, w:b:t]


def cut(drawn, shape):
    begin = [0, *(drawn.randint(0, n - 1) for n in shape[1:3]), 0]
    size = [
        -1,
        *(drawn.randint(1, n - b) for b, n in zip(begin[1:], shape[1:3])),
    ]
    return (
        f"slice {begin} {size}",
        lambda x: tf.slice(x, begin, [*size, -1]),
    )


OPERATIONS = [
    *[convolution] * 4,
    dilated,
    *[depthwise] * 2,
    *[transposed] * 3,
    *[pool] * 3,
    padded_pool,
    padding,
    sliced,
    cut,
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int)
    flags = parser.parse_args()
    seeds = range(flags.programs) if flags.seed is None else [flags.seed]
    for seed in seeds:
        try:
            away, text = difference(seed)
        except Exception as error:
            if flags.seed is not None:
                raise
            away, text = math.inf, f"{type(error).__name__}: {error}"
        if away > TOLERANCE or flags.seed is not None:
            print(f"{seed}: {away:.1e}, {text}", flush=True)


if __name__ == "__main__":
    from tests import conftest  # noqa: F401 - Eight logical CPU devices.

    main()
