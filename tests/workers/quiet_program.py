"""A case of `shared_program`: the run of `tests/chaos` that nothing disturbs."""

from tests.chaos import program

EPOCHS = 8
"""Half of a campaign's: one fault is soon over."""


def run(strategy, _, folder):
    """Returns the trained weights."""
    return program.main(folder, folder / "checkpoints", EPOCHS)
