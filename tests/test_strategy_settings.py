"""The settings of a strategy: checked once, and forgotten nowhere."""

import dataclasses
import inspect
import types

import keras
import pytest
from absl import flags

import kerasmgpu
from kerasmgpu.callbacks import run_record
from kerasmgpu.errors import InputError
from kerasmgpu.memory import memory_advice
from kerasmgpu.recipes import alexnet
from kerasmgpu.recipes.shared import training_run
from kerasmgpu.strategy_settings import NAMES, Settings
from tests.devices import device_names

GIVEN = {
    "batch_norm": "per_replica",
    "shard": "weights",
    "min_shard_bytes": 123,
    "shard_over": 2,
    "offload": "optimizer",
    "micro_batches": 1,  # The only one with this `batch_norm`.
    "recompute": "elementwise",
    "xla_cache": False,
}
"""A value of each setting that isn't the default, where there is one."""

WITHOUT_RECIPE_FLAG = {
    "min_shard_bytes": "the default is right but for tests",
    "xla_cache": "KERASMGPU_XLA_CACHE says it",
}

WITHOUT_MEMORY_FLAG = {
    "batch_norm": "moments are small",
    "min_shard_bytes": "the default is predicted",
    "xla_cache": "files take no memory of a device",
}


def test_each_setting_has_a_value_here():
    assert {*GIVEN} == {*NAMES}


@pytest.mark.parametrize(
    "function",
    [
        kerasmgpu.MirroredStrategy,
        kerasmgpu.MultiWorkerMirroredStrategy,
        kerasmgpu.strategy,
    ],
)
def test_strategies_take_each_setting(function):
    taken = inspect.signature(function).parameters
    for name, default in vars(Settings()).items():
        assert taken[name].default == default


def test_a_strategy_holds_all_and_run_json_has_all():
    strategy = kerasmgpu.strategy(devices=device_names(4), **GIVEN)
    assert vars(strategy.settings) == GIVEN
    facts = run_record._of_strategy(strategy)["strategy"]
    assert {name: facts[name] for name in NAMES} == GIVEN


def test_former_attributes_stay_with_a_warning(caplog):
    given = {"shard": "weights", "micro_batches": 3}
    strategy = kerasmgpu.MirroredStrategy(device_names(2), **given)
    assert (strategy.shard, strategy.micro_batches) == ("weights", 3)
    assert strategy.batch_norm == "global"
    assert "use strategy.settings." in caplog.text
    with pytest.raises(AttributeError, match="no attribute 'shards'"):
        _ = strategy.shards


def test_memory_that_is_predicted_in_a_run_knows_all():
    with kerasmgpu.strategy(devices=device_names(4), **GIVEN).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    setting = memory_advice.setting_of(model)
    assert {name: getattr(setting, name) for name in NAMES} == GIVEN


def test_recipes_have_a_flag_of_each_and_hand_it_on():
    defined = flags.FlagValues()
    alexnet.define_flags(defined)
    missing = {name for name in NAMES if name not in defined}
    assert missing == {*WITHOUT_RECIPE_FLAG}
    for name in {*NAMES} - missing:
        assert defined[name].default == getattr(Settings(), name)
    chosen = types.SimpleNamespace(num_replicas=4, epochs=3, **GIVEN)
    strategy = training_run.make_strategy(chosen)
    assert vars(strategy.settings) == GIVEN


def test_the_memory_command_has_a_flag_of_each():
    taken = inspect.signature(kerasmgpu.memory.memory).parameters
    assert {n for n in NAMES if n not in taken} == {*WITHOUT_MEMORY_FLAG}


def test_values_of_one_meaning_are_equal(tmp_path):
    same = Settings(shard="none", offload="none", xla_cache=tmp_path)
    assert same == Settings(xla_cache=str(tmp_path))
    assert same.given() == {"xla_cache": str(tmp_path)}
    assert Settings(**Settings(**GIVEN).given()) == Settings(**GIVEN)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"batch_norm": None}, "one of global, per_replica. Received: .*None"),
        ({"shard": "rows"}, "one of none, optimizer, weights, embeddings"),
        ({"min_shard_bytes": -1}, "an integer of at least 0"),
        ({"min_shard_bytes": None}, "an integer of at least 0"),
        ({"shard_over": 1}, "an integer of at least 2"),
        ({"shard_over": "node"}, 'a number of replicas, or "worker". Received'),
        ({"offload": "weights"}, "one of none, optimizer"),
        (
            {"micro_batches": "all"},
            "or \"auto\". Received: micro_batches='all'",
        ),
        ({"micro_batches": None}, "an integer of at least 1"),
        ({"recompute": "all"}, "such as 20GiB. Received: recompute='all'"),
        ({"xla_cache": 3}, "xla_cache must be the path of a folder"),
        (
            {"batch_norm": "per_replica", "micro_batches": "auto"},
            "needs all rows of a replica at once. Received: micro_batches='auto'",
        ),
    ],
)
def test_wrong_values_are_refused_without_devices(wrong, message):
    with pytest.raises(InputError, match=message):
        Settings(**wrong)


def test_settings_are_replaced_not_changed():
    settings = Settings(micro_batches="auto")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.micro_batches = 2
    with pytest.raises(InputError):
        dataclasses.replace(settings, micro_batches=0)
