"""One worker of a job that runs parity cases and keeps what came out.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.program OUTPUT_DIR VIRTUAL_DEVICES [CASE …]

Each worker writes `worker-<index>.pickle`: case name to `harness.Outcome`.
Without names all cases are run.
"""

import os
import pathlib
import pickle
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu
from kerasmgpu import cluster


def main(output_dir, virtual_devices, *names):
    """Runs the cases of those names; all where there are none."""
    strategy = kerasmgpu.strategy(virtual_devices=int(virtual_devices))
    from tests.parity import harness
    from tests.parity.cases import CASES

    outcomes = {
        name: harness.run(CASES[name], strategy) for name in names or CASES
    }
    index = cluster.from_environment().index
    path = pathlib.Path(output_dir) / f"worker-{index}.pickle"
    path.write_bytes(pickle.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
