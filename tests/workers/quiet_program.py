"""A case of `shared_program`: the run of `tests/chaos` that nothing disturbs."""

from tests.chaos import program


def run(strategy, _, folder):
    """Returns the trained weights."""
    return program.main(folder, folder / "checkpoints")
