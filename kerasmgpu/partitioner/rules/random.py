"""Draws: every replica draws the rows that are its own, from the one seed."""

from kerasmgpu.partitioner.rules.table import GENERATORS, Axes, axes, shape

STATELESS = {
    "StatelessRandomNormalV2",
    "StatelessRandomUniformFullIntV2",
    "StatelessRandomUniformIntV2",
    "StatelessRandomUniformV2",
    "StatelessTruncatedNormalV2",
}


@shape(*STATELESS, "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal")
def drawn_shape(node):
    given = node.inputs[0].value
    return [given] if isinstance(given, tuple) else None
