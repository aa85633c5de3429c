"""Runs notebooks as Jupyter does; `python -m tests.notebooks` the docs' own."""

import os
import pathlib

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs" / "notebook.ipynb"


ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name != "TF_CPP_MIN_LOG_LEVEL"
}
"""A kernel's environment: a user has not set what the tests have."""


def client(cells, folder):
    """An `nbclient.NotebookClient` for a notebook.

    Args:
        cells: `nbformat.NotebookNode`, the notebook; or list of strings, the
            code of its cells.
        folder: Path, the folder that it runs in.
    """
    import nbclient
    import nbformat

    if isinstance(cells, list):
        cells = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells]
        )
    return nbclient.NotebookClient(
        cells,
        timeout=300,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )


def execute(path, folder):
    """Executes all cells of a notebook; returns it with their outputs."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    client(notebook, folder).execute(env=ENVIRONMENT)
    return notebook


def shown(cell):
    """What a cell shows, as a string."""
    texts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            texts.append(output.text)
        elif output.output_type == "error":
            texts.append("\n".join(output.traceback))
        else:
            texts.append(output.data["text/plain"])
    return "".join(texts)
