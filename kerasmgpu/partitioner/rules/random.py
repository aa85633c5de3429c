"""Random numbers: every replica draws its rows of the one-device draw.

The generators are counter-based: element `n` of a draw comes from block `n // k` of the
Philox counter, `k` elements to a block (Salmon et al., SC 2011; TensorFlow's
`FillPhiloxRandom`). So a replica draws any
rows, equal to the bit.
"""

from typing import TYPE_CHECKING, cast

import tensorflow as tf

from kerasmgpu.partitioner import sizes
from kerasmgpu.partitioner.graph import Node
from kerasmgpu.partitioner.kinds import Sharded
from kerasmgpu.partitioner.places import HOST
from kerasmgpu.partitioner.records import Trait, operation
from kerasmgpu.partitioner.rules.table import Axes, Plan, shape_of_input
from kerasmgpu.partitioner.sizes import SizeLike

if TYPE_CHECKING:
    from kerasmgpu.partitioner.building import Build


def counted(node: Node) -> Axes | None:
    """`(shape, key, counter, algorithm, …)`; the first axis may be sharded."""
    out = node.outputs[0].shape
    if not out:
        return None
    first = next((n for n, size in enumerate(out) if size != 1), 0)
    labels = tuple("rows" if n == first else None for n in range(len(out)))
    return Axes(
        (None,) * len(node.inputs),
        (labels,),
        sizes={0: 0},
        in_blocks=False,
        emit=_draw_rows,
    )


operation(
    "StatelessRandomNormalV2",
    "StatelessRandomUniformFullIntV2",
    "StatelessRandomUniformIntV2",
    "StatelessRandomUniformV2",
    axes=counted,
    shape=shape_of_input(0),
    traits={Trait.DRAWS, Trait.GENERATES},
)


def _draw_rows(
    build: "Build", node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Writes the draw of a replica's rows, from the counter of their first block."""
    local_shape, key, counter, *rest = inputs
    dtype = node.outputs[0].dtype
    per_block = 2 if dtype.size == 8 else 4
    sharded = cast(Sharded, plan.gives[0])
    inner = sizes.product(
        [sharded.inner, *node.outputs[0].shape[sharded.axis + 1 :]]
    )

    def op(type: str, *operands: str) -> str:
        return build.sizes.op(type, *operands, dtype=tf.int64)

    def rows(number: str) -> str:
        return op(
            "Mul",
            build.cast(number, tf.int32, tf.int64, HOST),
            build.sizes.scalar(inner, tf.int64),
        )

    first = rows(build.sizes.start(sharded.rows, place))
    count = rows(build.sizes.count(sharded.rows, place))
    # XLA pairs the halves of a draw for normals (Box-Muller), so that numbers
    # depend on its shape: each replica draws all rows and slices its own.
    is_normal = node.type == "StatelessRandomNormalV2"
    draws_all = is_normal and build.compiles(node)
    if draws_all:
        skipped = first
        drawn_shape = build.sizes.vector(
            cast(tuple[SizeLike, ...], node.outputs[0].shape), tf.int64
        )
    else:
        size = build.sizes.scalar(per_block, tf.int64)
        block = op("FloorDiv", first, size)
        skipped = op("FloorMod", first, size)
        counter = _advanced(build, counter, block)
        length = op("AddV2", count, skipped)
        drawn_shape = build.sizes.packed([length], tf.int64)
    (drawn,) = build.copy(
        node, [drawn_shape, key, counter, *rest], place, Tshape=tf.int64
    )
    if draws_all:
        drawn = build.flat(drawn, dtype, place)
    own = build.strided_slice(
        drawn,
        build.sizes.packed([skipped], tf.int64),
        build.sizes.packed([op("AddV2", skipped, count)], tf.int64),
        build.constant([1], tf.int64, HOST),
        dtype,
        place,
        index=tf.int64,
    )
    return [build.reshape(own, local_shape, dtype, place, node.inputs[0].dtype)]


def _advanced(build: "Build", counter: str, blocks: str) -> str:
    """Writes a counter (128 bits, the lower 64 first) advanced by some blocks."""
    blocks = build.cast(blocks, tf.int64, tf.uint64, HOST)
    zero = build.constant(0, tf.uint64, HOST)
    step = build.sizes.packed([blocks, zero], tf.uint64)
    return build.sizes.op("AddV2", counter, step, dtype=tf.uint64)


operation(
    "StatelessTruncatedNormalV2", shape=shape_of_input(0), traits={Trait.DRAWS}
)

operation(
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
    shape=shape_of_input(0),
    traits={Trait.PRIVATE_STATE},
)

operation(
    *"""
Multinomial ParameterizedTruncatedNormal RandomGamma RandomGammaGrad
RandomPoisson RandomPoissonV2 RandomShuffle
""".split(),
    traits={Trait.PRIVATE_STATE},
)
