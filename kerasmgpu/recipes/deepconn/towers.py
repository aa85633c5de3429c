"""DeepCoNN: a tower for a user's reviews and one for an item's.

Zheng, Noroozi and Yu, "Joint Deep Modeling of Users and Items Using Reviews for
Recommendation", WSDM 2017 (arXiv:1701.04783), with a dot product where the
paper has a factorisation machine.
"""

import itertools
from collections.abc import Callable, Sequence

import keras

from kerasmgpu import placement

PLACEMENTS = ("single", "dual", "exaggerated", "data_parallel")

Place = Callable[[keras.Layer, str], keras.Layer]


def placer(name: str, devices: Sequence[str]) -> Place:
    """Returns a function that places a layer of a tower on its device.

    `"single"`: all layers on the first device; `"dual"`: the user's tower on
    the first device, the item's on the second; `"exaggerated"`: layers
    alternate between the devices; `"data_parallel"`: unplaced, for a strategy
    to replicate. The function takes a layer and its side (`"user"`, `"item"` or
    `"both"`), in the order of the layers, and returns the layer to use.
    """
    in_turn = itertools.cycle(devices)
    chosen: dict[str, Callable[[str], str]] = {
        "single": lambda side: devices[0],
        "dual": lambda side: devices[1 if side == "item" else 0],
        "exaggerated": lambda side: next(in_turn),
    }
    if name not in chosen:
        return lambda layer, side: layer
    return lambda layer, side: placement.on_device(layer, chosen[name](side))


def deepconn(
    vocabulary_size: int, words: int, place: Place = lambda layer, side: layer
) -> keras.Model:
    """Builds the two towers and the dot product of their features.

    A tower: embedding of 50 – convolution over 3 words, 10 filters, tanh –
    maximum of 2 neighbours, stride 1 – dense layer of 64, ReLU. The model maps
    int32 `{"user_text": [batch, words], "item_text": [batch, words]}` to
    ratings `[batch, 1]`; for `place` see `placer`.
    """
    layers = keras.layers
    inputs, features = {}, []
    for side in ("user", "item"):
        text = keras.Input((words,), dtype="int32", name=f"{side}_text")
        inputs[f"{side}_text"] = hidden = text
        for layer in (
            layers.Embedding(vocabulary_size, 50, name=f"{side}_embedding"),
            layers.Conv1D(10, 3, activation="tanh", name=f"{side}_filters"),
            layers.MaxPooling1D(2, strides=1, name=f"{side}_maxima"),
            layers.Flatten(name=f"{side}_flat"),
            layers.Dense(64, activation="relu", name=f"{side}_features"),
        ):
            hidden = place(layer, side)(hidden)
        features.append(hidden)
    dot = place(layers.Dot(axes=1, name="rating"), "both")
    return keras.Model(inputs, dot(features), name="deepconn")
