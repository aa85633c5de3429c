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


HUB = "KerasHub"
_OF_DISTRIBUTION = {
    "keras.src.distribution.distribution_lib_test": "Keras",
    "keras.src.backend.jax.distribution_lib_test": "Keras",
    "keras_hub.src.models.gemma.gemma_backbone_test": HUB,
    "keras_hub.src.models.llama.llama_backbone_test": HUB,
    "keras_hub.src.models.gpt2.gpt2_causal_lm_test": HUB,
}


def modules(table):
    """Test modules such as `"keras.src.callbacks.callback_test"`.

    Args:
        table: `"keras_own"`, or `"distribution"` for tests of
            `keras.distribution`.

    Returns:
        Dictionary from names to groups.
    """
    if table == "distribution":
        return _OF_DISTRIBUTION
    found = {}
    for group, folder in FOLDERS.items():
        paths = sorted((source() / folder).glob("*_test.py"))
        paths += [source() / path for path in MORE.get(group, ())]
        found.update((_module(path), group) for path in paths)
    return found


def source():
    """Folder `keras/src`, found without importing Keras.

    Every child process imports it for itself.
    """
    specification = importlib.util.find_spec("keras")
    return Path(specification.submodule_search_locations[0]) / "src"


def _module(path):
    parts = path.relative_to(source()).with_suffix("").parts
    return ".".join(["keras", "src", *parts])
