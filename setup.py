"""The dependencies, each argued for in one line; the index's readme and links.

`pyproject.toml` has the rest.
"""

import pathlib
import re

from setuptools import setup

_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")
_NOTE = """\
This is the README of the sources. The files that it names, and its commands,
are those of a checkout or of the unpacked source distribution.

"""


def long_description():
    """README.md for a package index, where relative links lead nowhere.

    They become the paths that they lead to.
    """
    readme = pathlib.Path(__file__).with_name("README.md").read_text("utf-8")

    def path(link):
        text, target = link.groups()
        return text if target.startswith(text) else f"{text} ({target})"

    readme = _RELATIVE_LINK.sub(path, readme)
    return readme.replace("## ", f"{_NOTE}## ", 1)


def addresses():
    """The links of the package's page, once CITATION.cff has them."""
    citation = pathlib.Path(__file__).with_name("CITATION.cff")
    text = citation.read_text("utf-8") if citation.exists() else ""
    found = dict(re.findall(r'^(repository-code|url): "(.+)"$', text, re.M))
    links = {}
    if "url" in found:
        links["Documentation"] = found["url"]
    if "repository-code" in found:
        source = found["repository-code"]
        links["Source"] = source
        links["Issues"] = f"{source}/issues"
        links["Changes"] = f"{source}/blob/main/CHANGELOG.md"
    return links


EXTRAS = {
    # TensorFlow's CUDA libraries, and NVIDIA's own device counters.
    "gpu": ["tensorflow[and-cuda]>=2.18", "nvidia-ml-py>=12.0"],
    # What recipes read: 25 M rating lines in seconds within bounded memory, kept
    # as Parquet (170 MB); the YAML file of the convnet, whose marks give a
    # mistake's line.
    "recipes": ["polars>=1.0", "pyyaml>=6.0"],
    # Learning curves and scaling plots.
    "report": ["matplotlib>=3.8"],
    # 1,797 real images of digits, the data of the batch-size study.
    "digits": ["scikit-learn>=1.3"],
    # Keras's callback of that name writes through it.
    "tensorboard": ["tensorboard>=2.18"],
    # Checkpoints and records of runs in object stores: one interface to them
    # all, and what it calls for s3:// and for gs://. Not in "all": s3fs pins
    # botocore, which AWS's own tools need in other versions.
    "stores": ["fsspec>=2024.2", "s3fs>=2024.2", "gcsfs>=2024.2"],
    # What `kerasmgpu prove` compiles with for GPUs that aren't there: XLA's GPU
    # compiler, in JAX's plugin, whose parts have one version. Not in "all": 1 GB.
    "prove": [
        "jax>=0.10,<0.11",
        "jax-cuda12-plugin>=0.10,<0.11",
        "jax-cuda12-pjrt>=0.10,<0.11",
    ],
}
EXTRAS["all"] = [
    one
    for name in ("recipes", "report", "digits", "tensorboard")
    for one in EXTRAS[name]
]
# The test runner, what runs two tests at a time, what draws random programs and
# makes those that fail short, what the tests of the recipes, the plots and of
# SciPy's sparse matrices need, and what packs the distributions that tests look
# into.
EXTRAS["test"] = [
    "pytest>=8.0",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
    "matplotlib>=3.8",
    "scipy>=1.11",
    "setuptools>=77",
    # The tests of object stores put a file system of their own behind it.
    "fsspec>=2024.2",
    # The tests of its loaders' states.
    "grain>=0.2.12",
    # The tests of GPUs' counters put recorded answers under it.
    "nvidia-ml-py>=12.0",
    *EXTRAS["recipes"],
]

EXTRAS["docs"] = [
    # Markdown to pages; 2.0 is another program that has no plugins.
    "mkdocs>=1.6,<2",
    # The look, the search, light and dark; 9 is what mkdocs 1 runs.
    "mkdocs-material>=9.5,<10",
    # The API's pages out of docstrings, without importing anything.
    "mkdocstrings[python]>=1.0,<2",
    # Breaks long signatures there into lines.
    "ruff>=0.4",
    # Run the notebooks as Jupyter does.
    "nbclient>=0.10",
    "ipykernel>=6.29",
]

setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    project_urls=addresses(),
    install_requires=[
        # The engine: tf.distribute splits, replicates and all-reduces.
        # No upper bounds here and below: pip is never to downgrade what a
        # notebook's machine has. Versions above those that were checked give a
        # warning at import.
        "tensorflow>=2.18",
        # What users write their models in.
        "keras>=3.10",
        # Flags and flag files of the recipes and commands.
        "absl-py>=2.1",
        # Ratings and rows on the host; TensorFlow needs it anyway.
        "numpy>=1.26",
        # Tables and progress bars a person can read in a terminal.
        "rich>=13.0",
        # Functions of a notebook's cells reach worker processes with it.
        "cloudpickle>=3.0",
        # NumPy's bfloat16 in checkpoints; TensorFlow needs it anyway.
        "ml_dtypes>=0.4",
    ],
    extras_require=EXTRAS,
)
