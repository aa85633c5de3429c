"""Random numbers: every replica draws its rows of the one-device draw.

The generators are counter-based: element `n` of a draw comes from block
`n // k` of the Philox counter, `k` elements to a block (Salmon et al., SC 2011;
TensorFlow's `FillPhiloxRandom`). So a replica can draw any rows alone, with the
bits that one device draws.
"""

from kerasmgpu.partitioner.rules.table import Axes, Emit, shape_of_input
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation


def counted(node: Node) -> Axes | None:
    """Returns the axes of a draw: the first one longer than 1 can be sharded.

    The inputs are `(shape, key, counter, algorithm, …)`. Returns `None` if the
    output's rank is unknown or 0.
    """
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
        emit=Emit.DRAW_ROWS,
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


operation(
    "StatelessTruncatedNormalV2", shape=shape_of_input(0), traits={Trait.DRAWS}
)

operation(
    *"""
StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial
StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomNormal
StatelessRandomPoisson StatelessRandomUniform StatelessRandomUniformFullInt
StatelessRandomUniformInt StatelessTruncatedNormal
""".split(),
    traits={Trait.DRAWS},
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
