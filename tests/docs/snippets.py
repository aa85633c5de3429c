"""Which code of the pages is run, and which for what reason is not."""

from tests.docs import pages

MARK = "*Not run by the tests: needs "
"""How a page says so, in the paragraph before the code."""

NOT_RUN = {
    ("docs/answers.md", "import keras\nimport keras_hub\nimport"),
    ("docs/clusters.md", "a$ kerasmgpu launch --hosts=a:4,b:4 "),
    ("docs/clusters.md", "export MASTER_ADDR=a KERASMGPU_JOB_TOKEN="),
    ("docs/clusters.md", "from ray.train import ScalingConfig"),
    ("docs/clusters.md", "mpirun -np 4 python train.py"),
    ("docs/clusters.md", "srun --nodes=2 --ntasks-per-node=4 "),
    ("docs/docker.md", "docker build --build-arg BASE="),
    ("docs/docker.md", "docker build --tag kerasmgpu ."),
    ("docs/docker.md", "docker run --rm --gpus all --volume "),
    ("docs/monitoring.md", "pip install tensorboard"),
    ("docs/monitoring.md", "pip install xprof"),
    ("docs/trackers.md", "if kerasmgpu.is_first_worker():\n    mlflow."),
    ("docs/trackers.md", "first = kerasmgpu.is_first_worker()\nwandb."),
    ("docs/trackers.md", "if kerasmgpu.is_first_worker():\n    comet_ml."),
}
"""Page, and how the code begins."""

QUOTED = {
    ("docs/partition.md", 'operation("Cross"'): (
        "kerasmgpu/partitioner/rules/contractions.py"
    ),
    ("docs/partition.md", "@operation(1)\ndef cross"): (
        "tests/partitioner/operations/contractions.py"
    ),
}
"""Code that is in the repository, word for word: page and begin, to file."""


def to_run(page):
    """Line, language and code of each snippet of Python that is run."""
    for language in ("python", "pycon"):
        for line, before, code in pages.fences(page, language):
            if not before.startswith(MARK) and not quoted_from(page, code):
                yield line, language, code


def quoted_from(page, code):
    """The file that a snippet is quoted from, or `None`."""
    for (where, begin), source in QUOTED.items():
        if where == page and code.startswith(begin):
            return source
    return None
