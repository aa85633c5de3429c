"""Who takes part, and what has to be installed for it."""

import dataclasses
import importlib.util


@dataclasses.dataclass(frozen=True)
class Contender:
    """A way to train a Keras model.

    Attributes:
        description: String, for `--help` and the table.
        backend: String, Keras's backend. Defaults to `"tensorflow"`.
        one_device: Boolean, whether it can't have replicas.
        jit_compile: What `compile` gets. Defaults to `"auto"`, as in Keras.
        needs: Tuple of modules that must be importable.
        install: String, the command that gets them.
    """

    description: str
    backend: str = "tensorflow"
    one_device: bool = False
    jit_compile: object = "auto"
    needs: tuple = ()
    install: str = ""

    def is_installed(self):
        """Whether the modules that it needs can be found; imports none."""
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
    "jax": Contender(
        "Keras on JAX, keras.distribution.DataParallel",
        backend="jax",
        needs=("jax", "jaxlib"),
        install="pip install jax",
    ),
}
"""Name to `Contender`, in the order of their turns."""


def left_out(names):
    """Contenders of these names that can't take part, with what to do.

    Args:
        names: Sequence of keys of `CONTENDERS`.

    Returns:
        Dictionary of name to one line.
    """
    return {
        name: f"{', '.join(CONTENDERS[name].needs)} can't be imported "
        f"({CONTENDERS[name].install})"
        for name in names
        if not CONTENDERS[name].is_installed()
    }
