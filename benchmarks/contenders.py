"""The contenders of the benchmarks and their required packages."""

import dataclasses
import importlib.util


@dataclasses.dataclass(frozen=True)
class Contender:
    """A way to train a model.

    Attributes:
        description: String, for `--help` and the table.
        trainer: String, name of the module in this folder with its `train`.
        backend: String, Keras's backend. Defaults to `"tensorflow"`.
        one_device: Boolean, whether it runs on one device only.
        jit_compile: Argument of `compile`. Defaults to `"auto"`, as in Keras.
        chooses_xla: Boolean, whether it trains until `ChooseXla` has chosen,
            before it is measured.
        shard: String, what the strategy shards. Default: nothing.
        logged: Boolean, whether a `ThroughputLogger` is attached.
        watched: Boolean, whether all callbacks that show a run are.
        as_gpus: Boolean, whether CPU devices run the program of GPUs.
        keeps_programs: Boolean, whether JAX keeps what it compiles in a folder.
        by_default: Boolean, whether it runs by default.
        needs: Tuple of modules that must be importable.
        install: String, the command that installs them.
    """

    description: str
    trainer: str = "training"
    backend: str = "tensorflow"
    one_device: bool = False
    jit_compile: object = "auto"
    chooses_xla: bool = False
    shard: str | None = None
    logged: bool = False
    watched: bool = False
    as_gpus: bool = False
    keeps_programs: bool = False
    by_default: bool = True
    needs: tuple = ()
    install: str = ""

    def is_installed(self):
        """Whether its required modules can be found; imports none."""
        return all(importlib.util.find_spec(name) for name in self.needs)


CONTENDERS = {
    "one_device": Contender("plain Keras", one_device=True),
    "one_device_xla": Contender(
        "plain Keras, jit_compile=True", one_device=True, jit_compile=True
    ),
    "stock": Contender("tf.distribute.MirroredStrategy"),
    "kerasmgpu": Contender("kerasmgpu.MirroredStrategy"),
    "kerasmgpu_xla": Contender(
        "kerasmgpu.MirroredStrategy, jit_compile=True", jit_compile=True
    ),
    "kerasmgpu_auto": Contender(
        "kerasmgpu.MirroredStrategy, callbacks.ChooseXla (only where it is "
        "named)",
        chooses_xla=True,
        by_default=False,
    ),
    "kerasmgpu_weights": Contender(
        'kerasmgpu.MirroredStrategy, shard="weights" (only where it is named)',
        shard="weights",
        by_default=False,
    ),
    "kerasmgpu_logged": Contender(
        "kerasmgpu.MirroredStrategy, callbacks.ThroughputLogger (only where it "
        "is named)",
        logged=True,
        by_default=False,
    ),
    "kerasmgpu_watched": Contender(
        "kerasmgpu.MirroredStrategy with Progress, Monitors, DeviceStats, "
        "RunRecord and HangWatch (only where it is named)",
        watched=True,
        by_default=False,
    ),
    "kerasmgpu_as_gpus": Contender(
        "kerasmgpu.MirroredStrategy, whose logical CPUs run the program that "
        "GPUs would get (only where it is named)",
        as_gpus=True,
        by_default=False,
    ),
    "jax": Contender(
        "Keras on JAX, keras.distribution.DataParallel",
        backend="jax",
        needs=("jax", "jaxlib"),
        install="pip install jax",
    ),
    "jax_kept": Contender(
        "the same with JAX's persistent compilation cache (only where it is "
        "named)",
        backend="jax",
        keeps_programs=True,
        by_default=False,
        needs=("jax", "jaxlib"),
        install="pip install jax",
    ),
    "pytorch": Contender(
        "PyTorch without Keras, DistributedDataParallel",
        trainer="torch_training",
        needs=("torch",),
        install="pip install torch",
    ),
}
"""Name to `Contender`, in the order of their turns."""

BY_DEFAULT = tuple(name for name, c in CONTENDERS.items() if c.by_default)
"""Names of the contenders that run by default."""


def left_out(names):
    """Returns contenders that are not installed, with advice.

    Args:
        names: Sequence of keys of `CONTENDERS`.

    Returns:
        Dictionary from name to one line of advice.
    """
    return {
        name: f"{', '.join(CONTENDERS[name].needs)} can't be imported "
        f"({CONTENDERS[name].install})"
        for name in names
        if not CONTENDERS[name].is_installed()
    }
