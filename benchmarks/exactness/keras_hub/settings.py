"""How a family of models is run, and what its runs are compared with."""

import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np

import kerasmgpu
from benchmarks.exactness import comparison, harness
from benchmarks.exactness.keras_hub import programs

REPLICAS = 3
MESH = 2, 2


@dataclasses.dataclass(frozen=True)
class Run:
    """One training of a family.

    Attributes:
        policy: Keras's dtype policy; variables are float64 under "float64".
        shard: `shard` of the strategy, `None` for none.
        num_replicas: 1 is plain Keras, without a strategy.
        micro_batches: `micro_batches` of the strategy.
        jit_compile: Whether XLA compiles the steps.
        nudged: Whether each of the first weights is one unit in the last place
            off, in the precision of the model's least precise parts.
        distribution: `keras.distribution.Distribution` that is set instead of
            a strategy, or `None`.
    """

    policy: str
    shard: str | None = None
    num_replicas: int = 1
    micro_batches: int = 1
    jit_compile: bool = False
    nudged: bool = False
    distribution: Any = None

    def strategy(self):
        """In whose scope the model is built; `None` for plain Keras."""
        if self.distribution is not None:
            return self.distribution
        if self.num_replicas == 1:
            return None
        return kerasmgpu.MirroredStrategy(
            [f"CPU:{number}" for number in range(self.num_replicas)],
            shard=self.shard,
            min_shard_bytes=0,
            micro_batches=self.micro_batches,
        )


class Measure:
    """Results of a family in settings; each of its runs is made once.

    Args:
        case: `registry.Case`.
    """

    def __init__(self, case):
        # Imports draw random numbers: before the first run's seed is set.
        programs.hub()
        programs.rs()
        self._case = case
        self.run = functools.cache(self._run)
        self._one = Run(case.precision)
        self._many = dataclasses.replace(self._one, num_replicas=REPLICAS)

    def __call__(self, variant):
        """Compares runs in a setting, which is a method of this class."""
        return getattr(self, variant)()

    def plain(self):
        return self._compared(self._one, self._many)

    def weights(self):
        return self._compared(self._one, self._sharded())

    def xla(self):
        many = dataclasses.replace(self._many, jit_compile=True)
        result = self._compared(self._one, many)
        if result["in_parity"]:
            return result
        # XLA draws other random numbers and rounds otherwise.
        one = dataclasses.replace(self._one, jit_compile=True)
        return {**self._compared(one, many), "one_device": "xla"}

    def generate(self):
        """Tokens of the trained, sharded model, without and with XLA."""
        _, program = self.run(self._one)
        _, sharded = self.run(self._sharded())
        if program.prompt is None:
            return {"missing": "generates nothing", "in_parity": True}
        with self._case.in_precision():
            wanted = generated(program)
            differ = [
                compiler
                for compiler, jit_compile in (("tf", False), ("xla", True))
                if not np.array_equal(wanted, generated(sharded, jit_compile))
            ]
        text = f"differs ({', '.join(differ)})" if differ else "same"
        return {"text": text, "in_parity": not differ}

    def mesh(self):
        """Training, and tokens, with variables laid out over all devices."""
        devices = [f"cpu:{number}" for number in range(math.prod(MESH))]
        mesh = keras.distribution.DeviceMesh(MESH, ("batch", "model"), devices)
        layouts = self._case.layouts(mesh)
        if layouts is None:
            return {"missing": "has no layouts", "in_parity": True}
        distribution = keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
        many = dataclasses.replace(self._one, distribution=distribution)
        result = self._compared(self._one, many)
        one, laid_out = self.run(self._one)[1], self.run(many)[1]
        if not any(hasattr(v.value, "parts") for v in laid_out.model.weights):
            result["flaws"].append("nothing is laid out")
        with self._case.in_precision():
            with distribution.scope():
                tokens = generated(laid_out)
            if not np.array_equal(generated(one), tokens):
                result["flaws"].append("tokens differ")
        result["in_parity"] &= not result["flaws"]
        return result

    def bfloat16(self):
        """Distances of mixed bfloat16 from float32, on one device and many."""
        exact, _ = self.run(Run("float32"))
        mixed = Run("mixed_bfloat16")
        one, _ = self.run(mixed)
        many, _ = self.run(dataclasses.replace(mixed, num_replicas=REPLICAS))
        one, many = (
            _root_mean_square(exact, one),
            _root_mean_square(exact, many),
        )
        return {
            "text": f"{many:.0e} ({one:.0e})",
            "in_parity": many <= 1.5 * one or many <= 0.02,
        }

    def _sharded(self):
        return dataclasses.replace(self._many, shard="weights", micro_batches=2)

    def _compared(self, one, many):
        outcome, other = self.run(one)[0], self.run(many)[0]
        result = comparison.compared(outcome, other, self._case)
        if not result["in_parity"]:
            nudged, _ = self.run(dataclasses.replace(one, nudged=True))
            apart = comparison.compared(outcome, nudged, self._case)["distance"]
            # Another program, not rounding, if it parts by its updates.
            is_rounding = result["distance"] <= min(10 * apart, 0.1)
            result["nudged"] = apart
            result["in_parity"] = is_rounding and not result["flaws"]
        return result

    def _run(self, run):
        """Returns the `harness.Outcome` of a run, and its trained program."""
        case = dataclasses.replace(
            self._case, precision=run.policy, jit_compile=run.jit_compile
        )
        return harness.trained(
            case, run.strategy(), prepare=self._nudge if run.nudged else None
        )

    def _nudge(self, model):
        is_float32 = self._case.why or self._case.precision == "float32"
        nudge(model, np.finfo("float32" if is_float32 else "float64").eps)


def nudge(model, unit):
    """Moves each weight by one unit in its last place, up or down."""
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        value = keras.ops.convert_to_numpy(variable)
        signs = random.choice([-1, 1], size=value.shape)
        variable.assign((value * (1 + signs * unit)).astype(value.dtype))


def generated(program, jit_compile=False):
    """The tokens by which a trained model continues its prompt."""
    model = program.model
    model.jit_compile, model.generate_function = jit_compile, None
    prompt = {name: np.copy(array) for name, array in program.prompt.items()}
    return model.generate(prompt, stop_token_ids=None)[
        "token_ids" if "token_ids" in program.prompt else "decoder_token_ids"
    ]


def _root_mean_square(exact, mixed):
    """Distance of all weights from another run's, over its own updates."""
    apart = _norm(exact.weights, mixed.weights)
    return apart / _norm(exact.weights, exact.before)


def _norm(one, other):
    return math.sqrt(
        sum(
            float(np.sum((np.asarray(a, "float64") - np.asarray(b)) ** 2))
            for a, b in zip(one, other, strict=True)
            if np.issubdtype(np.asarray(a).dtype, np.floating)
        )
    )
