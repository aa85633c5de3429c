"""A worker that finds a learning rate; the first writes it.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.finders.job_program FILE
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu


def main(path):
    """Every worker calls it, and checks that nothing has changed."""
    strategy = kerasmgpu.strategy()
    from tests.finders import test_learning_rate as tests

    model = tests.net(strategy)
    before = tests.state(model)
    found = tests.find(model, show=True)
    for one, other in zip(before, tests.state(model)):
        assert (one == other).all()
    name = f"{strategy.cluster_resolver.task_id}"
    pathlib.Path(path, name).write_text(repr(found.losses))


if __name__ == "__main__":
    main(sys.argv[1])
