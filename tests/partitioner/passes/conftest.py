"""Programs of small functions after each pass, as text."""

import pathlib

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.passes import dump
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules import planned
from tests.strategies.sharded import mirrored


@pytest.fixture
def dumped(tmp_path, monkeypatch):
    """Function that returns `{pass: text}` of a function's program.

    Args:
        function: Function of tensors.
        *shapes: Shapes of its arguments, whose first axis has unknown rows.
        replicas: `Replicas`; two logical CPU devices where it isn't given.
        jit_compile: Whether XLA compiles the program.
        in_shares: For each argument whether it is passed in shares.
        strategy: Strategy of the function's sharded variables.
        repeats: Whether a step that runs out of memory is run again.
    """

    def dumped(
        function,
        *shapes,
        replicas=None,
        jit_compile=False,
        in_shares=None,
        strategy=None,
        repeats=False,
    ):
        monkeypatch.setenv(dump.VARIABLE, str(tmp_path))
        if strategy is None:
            partitioned = Partitioned(
                function,
                replicas or planned.replicas(2),
                name="f",
                jit_compile=jit_compile,
                repeats=repeats,
            )
        else:
            partitioned = strategy.partitioned(function, jit_compile, "f")
        specification = tuple(tf.TensorSpec(shape) for shape in shapes)
        partitioned.program(specification, in_shares).written()
        (folder,) = tmp_path.iterdir()
        return {
            file.stem.split("_", 1)[1]: file.read_text("utf-8")
            for file in sorted(folder.iterdir())
        }

    return dumped


@pytest.fixture(scope="session")
def sharding():
    """A strategy that shards all variables over two replicas."""
    return mirrored(2, "weights")


def lines(text: str, *words: str) -> list[str]:
    """The lines of a text that have all words."""
    return [
        line
        for line in text.splitlines()
        if all(word in line for word in words)
    ]


REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
