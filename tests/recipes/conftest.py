"""What the tests of several recipes do to a run."""

import os
import signal

import pytest
import tensorflow as tf
from absl import flags

from kerasmgpu.job import exit_status
from kerasmgpu.recipes.shared.training_run import EpochRecords


@pytest.fixture(scope="session", autouse=True)
def devices():
    """Starts the eight logical CPUs, of which a run may ask for fewer.

    Before they start, `virtual_devices` of the first run decides their number.
    """
    tf.config.list_logical_devices()


@pytest.fixture(scope="session")
def cut_after():
    """Function that runs a recipe and ends it as a kill would.

    `cut_after(epochs, run, …)` calls `run(…)` and interrupts it when the epoch
    behind that many is trained, but not saved.
    """
    record = EpochRecords.on_epoch_end

    def cut_after(epochs, run, /, *arguments, **keywords):
        def record_some(self, epoch, logs=None):
            if epoch >= epochs:
                raise KeyboardInterrupt
            record(self, epoch, logs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EpochRecords, "on_epoch_end", record_some)
            with pytest.raises(KeyboardInterrupt):
                run(*arguments, **keywords)

    return cut_after


@pytest.fixture(scope="session")
def preempt_after():
    """Function that runs a recipe and ends it in an epoch by SIGTERM.

    `preempt_after(steps, run, …)` calls `run(…)` and sends the signal when
    that many steps are trained.
    """

    def preempt_after(steps, run, /, *arguments, **keywords):
        done = 0

        def count(self, batch, logs=None):
            nonlocal done
            done += 1
            if done == steps:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EpochRecords, "on_train_batch_end", count)
            patch.setattr(
                EpochRecords, "reads_batch_logs", False, raising=False
            )
            with pytest.raises(SystemExit) as raised:
                run(*arguments, **keywords)
        assert raised.value.code == exit_status.EXIT_PREEMPTED

    return preempt_after


@pytest.fixture(scope="session")
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
