"""Executes docs/notebook.ipynb, and keeps what its cells show in it."""

import os
import tempfile

import nbformat

from tests.notebooks import NOTEBOOK, execute


def is_stderr(output):
    return output.output_type == "stream" and output.name == "stderr"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(NOTEBOOK, folder)
    for cell in notebook.cells:
        cell.metadata.clear()  # When it ran, which changes each time.
        if cell.cell_type == "code":
            # What TensorFlow says of this machine's CUDA as it starts.
            cell.outputs = [o for o in cell.outputs if not is_stderr(o)]
    temporary = NOTEBOOK.with_suffix(".part")
    nbformat.write(notebook, temporary)
    os.replace(temporary, NOTEBOOK)
