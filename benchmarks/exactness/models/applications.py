"""Keras's own architectures, one of each family, on the smallest pictures.

The last batch has one picture: on three replicas two have none.
"""

import keras

from benchmarks.exactness.data import images, integers
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model

LEAST_SIDES = {
    "Xception": 71,
    "VGG16": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "InceptionV3": 75,
    "InceptionResNetV2": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "DenseNet121": 32,
    "NASNetMobile": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "ConvNeXtTiny": 32,
}


def classifier(name, side):
    """A function that makes the program of an architecture."""

    def make():
        architecture = getattr(keras.applications, name)
        result = architecture(
            weights=None,
            input_shape=(side, side, 3),
            classes=4,
            classifier_activation=None,
            # The dense layers of 4096 units would be all of the work.
            **({"include_top": False} if name == "VGG16" else {}),
        )
        if name == "VGG16":
            pooled = keras.layers.GlobalAveragePooling2D()(result.output)
            logits = keras.layers.Dense(4)(pooled)
            result = keras.Model(result.input, logits)
        result.compile(
            keras.optimizers.SGD(1e-3),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        pictures = 255 * images(5, side, side, 3)
        return fitted(result, pictures, integers(4, 5), epochs=1)

    return make


for _name, _side in LEAST_SIDES.items():
    model("applications", name=_name)(classifier(_name, _side))
