"""Counts what four replicas hold and send with adapters and quantized bases.

    python -m benchmarks.adapters

Three dense layers of 512 units and a head of as many, Adam; nothing trains. The
bytes are `layout_report`'s, on logical CPU devices.
"""

import os

from absl import app

REPLICAS, UNITS, RANK, ROWS = 4, 512, 4, (64, 4096)


def built(bits):
    """The model; `None`: all weights train, `""`: adapters on float weights."""
    import keras
    from keras import layers

    dense = [layers.Dense(UNITS, "relu") for _ in range(3)]
    dense.append(layers.Dense(UNITS))
    model = keras.Sequential([keras.Input((UNITS,)), *dense])
    if bits is not None:
        for layer in dense[:3]:
            if bits:
                layer.quantize(bits)
            layer.enable_lora(RANK)
        dense[3].trainable = False
    model.compile("adam", "mse")
    return model


def main(argv):
    del argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kerasmgpu.engine.devices import make_logical_cpus

    make_logical_cpus(REPLICAS)
    import numpy as np

    import kerasmgpu

    names = {
        None: "all weights train",
        "": "LoRA",
        "int8": 'LoRA on `"int8"`',
        "int4": 'LoRA on `"int4"`',
    }
    devices = [f"CPU:{number}" for number in range(REPLICAS)]
    print(
        "| bytes per replica | held, replicated | held, `weights` | sent, "
        "replicated | sent, `weights` | the same, 4,096 rows |"
    )
    print("|---|---|---|---|---|---|")
    for bits, name in names.items():
        reports = []
        for shard, rows in ((None, ROWS[0]), *(("weights", n) for n in ROWS)):
            with kerasmgpu.MirroredStrategy(devices, shard=shard).scope():
                model = built(bits)
            x = np.zeros((rows, UNITS), "float32")
            reports.append(kerasmgpu.layout_report(model, (x, x)))
        whole, divided, larger = reports
        figures = [whole.held, divided.held, whole.sent, divided.sent]
        shown = " | ".join(f"{one:,}" for one in [*figures, larger.sent])
        print(f"| {name} | {shown} |", flush=True)


if __name__ == "__main__":
    app.run(main)
