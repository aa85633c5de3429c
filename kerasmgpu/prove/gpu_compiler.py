"""Compiles StableHLO for a GPU that isn't here, with JAX's CUDA plugin.

    python gpu_compiler.py FOLDER

FOLDER has `target.txtpb`, the text of a `GpuTargetConfigProto`, and a file
`<number>.mlir` for each program. A line of JSON on standard output says of each
how it went. The interpreter may be one of an environment of its own: it needs
`jax`, `jax-cuda12-plugin` and `jax-cuda12-pjrt`, and nothing of kerasmgpu.

Private names of JAX (checked with 0.10.0 to 0.10.2), since it compiles ahead only
what it has traced itself: `_src.interpreters.mlir.make_ir_context`, in which
StableHLO is parsed, and `jaxlib._jax.DeviceList`, which `compile` takes.
"""

import json
import os
import pathlib
import re
import sys
import time


def main(folder: pathlib.Path) -> None:
    """Compiles the programs of a folder; prints a line for each."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir

    target = (folder / "target.txtpb").read_text("utf-8")
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=target, topology="1x1x1"
    )
    (device,) = topology.devices
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.array([[device.id]], np.int32)
    )
    _say(compiler=f"JAX {jax.__version__}")
    for path in sorted(folder.glob("*.mlir"), key=lambda one: int(one.stem)):
        number = int(path.stem)
        _say(begins=number)
        start = time.perf_counter()
        try:
            with mlir.make_ir_context():
                module = ir.Module.parse(path.read_text("utf-8"))
            compiled = device.client.compile(
                module, _jax.DeviceList((device,)), options
            )
        except (jax.errors.JaxRuntimeError, ir.MLIRError, ValueError) as error:
            _say(program=number, refused=" ".join(str(error).split())[:500])
            continue
        text = "".join(one.to_string() for one in compiled.hlo_modules())
        _say(
            program=number,
            seconds=time.perf_counter() - start,
            temporary=compiled.get_compiled_memory_stats().temp_size_in_bytes,
            libraries=sorted(
                set(re.findall(r'custom_call_target="([^"]+)', text))
            ),
        )


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
