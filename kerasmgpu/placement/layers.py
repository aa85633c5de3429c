"""A Keras layer whose weights, computation and gradients are on one device."""

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu.engine import devices
from kerasmgpu.errors import InputError
from kerasmgpu.placement.gradients import call_on_device
from kerasmgpu.placement.placed_updates import device_of


def on_device(layer: keras.layers.Layer, device: str) -> "OnDevice":
    """Puts a layer on a device.

    The layer's weights, computation and gradients are on the device; see
    `place_updates` for the optimizer's updates. Wrap a layer before it is first
    called. A layer that already has weights on another device, such as a
    functional model, is rebuilt with the same values: use the returned layer,
    not the original, which is not changed.

    XLA can't compile a model with placed layers, since it works on one device
    at a time: `compile(jit_compile="auto")`, Keras's default, turns it off.

    Args:
        layer: `keras.layers.Layer`: built-in, custom, or a whole model.
        device: String, `"GPU:1"`, `"CPU:0"`, ….

    Returns:
        An `OnDevice` layer with the name and the call signature of `layer`.

    Raises:
        InputError: If the device doesn't exist, in the scope of a
            `tf.distribute` strategy, or if the layer has weights on another
            device and can't be rebuilt from its config.

    Example:

    ```python
    inputs = keras.Input((64,))
    hidden = on_device(keras.layers.Dense(1000, "relu"), "GPU:0")(inputs)
    outputs = on_device(keras.layers.Dense(10), "GPU:1")(hidden)
    model = keras.Model(inputs, outputs)
    model.compile(place_updates(keras.optimizers.Adam()), "mse")
    ```
    """
    if not isinstance(layer, keras.layers.Layer):
        raise InputError(
            f"on_device takes a Keras layer or model. Received: layer={layer!r}"
        )
    if isinstance(layer, OnDevice):
        raise InputError(
            f"The layer {layer.name!r} is on {layer.device} already. Received: "
            f"device={device!r}; pass the layer inside, `layer.layer`"
        )
    (name,) = devices.choose(devices=[device])
    if _elsewhere(layer, name):
        layer = _rebuilt(layer, name)
    return OnDevice(layer, name)


def without(model: keras.Model) -> keras.Model:
    """Returns a copy of a model without placement.

    The copy has the same weights and needs neither the devices nor kerasmgpu:
    its `.keras` file loads wherever Keras is installed.

    Args:
        model: Functional or sequential `keras.Model`, possibly nested.

    Returns:
        A `keras.Model`, not compiled.

    Raises:
        InputError: If the model is a subclass with a custom `call`, whose
            layers can't be replaced from outside.

    Example:

    ```python
    without(model).save("model.keras")
    ```
    """
    copy = _without(model)
    copy.set_weights(model.get_weights())
    return copy


def _without(layer: keras.layers.Layer) -> keras.layers.Layer:
    if isinstance(layer, OnDevice):
        layer = layer.layer
    if not isinstance(layer, keras.Model):
        return layer.__class__.from_config(layer.get_config())
    try:
        return keras.models.clone_model(layer, clone_function=_without)
    except ValueError as error:
        raise InputError(
            "Only functional and sequential models can be copied without "
            f"placement. Received: {layer.name!r} of class "
            f"{type(layer).__name__} ({error})"
        ) from error


@keras.saving.register_keras_serializable(package="kerasmgpu")
class OnDevice(keras.layers.Layer):
    """A layer on one device, as `on_device` returns it.

    When a model is loaded on a machine without the device, the layer runs on
    the first available device, and a warning names both. When saved again, it
    keeps the original device.

    Args:
        layer: `keras.layers.Layer` without weights, or with weights on the
            device.
        device: String, `"GPU:1"`, `"CPU:0"`, ….
        name: String. Defaults to the name of `layer`.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Raises:
        InputError: In the scope of a `tf.distribute` strategy.

    Example:

    ```python
    placed = OnDevice(keras.layers.Dense(4), "CPU:0")
    placed.layer.units  # 4
    placed.device  # "CPU:0"
    ```
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        device: str,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        _require_no_strategy(name or layer.name)
        # Set first: Keras's `__init__` reads the signature of `call`.
        self.layer = layer
        kwargs.setdefault("dtype", layer.dtype_policy)
        # No autocast here: the wrapped layer casts its inputs if it should.
        super().__init__(name=name or layer.name, autocast=False, **kwargs)
        # A model's layers can make masks even if `supports_masking` is false.
        self._is_model = isinstance(layer, keras.Model)
        self.supports_masking = layer.supports_masking or self._is_model
        self._mask_of_outputs = None
        # XLA can't compile one function for several devices.
        self.supports_jit = False
        self.wanted_device = device
        self.device = _available(device, self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _require_no_strategy(self.name)
        if not self.layer.built:
            self._build_layer(args, kwargs)
        if not self.built and _elsewhere(self.layer, self.device):
            raise InputError(
                f"The weights of layer {self.name!r} are not on {self.device}: "
                "it was first called elsewhere. Put a layer on one device, "
                "before its first call."
            )
        return super().__call__(*args, **kwargs)

    def _build_layer(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Creates the layer's weights on its device."""

        def make() -> None:
            with tf.device(self.device):
                self.layer(*args, **kwargs)

        args, kwargs = keras.tree.map_structure(_symbolic, (args, kwargs))
        if tf.executing_eagerly():
            make()
        else:
            # When Keras traces a model to build it, it defers the creation of
            # variables until after the trace, outside this device scope. Both
            # are thread-local: in another thread variables are created at once.
            _run_in_thread(make)

    @property
    def call(self) -> Callable[..., Any]:
        """The layer's `call` on the device, with the same signature."""

        @functools.wraps(self.layer.call)
        def placed(*args: Any, **kwargs: Any) -> Any:
            outputs, self._mask_of_outputs = call_on_device(
                self.layer, self.device, args, kwargs
            )
            return outputs

        return placed

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.compute_output_spec(*args, **kwargs)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.compute_output_shape(*args, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        if self._is_model:
            is_symbolic = any(
                isinstance(leaf, keras.KerasTensor)
                for leaf in keras.tree.flatten(inputs)
            )
            return None if is_symbolic else self._mask_of_outputs
        with tf.device(self.device):
            return self.layer.compute_mask(inputs, previous_mask)

    def get_build_config(self) -> dict[str, Any]:
        return {"layer": self.layer.get_build_config()}

    def build_from_config(self, config: dict[str, Any]) -> None:
        if not self.layer.built and config["layer"]:
            with tf.device(self.device):
                self.layer.build_from_config(config["layer"])
        self.built = True

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {
            **config,
            "layer": keras.saving.serialize_keras_object(self.layer),
            "device": self.wanted_device,
        }

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> "OnDevice":
        config = dict(config)
        # In the scope: deserialising a functional model creates its weights.
        with tf.device(_available(config["device"])):
            config["layer"] = keras.saving.deserialize_keras_object(
                config["layer"], custom_objects=custom_objects
            )
        return cls(**config)


def _symbolic(leaf: Any) -> Any:
    """Returns a `KerasTensor` like a tensor; anything else unchanged."""
    if isinstance(leaf, keras.KerasTensor) or not hasattr(leaf, "shape"):
        return leaf
    shape = tuple(leaf.shape)
    return keras.KerasTensor(shape, keras.backend.standardize_dtype(leaf.dtype))


def _run_in_thread(function: Callable[[], None]) -> None:
    """Runs a function in a new thread, waits, and raises its exception."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # Raised below, also SystemExit.
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _elsewhere(layer: keras.layers.Layer, device: str) -> bool:
    """Whether any weight of a layer is on another device."""
    return any(device_of(weight) != device for weight in layer.variables)


def _rebuilt(layer: keras.layers.Layer, device: str) -> keras.layers.Layer:
    """Returns a copy of a layer with its weights on the device."""
    try:
        with tf.device(device):
            copy = layer.__class__.from_config(layer.get_config())
            if not copy.built:
                copy.build_from_config(layer.get_build_config())
            copy.set_weights(layer.get_weights())
    except (NotImplementedError, TypeError, ValueError) as error:
        raise InputError(
            f"The layer {layer.name!r} has its weights elsewhere and can't be "
            f"rebuilt on {device} from its config ({error}); put it on the "
            "device before its first call, or give it a get_config"
        ) from error
    return copy


def _available(device: str, name: str | None = None) -> str:
    """Returns the device, or the first available one if there is no such device.

    In that case it logs a warning if the layer's `name` is given.
    """
    try:
        return devices.choose(devices=[device])[0]
    except InputError:
        available = devices.choose()[0]
    if name is not None:
        warnings.warn(
            f"Layer {name!r} belongs on {device}, which this machine doesn't "
            f"have; it runs on {available} instead.",
            stacklevel=2,
        )
    return available


def _require_no_strategy(name: str) -> None:
    if tf.distribute.has_strategy():
        raise InputError(
            f"The layer {name!r} is placed on a device, but a strategy places "
            "a copy of every layer on each of its devices. Build and call the "
            "model outside of the strategy's scope, or leave on_device out "
            "(`kerasmgpu.placement.without(model)` returns a copy without "
            "placement)."
        )
