"""A program of a fuzzer: inputs, variables and the lines of a step."""

import dataclasses
import textwrap

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of a step, or the first value of a variable.

    Attributes:
        kind: `"whole"` for small whole numbers, so that sums and comparisons
            of them are exact; `"normal"` for normally distributed ones;
            `"zero"` for zeros.
        seed: Seed of its values.
        shape: Its shape.
        dtype: Name of its type.
        is_batch: Whether its first axis is the batch axis, whose size is
            unknown while tracing unless shapes are static.
    """

    kind: str
    seed: int
    shape: tuple
    dtype: str
    is_batch: bool = True

    def array(self):
        """Returns its values as an array."""
        generator = np.random.default_rng(self.seed)
        dtype = tf.as_dtype(self.dtype)
        if self.kind == "zero":
            array = np.zeros(self.shape)
        elif dtype == tf.bool:
            array = generator.integers(0, 2, self.shape)
        elif self.kind == "whole" or dtype.is_integer:
            array = generator.integers(-3, 4, self.shape)
        else:
            array = generator.normal(size=self.shape)
        return np.asarray(array).astype(dtype.as_numpy_dtype)

    def tensor(self, relative=0.0):
        """Returns its values as a tensor.

        Args:
            relative: Relative change of the last digits of float values.
        """
        array = self.array()
        has_digits = self.kind == "normal" and self.dtype.startswith("float")
        if relative and has_digits:
            generator = np.random.default_rng(self.seed + 1)
            signs = generator.choice([-1, 1], self.shape)
            array = (array * (1 + relative * signs)).astype(array.dtype)
        return tf.constant(array)


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable that a step reads and assigns.

    Attributes:
        initial: `Input` with its first value.
        aggregation: Name of a `tf.VariableAggregation`.
        synchronization: Name of a `tf.VariableSynchronization`.
    """

    initial: Input
    aggregation: str = "NONE"
    synchronization: str = "AUTO"

    def make(self):
        """Creates the variable; in a strategy's scope a distributed one."""
        return tf.Variable(
            self.initial.tensor(),
            aggregation=getattr(tf.VariableAggregation, self.aggregation),
            synchronization=getattr(
                tf.VariableSynchronization, self.synchronization
            ),
        )


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a program is run.

    Attributes:
        num_replicas: Number of replicas.
        static: Whether the number of rows is known while tracing.
        shares: Whether batches are fed as a share per replica.
        draws: Whether stateful random operations are included.
        shard: Whether variables are sharded, where an axis is long enough.
        micro_batches: Micro-batches of each replica.
    """

    num_replicas: int
    static: bool
    shares: bool = False
    draws: bool = False
    shard: bool = False
    micro_batches: int = 1


@dataclasses.dataclass(frozen=True)
class Program:
    """A step with its inputs, variables and setting.

    Attributes:
        inputs: `{name: Input}`.
        variables: `{name: Variable}`.
        lines: Lines of the step's body.
        outputs: Names of what it returns.
        setting: How it is run.
        precision: Name of the float type with the fewest digits in it.
    """

    inputs: dict
    variables: dict
    lines: tuple
    outputs: tuple
    setting: Setting
    precision: str = "float32"

    def in_64_bits(self):
        """Returns the same program with `float64` instead of `float32`.

        `precision` stays `float32`: later lines can amplify rounding errors
        that are left after cancellation, but not to the size of those of
        32 bits.
        """

        def wide(given):
            if given.dtype != "float32":
                return given
            return dataclasses.replace(given, dtype="float64")

        return dataclasses.replace(
            self,
            inputs={name: wide(given) for name, given in self.inputs.items()},
            variables={
                name: dataclasses.replace(held, initial=wide(held.initial))
                for name, held in self.variables.items()
            },
            lines=tuple(
                line.replace("float32", "float64") for line in self.lines
            ),
        )

    def function(self):
        """Returns the step as a function of its variables and inputs."""
        names = {"tf": tf}
        exec(compile(self.function_text(), "<program>", "exec"), names)
        return names["step"]

    def function_text(self):
        """Returns the source code of the step."""
        arguments = ", ".join([*self.variables, *self.inputs])
        body = [*self.lines, f"return {', '.join(self.outputs)},"]
        return f"def step({arguments}):\n{indented(body)}\n"

    def script(self):
        """Returns a script that runs the program and reports differences.

        Run it from the repository's root.
        """
        inputs = "".join(
            f"        {name!r}: {value},\n"
            for name, value in self.inputs.items()
        )
        variables = "".join(
            f"        {name!r}: {value},\n"
            for name, value in self.variables.items()
        )
        return _SCRIPT.format(
            function=self.function_text(),
            inputs=inputs,
            variables=variables,
            setting=self.setting,
            precision=self.precision,
        )


_SCRIPT = """\
from tests import conftest  # Eight logical CPU devices.
import tensorflow as tf
from tests.partitioner.checking import check
from tests.partitioner.program import Input, Setting, Variable


{function}

check(
    step,
    inputs={{
{inputs}    }},
    variables={{
{variables}    }},
    setting={setting},
    precision={precision!r},
)
print("No difference.")
"""


def indented(lines):
    """Indents lines as the body of a function."""
    return textwrap.indent("\n".join(lines), "    ")
