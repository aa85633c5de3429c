"""Counts what 8 replicas hold and send with `shard_over`, on nodes of 4.

    python -m benchmarks.groups

The model is that of `benchmarks.meshes`; nothing trains. Bytes are in units of
those of its weights, `P`, and for rings: one of all replicas leaves each node
once, and between 2 groups there are 4, each of a quarter of the gradients.
"""

import os

from absl import app

SETTINGS = ({}, {"shard": "weights"}, {"shard": "weights", "shard_over": 4})
REPLICAS, NODE, ROWS = 8, 4, 64


def main(argv):
    del argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kerasmgpu.engine.devices import make_logical_cpus

    make_logical_cpus(REPLICAS)
    import numpy as np

    import kerasmgpu
    from benchmarks import meshes

    x = np.zeros((ROWS, meshes.TOKENS), "int32")
    print("| setting | held | sent by a replica | out of a node |")
    print("|---|---|---|---|")
    for setting in SETTINGS:
        devices = [f"CPU:{number}" for number in range(REPLICAS)]
        with kerasmgpu.MirroredStrategy(devices, **setting).scope():
            model = meshes.built()
        report = kerasmgpu.layout_report(model, (x, x))
        weights = 4 * model.count_params()
        between = report.along.get("the groups", 0) * NODE
        ring = report.along.get("all replicas", 0) if between else report.sent
        figures = (report.held, report.sent, ring + between)
        shown = " | ".join(f"{each / weights:.2f} P" for each in figures)
        print(f"| {setting or 'none'} | {shown} |", flush=True)
    print(f"P = {weights:,} bytes; {ring / weights:.2f} P are of all replicas")


if __name__ == "__main__":
    app.run(main)
