"""How a family is run, and what its runs are compared with."""

import contextlib
import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np

import kerasmgpu
from tests.keras_hub import registry
from tests.keras_io import processes
from tests.models import measuring
from tests.parity import harness

REPLICAS = 3
MESH = 2, 2
SETTINGS = ("plain", "weights", "generate", "mesh", "bfloat16", "xla")


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

    def scope(self):
        """Where the model is built."""
        if self.distribution is not None:
            return self.distribution.scope()
        if self.num_replicas == 1:
            return contextlib.nullcontext()
        return kerasmgpu.MirroredStrategy(
            [f"CPU:{number}" for number in range(self.num_replicas)],
            shard=self.shard,
            min_shard_bytes=0,
            micro_batches=self.micro_batches,
        ).scope()


class Family:
    """A family's runs, each made once.

    Args:
        name: Name in the table of families.
    """

    def __init__(self, name):
        # Imports draw random numbers: before the first run's seed is set.
        registry.hub()
        registry.rs()
        self._family = registry.FAMILIES[name]
        self.run = functools.cache(self._run)
        self._one = Run(self._family.precision)
        self._many = dataclasses.replace(self._one, num_replicas=REPLICAS)

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
        one, program = self.run(self._one)
        many, sharded = self.run(self._sharded())
        if program.prompt is None:
            return {"missing": "generates nothing", "in_parity": True}
        wanted = generated(program)
        same = {
            compiler: np.array_equal(wanted, generated(sharded, jit_compile))
            for compiler, jit_compile in (("tf", False), ("xla", True))
        }
        return {"same": same, "in_parity": all(same.values())}

    def mesh(self):
        """Training, and tokens, with variables laid out over all devices."""
        devices = [f"cpu:{number}" for number in range(math.prod(MESH))]
        mesh = keras.distribution.DeviceMesh(MESH, ("batch", "model"), devices)
        layouts = self._family.layouts(mesh)
        if layouts is None:
            return {"missing": "has no layouts", "in_parity": True}
        distribution = keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
        many = dataclasses.replace(self._one, distribution=distribution)
        result = self._compared(self._one, many)
        one, laid_out = self.run(self._one)[1], self.run(many)[1]
        assert any(hasattr(v.value, "parts") for v in laid_out.model.weights)
        with distribution.scope():
            tokens = generated(laid_out)
        result["tokens_differ"] = not np.array_equal(generated(one), tokens)
        result["in_parity"] &= not result["tokens_differ"]
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
            "one": one,
            "many": many,
            "in_parity": many <= 1.5 * one or many <= 0.02,
        }

    def _sharded(self):
        return dataclasses.replace(self._many, shard="weights", micro_batches=2)

    def _compared(self, one, many):
        outcome, other = self.run(one)[0], self.run(many)[0]
        distance, what = _distance(outcome, other)
        result = {
            "distance": distance,
            "what": what,
            "copies_differ": other.spread > 0,
            "in_parity": distance <= self._family.tolerance,
        }
        if not result["in_parity"]:
            nudged = self.run(dataclasses.replace(one, nudged=True))[0]
            result["nudged"] = _distance(outcome, nudged)[0]
            # Another program, not rounding, if it parts by its updates.
            result["in_parity"] = distance <= min(10 * result["nudged"], 0.1)
        result["in_parity"] &= not result["copies_differ"]
        return result

    def _run(self, run):
        """Returns the `harness.Outcome` of a run, and its trained program."""
        floatx = "float64" if run.policy == "float64" else "float32"
        # First of all: it resets Keras's policy, too.
        keras.utils.clear_session(free_memory=False)
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(run.policy)
        keras.utils.set_random_seed(7)
        with run.scope():
            program = self._family.make()
        model = program.model
        model.jit_compile = run.jit_compile
        if run.nudged:
            unit = np.finfo("float32" if self._family.float32 else floatx).eps
            nudge(model, unit)
        before = [np.copy(weight) for weight in model.get_weights()]
        witness = harness.Witness()
        history = model.fit(
            program.x,
            program.y,
            sample_weight=program.sample_weight,
            batch_size=registry.BATCH_SIZE,
            shuffle=False,
            verbose=0,
            callbacks=[witness],
        ).history
        outcome = harness.Outcome(
            before,
            model.get_weights(),
            history,
            witness.logs,
            None,
            None,
            False,
            witness.spread,
        )
        return outcome, program


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


def _distance(one, many):
    distances = {
        "weights": measuring.distance_of_each_weight(one, many),
        "logs": harness.log_distance(one.history, many.history),
        "step logs": harness.log_distance(one.step_logs, many.step_logs),
    }
    return max(
        (math.inf if math.isnan(value) else value, what)
        for what, value in distances.items()
    )


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


def records(name, settings, tell):
    """Tells one record per setting of a family.

    Args:
        name: Family's name.
        settings: Some of `SETTINGS`.
        tell: Function that takes a dictionary: `{"begins": setting}` before a
            run, and the run's results behind it.
    """
    family = Family(name)
    for setting in list(settings):
        tell({"begins": setting})
        try:
            result = getattr(family, setting)()
        # Whatever is raised is the result that the table reports.
        except Exception as error:  # noqa: B902
            result = processes.failure(error)
        tell({"ends": setting, **result})
