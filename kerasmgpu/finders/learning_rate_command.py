"""Suggests a learning rate by a range test.

    kerasmgpu find_learning_rate my_module:build --global_batch_size=256

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. The model trains for up to `--steps`
steps with a growing rate, until its loss diverges.
"""

from absl import flags

from kerasmgpu.commands import flag_parsing, references
from kerasmgpu.commands.command_line import announce_loading, start
from kerasmgpu.finders.learning_rate import check, find_learning_rate


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(find_learning_rate, flag_values)
    for name, text in (
        ("num_replicas", "Number of replicas. Default: all visible GPUs."),
        ("virtual_devices", "Number of logical CPU devices as replicas."),
    ):
        flags.DEFINE_integer(
            name, None, text, lower_bound=1, flag_values=flag_values
        )
    # Flags may follow the function's name.
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Tests the model in `argv`, and prints the suggestion."""
    values = flags.FLAGS
    build = references.reference(flag_parsing.only_function(argv), "build")
    settings = flag_parsing.arguments(find_learning_rate)
    data_name = settings.pop("data")
    data_name = data_name and references.reference(data_name, "data")
    names = ("low", "high", "steps", "smoothing", "divergence")
    check(**{name: settings[name] for name in names})
    announce_loading()
    import keras

    import kerasmgpu
    from kerasmgpu.commands import user_models
    from kerasmgpu.engine.devices import leave_room

    leave_room()
    strategy = kerasmgpu.strategy(
        values.num_replicas, virtual_devices=values.virtual_devices
    )
    flag = "--num_replicas or --virtual_devices"
    with user_models.scope(strategy, build, flag):
        module = references.load(build)
        keras.utils.set_random_seed(values.seed)
        model, data = user_models.model_and_data(module, build, data_name)
    find_learning_rate(model, data, **settings)


if __name__ == "__main__":
    start(main, define_flags)
