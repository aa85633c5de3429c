"""Compares layouts that are found with KerasHub's own, in bytes.

    pip install keras-hub
    python -m benchmarks.found_layouts                  # Llama, Gemma, GPT-2
    python -m benchmarks.found_layouts --models=llama --shape=1x4

Small models without weights, on imagined devices: prints bytes that a device holds
and sends along each axis, of KerasHub's map (if there is one), of the layout that
`find_layout` finds, and of the one that it finds in the memory of KerasHub's.
"""

import math

import numpy as np
from absl import app, flags

SHAPE = flags.DEFINE_string("shape", "2x2", "Rows and columns of the mesh.")
MODELS = flags.DEFINE_list("models", ["llama", "gemma", "gpt2"], "Models.")
WORDS, LAYERS, HEADS, UNITS, ROWS, TOKENS = 600, 3, 4, 64, 16, 64


def main(argv):
    del argv
    shape = tuple(map(int, SHAPE.value.split("x")))
    from kerasmgpu.engine.devices import make_logical_cpus

    make_logical_cpus(math.prod(shape))
    for name in MODELS.value:
        compare(name, shape)


def compare(name, shape):
    """Prints the lines of a model."""
    import keras

    import kerasmgpu

    keras.distribution.set_distribution(None)
    backbone, task = CLASSES[name]()
    with kerasmgpu.strategy(num_replicas=1).scope():
        model = built(name, backbone, task)
    say(name, "found", kerasmgpu.find_layout(model, batch(), shape))
    if not hasattr(backbone, "get_layout_map"):
        return
    devices = keras.distribution.list_devices("cpu")
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=backbone.get_layout_map(mesh)
        )
    )
    report = kerasmgpu.layout_report(built(name, backbone, task), batch())
    print(f"{name}: KerasHub's: {report.held:,} held, {report.along}")
    found = kerasmgpu.find_layout(model, batch(), shape, memory=report.held)
    say(name, "found in that memory", found)


def say(name, what, found):
    print(f"{name}: {what}: {found.held:,} held, {found.sent}", flush=True)


def llama():
    import keras_hub

    return keras_hub.models.LlamaBackbone, keras_hub.models.LlamaCausalLM


def gemma():
    import keras_hub

    return keras_hub.models.GemmaBackbone, keras_hub.models.GemmaCausalLM


def gpt2():
    import keras_hub

    return keras_hub.models.GPT2Backbone, keras_hub.models.GPT2CausalLM


CLASSES = {"llama": llama, "gemma": gemma, "gpt2": gpt2}
SETTINGS = {
    "llama": dict(
        num_query_heads=HEADS, num_key_value_heads=2, intermediate_dim=176
    ),
    "gemma": dict(
        num_query_heads=HEADS,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_dim=256,
    ),
    "gpt2": dict(
        num_heads=HEADS, intermediate_dim=256, max_sequence_length=TOKENS
    ),
}
"""What models differ in."""


def built(name, backbone, task):
    import keras

    inner = backbone(
        vocabulary_size=WORDS,
        num_layers=LAYERS,
        hidden_dim=UNITS,
        **SETTINGS[name],
    )
    model = task(inner, preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss)
    return model


def batch():
    ones = np.ones((ROWS, TOKENS), "int32")
    return {"token_ids": ones, "padding_mask": ones}, ones


if __name__ == "__main__":
    app.run(main)
