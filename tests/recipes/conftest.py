"""What the tests of several recipes do to a run."""

import pytest
from absl import flags

from kerasmgpu.recipes.shared import run_folder


@pytest.fixture
def cut_after(monkeypatch):
    """Function that runs a recipe and ends it as a kill would.

    `cut_after(epochs, run, …)` calls `run(…)` and interrupts it when the epoch
    behind that many is trained, but not saved.
    """

    def cut_after(epochs, run, /, *arguments, **keywords):
        save = run_folder.RunFolder.save_checkpoint

        def save_some(self, epoch, *state):
            if epoch > epochs:
                raise KeyboardInterrupt
            save(self, epoch, *state)

        with monkeypatch.context() as patch:
            patch.setattr(run_folder.RunFolder, "save_checkpoint", save_some)
            with pytest.raises(KeyboardInterrupt):
                run(*arguments, **keywords)

    return cut_after


@pytest.fixture
def flags_of():
    """Function from a recipe and a flag file to the keywords it stands for."""

    def flags_of(recipe, path):
        flag_values = flags.FlagValues()
        recipe.define_flags(flag_values)
        flag_values(["command", f"--flagfile={path}"])
        return {
            name: flag_values[name].value
            for name in flag_values
            if flag_values[name].present
        }

    return flags_of
