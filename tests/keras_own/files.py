"""Which of Keras's own test files are run: as they lie in Keras's wheel."""

import importlib.util
from pathlib import Path

FOLDERS = {
    "trainers": "trainers",
    "callbacks": "callbacks",
    "models": "models",
    "saving": "saving",
    "losses": "losses",
    "metrics": "metrics",
    "normalization": "layers/normalization",
    "regularization": "layers/regularization",
    "rnn": "layers/rnn",
    "attention": "layers/attention",
    "optimizers": "optimizers",
}
"""Name of a group of test files to its folder in `keras/src`."""

MORE = {"trainers": ["trainers/data_adapters/tf_dataset_adapter_test.py"]}
"""Files beside those: the one data adapter whose tests feed a model."""


def modules(selection=()):
    """Names of test modules such as `"keras.src.callbacks.callback_test"`.

    Args:
        selection: List of groups (`"callbacks"`) and files
            (`"callback_test"`). Default: all.

    Raises:
        ValueError: For a name that is neither a group nor a file.
    """
    found = {}
    for group, folder in FOLDERS.items():
        paths = sorted((source() / folder).glob("*_test.py"))
        paths += [source() / path for path in MORE.get(group, ())]
        for path in paths:
            found[_module(path)] = (group, path.stem)
    known = {name for names in found.values() for name in names}
    unknown = sorted(set(selection) - known)
    if unknown:
        raise ValueError(
            f"Received: {', '.join(unknown)}, which Keras has no tests of "
            f"here. Groups are {', '.join(FOLDERS)}."
        )
    return [
        module
        for module, names in found.items()
        if not selection or set(names) & set(selection)
    ]


def source():
    """Folder `keras/src`, found without importing Keras.

    Every child process imports it for itself.
    """
    specification = importlib.util.find_spec("keras")
    return Path(specification.submodule_search_locations[0]) / "src"


def _module(path):
    parts = path.relative_to(source()).with_suffix("").parts
    return ".".join(["keras", "src", *parts])
