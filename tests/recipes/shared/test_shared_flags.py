"""Flags are keywords of `run`, checked before a device is touched."""

import numpy as np
import pytest
from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import shared_flags
from kerasmgpu.strategies import ALL_REDUCES


def define_flags(flag_values):
    shared_flags.define(flag_values, 32, 0.1, "linear", 5)
    shared_flags.define_data(flag_values, "none")
    flags.DEFINE_list("units", ["1", "2"], "Units.", flag_values=flag_values)


def settings(**keywords):
    return shared_flags.settings(define_flags, keywords)


def test_what_is_left_out_has_the_default():
    chosen = settings(epochs=7)
    assert chosen.epochs == 7
    assert chosen.batch_size_per_replica == 32
    assert chosen.learning_rate_scaling == "linear"
    assert chosen.num_replicas is None


def test_values_of_other_types_are_as_those_of_flags(tmp_path):
    chosen = settings(
        epochs=np.int64(7),
        learning_rate=1,
        units=("4", "5"),
        output_dir=tmp_path,
        seed="3",
    )
    assert (chosen.epochs, type(chosen.epochs)) == (7, int)
    assert (chosen.learning_rate, chosen.seed) == (1.0, 3)
    assert chosen.units == ["4", "5"]
    assert chosen.output_dir == str(tmp_path)


def test_settings_as_flags_are_read_back_as_the_same_settings(tmp_path):
    chosen = settings(seed=3, units=["4", "5"], resume=True, output_dir="a b")
    path = tmp_path / "flags.txt"
    path.write_text("\n".join(shared_flags.as_flags(chosen).values()))
    flag_values = flags.FlagValues()
    define_flags(flag_values)
    flag_values(["command", f"--flagfile={path}"])
    assert {name: flag_values[name].value for name in vars(chosen)} == vars(
        chosen
    )


def test_every_way_to_sum_gradients_is_a_flag():
    flag_values = flags.FlagValues()
    define_flags(flag_values)
    choices = flag_values["all_reduce"].parser.enum_values
    assert sorted(choices) == sorted(ALL_REDUCES)


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(epoch=1), "Unknown setting. Received: epoch=1"),
        (dict(num_replicas=0), "--num_replicas: 0 is not an integer in the"),
        (dict(global_batch_size=-1), "Received: -1$"),
        (dict(epochs=2.5), "--epochs: .* Received: 2.5$"),
        (dict(learning_rate_scaling="cubic"), "<linear.sqrt.none>.*cubic$"),
        (dict(learning_rate=-0.1), "a finite number above 0. Received: -0.1$"),
        (dict(learning_rate=0), "a finite number above 0. Received: 0$"),
    ],
)
def test_bad_settings_are_refused(keywords, message):
    with pytest.raises(InputError, match=message):
        settings(**keywords)
