"""The configuration of the convnet recipe: read, checked and kept."""

from types import SimpleNamespace
from typing import TYPE_CHECKING

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet import named_objects, yaml_sections
from kerasmgpu.recipes.convnet.yaml_sections import Section
from kerasmgpu.recipes.shared.run_folder import RunFolder

if TYPE_CHECKING:
    import keras

    from kerasmgpu.recipes.convnet.input_data import Data

# Keys of the file; a section's other keys are keywords of its class.
_REQUIRED = ("model", "dataset", "loss", "optimizer", "training")
_OPTIONAL = ("metrics", "callbacks")
_NAME = "config.yaml"
# Keys of `training`, with the least value.
_LEAST = dict(epochs=1, global_batch_size=1, steps_per_epoch=1, seed=0)


def load(settings: SimpleNamespace) -> Section:
    """Reads and checks the file with its overrides."""
    config = yaml_sections.load(settings.config)
    overrides = list(settings.set)
    if settings.num_replicas is not None:
        overrides.append(f"model.n_gpus={settings.num_replicas}")
    for assignment in overrides:
        yaml_sections.override(config, assignment)
    config.require_keys(_REQUIRED, _OPTIONAL)
    for key in ("model", "dataset", "optimizer"):
        config.section(key)
    for key in _OPTIONAL:
        if not isinstance(config.get(key, []), list):
            problem = f"must be a list. Received: {config[key]!r}"
            raise config.error(key, problem)
    training, model = config.section("training"), config["model"]
    training.require_keys(("epochs",), tuple(_LEAST))
    training.setdefault("seed", 0)
    model.setdefault("n_gpus", 0)
    integers = [(training, key, _LEAST[key]) for key in training]
    for section, key, least in [*integers, (model, "n_gpus", 0)]:
        value = section[key]
        if type(value) is not int or value < least:
            raise section.error(
                key,
                f"must be an integer of at least {least}. Received: {value!r}",
            )
    return config


def build_model(config: Section, data: "Data") -> "keras.Model":
    """Builds the configured model for the data, and compiles it."""
    import keras

    keras.utils.set_random_seed(config["training"]["seed"])
    model = named_objects.build_a(
        keras.Model, config["model"], without=("n_gpus",)
    )
    try:
        model(data.inputs)  # Symbolic: it makes the weights.
    except (TypeError, ValueError) as error:
        raise config["model"].error(
            "class", f"can't take the inputs {data.inputs}: {error}"
        ) from error
    _require_names(config)
    optimizer = named_objects.build_a(keras.Optimizer, config["optimizer"])
    model.compile(
        optimizer,
        loss=named_objects.built(config["loss"]),
        metrics=named_objects.built(config.get("metrics", [])),
    )
    return model


def _require_names(config: Section) -> None:
    """Refuses names of losses and metrics that Keras doesn't have."""
    import keras

    # These depend on the loss; `keras.metrics.get` does not know them.
    special = ("accuracy", "acc", "crossentropy", "ce")
    named = [("loss", config["loss"], keras.losses.get)]
    metrics = [m for m in config.get("metrics", []) if m not in special]
    named += [("metrics", name, keras.metrics.get) for name in metrics]
    for key, name, get in named:
        try:
            known = get(name) if isinstance(name, str) else name
        except ValueError:
            known = None
        if known is None:
            raise config.error(
                key,
                f"must have names of Keras or mappings with a class. "
                f"Received: {name!r}",
            )


def build_callbacks(config: Section) -> "list[keras.callbacks.Callback]":
    import keras

    callbacks = named_objects.built(config.get("callbacks", []))
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise config.error(
                "callbacks",
                "must be a list of mappings with the class of a Keras "
                f"callback. Received: {callback!r}",
            )
    return callbacks


def keep(folder: RunFolder, config: Section) -> None:
    """Keeps the configuration, overrides included, in the run's folder."""
    if folder.path is not None:
        folder.write(_NAME, yaml_sections.dump(config))


def require_same(folder: RunFolder, config: Section) -> None:
    """Refuses to resume a run of another configuration or more epochs."""
    if folder.path is None or not (folder.path / _NAME).exists():
        return
    first = yaml_sections.flatten(yaml_sections.load(folder.path / _NAME))
    now = yaml_sections.flatten(config)
    epochs = first.get("training.epochs")
    longer = isinstance(epochs, int) and epochs < now["training.epochs"]
    for key in [*first, *now]:
        if key == "training.epochs" and longer:
            continue
        if first.get(key) != now.get(key):
            raise InputError(
                "--resume needs the configuration of the first run. "
                f"Received: {key}={now.get(key)}; the first run had "
                f"{key}={first.get(key)}"
            )
