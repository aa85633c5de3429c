"""The notebooks for two GPUs run on two logical CPU devices, smaller."""

import importlib.util
import json
import re

import pytest

from tests.notebooks import ENVIRONMENT, NOTEBOOK, client, shown

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

TOKENIZER = """
keras_hub.models.QwenCausalLM(
    keras_hub.models.QwenBackbone(
        vocabulary_size=258, num_layers=2, num_query_heads=4,
        num_key_value_heads=2, hidden_dim=32, intermediate_dim=64,
    ),
    keras_hub.models.QwenCausalLMPreprocessor(
        keras_hub.models.QwenTokenizer(
            vocabulary={
                **{character: number for number, character in enumerate(
                    "!.abcdefghijklmnopqrstuvwxyzT\\u0120")},
                "ab": 255, "<|endoftext|>": 256, "<|im_end|>": 257,
            },
            merges=["a b"],
        ),
        sequence_length=32,
    ),
)
"""
SMALLER = {
    "two_gpus.ipynb": {
        "WIDTH = 16384": "WIDTH = 64",
        "NUM_IMAGES = 8192": "NUM_IMAGES = 520",
        "(32, 64, 128)": "(4, 8)",
        "batch_size=256,": "batch_size=100,",
        "!kerasmgpu doctor --train": "!kerasmgpu doctor --max_megabytes=1",
        "--gpu=T4": "--gpu=T4 --nonumbers",
        '("float64", "float32")': '("float64",)',
        "epochs=3": "epochs=1",
    },
    "hub_on_two_gpus.ipynb": {
        "keras_hub.models.QwenCausalLM.from_preset(PRESET)": TOKENIZER.strip(),
    },
}
"""Notebook, and what is written in it and run here instead."""


def run(name, folder):
    """What each cell of a notebook shows, but for those that install."""
    import nbformat

    notebook = nbformat.read(NOTEBOOK.with_name(name), as_version=4)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    install, *cells = [cell.source for cell in cells]
    assert "%pip install" in install
    for written, smaller in SMALLER[name].items():
        assert any(written in cell for cell in cells), written
        cells = [cell.replace(written, smaller) for cell in cells]
    done = client(cells, folder).execute(env=ENVIRONMENT)
    return [shown(cell) for cell in done.cells]


@pytest.mark.slow
def test_two_devices_end_with_one_loss_and_a_block_to_paste(tmp_path):
    block = run("two_gpus.ipynb", tmp_path)[-1]
    assert block.startswith("| two GPUs | |\n|---|---|\n| kerasmgpu | ")
    rows = dict(re.findall(r"^\| (.*?) \| (.*) \|$", block, re.MULTILINE))
    assert rows["the same"] == rows["proved"] == "True"
    assert rows["doctor"].startswith("NO PROBLEM")
    text, figures = re.findall(r"```\w+\n(.*?)```", block, re.DOTALL)
    assert "No GPU is used" in text
    figures = json.loads(figures)
    assert list(figures) == list(rows)
    differences = figures["differences"]["float64"]
    assert len(differences) == 3 and 0 < max(differences.values()) < 1e-9


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("keras_hub") is None,
    reason="keras-hub is not installed",
)
def test_a_model_of_keras_hub_is_fine_tuned_under_its_layout(tmp_path):
    shows = run("hub_on_two_gpus.ipynb", tmp_path)
    assert "sent" in shows[-2]
    assert "the loss falls: True" in "".join(shows)
    assert shows[2].splitlines()[-1].startswith("Two devices are")
