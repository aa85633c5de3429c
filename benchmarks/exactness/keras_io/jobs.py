"""Runs a program in a job of several processes, and returns what it prints."""

import json
import os
import subprocess
import sys
import tempfile

from kerasmgpu.job import ports

_BEGIN = """
import json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(7)
keras.config.set_floatx("float64")
starter = os.environ["STARTER"]
if starter == "kerasmgpu":
    import kerasmgpu
    strategy = kerasmgpu.strategy()
elif starter == "stock":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.get_strategy()
"""


def outputs(program, starter, num_workers, timeout_seconds=100):
    """JSON of the line that begins with `result ` in the first worker's output.

    Args:
        program: Python that has `strategy`.
        starter: `"stock"` (`TF_CONFIG`), `"kerasmgpu"` (its launcher), or
            `"alone"`, one process without a strategy.
        num_workers: Number of processes, each with one CPU device.
        timeout_seconds: How long the job may take.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_BEGIN + program)
        processes = _started(path, starter, num_workers, folder)
        try:
            texts = [
                p.communicate(timeout=timeout_seconds)[0] for p in processes
            ]
        finally:
            for process in processes:
                process.kill()
    for line in "\n".join(texts).splitlines():
        if "result " in line:
            return json.loads(line.split("result ", 1)[1])
    raise RuntimeError(texts[0][-1000:])


def _started(path, starter, num_workers, folder):
    environment = {
        **os.environ,
        "STARTER": starter,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    if starter != "stock":
        words = [path]
        if starter == "kerasmgpu":
            words = [
                "-m",
                "kerasmgpu.launch",
                f"--num_workers={num_workers}",
                path,
            ]
        return [_process(words, environment, folder)]
    workers = [f"127.0.0.1:{port}" for port in ports.free(num_workers)]
    return [
        _process(
            [path],
            {
                **environment,
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": workers},
                        "task": {"type": "worker", "index": index},
                    }
                ),
            },
            folder,
        )
        for index in range(num_workers)
    ]


def _process(words, environment, folder):
    return subprocess.Popen(
        [sys.executable, *words],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
