"""A kernel of its own for each notebook: docs/notebook.ipynb, and mistakes."""

import asyncio
import re
import signal
import threading

import pytest

from tests.launch.launching import is_alive, wait_until
from tests.notebooks import ENVIRONMENT, NOTEBOOK, client, execute, shown

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What the cells of the docs' notebook show now, in their order."""
    notebook = execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"))
    return [shown(cell) for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_the_notebook_of_the_docs_runs(executed):
    assert executed[0].endswith("4")
    assert "the same weights: True" in executed[-3]
    assert "the same weights again: True" in executed[-1]


@pytest.mark.slow
def test_training_shows_its_progress_bar_and_nothing_else(executed):
    (bars,) = [text for text in executed if "Epoch 10/10" in text]
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in bars.splitlines()]
    assert lines[::2] == [f"Epoch {epoch}/10" for epoch in range(1, 11)]
    for line in map(str.rstrip, lines[1::2]):
        assert re.match(
            r"20/20 ━{20} .* - accuracy: \d\.\d+ - loss: 0\.\d+$", line
        )


@pytest.mark.slow
def test_tensorflow_is_silent_about_its_collectives(executed):
    assert not any("Reduce to" in text for text in executed)


@pytest.mark.slow
def test_workers_have_numbers_and_one_of_them_the_bar(executed):
    lines = re.sub(r"\x1b\[\d+m", "", executed[-2]).splitlines()
    assert len(lines) == 6  # Three epochs, two lines each.
    assert lines[0] == "[0] Epoch 1/3"
    assert all(line.startswith("[0] ") for line in lines)


@pytest.mark.slow
def test_the_docs_show_what_the_notebook_gives(executed):
    import nbformat

    kept = nbformat.read(NOTEBOOK, as_version=4)
    kept = [shown(cell) for cell in kept.cells if cell.cell_type == "code"]
    for now, then in zip(executed, kept, strict=True):
        # But for what TensorFlow's start says, and times.
        assert (
            now.splitlines()[-1:] == then.splitlines()[-1:] or "s/step" in now
        )


@pytest.mark.slow
def test_cells_run_twice_and_devices_that_come_too_late(tmp_path):
    cells = [
        "import keras, kerasmgpu, numpy as np\n"
        "strategy = kerasmgpu.strategy(virtual_devices=2)\n"
        "strategy.num_replicas_in_sync",
        "with strategy.scope():\n"
        "    model = keras.Sequential([keras.Input((2,)),"
        " keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')",
        "model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=2)\n"
        "int(model.optimizer.iterations.numpy())",
        "kerasmgpu.strategy(virtual_devices=3)",
    ]
    running = client(cells, tmp_path)
    cells = running.nb.cells
    with running.setup_kernel(env=ENVIRONMENT):
        for number, result in ((0, "2"), (1, ""), (2, "2"), (2, "4")):
            running.execute_cell(cells[number], number)
            assert shown(cells[number]).endswith(result)
        for number in (0, 1, 2):
            running.execute_cell(cells[number], number)
        assert shown(cells[2]).endswith("2")  # A new model begins anew.
        running.allow_errors = True
        running.execute_cell(cells[3], 3)
    (error,) = [o for o in cells[3].outputs if o.output_type == "error"]
    assert error.ename == "InputError"
    assert "has started with 2 CPU device(s)" in error.evalue
    assert "restart the kernel" in error.evalue
    assert "\n" not in error.evalue


FAILING = """
import kerasmgpu

def train(divisor):
    print("training")
    return 1 / divisor
"""


def test_an_error_of_a_worker_is_shown_with_the_line_of_its_cell(tmp_path):
    launching = "kerasmgpu.notebook_launch(train, (0,), num_workers=1)"
    running = client([FAILING, launching], tmp_path)
    running.allow_errors = True
    notebook = running.execute(env=ENVIRONMENT)
    text = re.sub(r"\x1b\[\d+m", "", shown(notebook.cells[1]))
    first, second, *report = text.splitlines()
    assert first == "[0] training"
    assert second == "[0] ZeroDivisionError: division by zero"
    assert report[0].startswith("WorkerError: worker 0 failed first:")
    assert "    return 1 / divisor" in report
    assert report[-1] == "ZeroDivisionError: division by zero"


WAITING = """
import os, pathlib, time
import kerasmgpu

def wait(folder):
    place = 0 if kerasmgpu.is_first_worker() else 1
    path = pathlib.Path(folder) / f"part-{place}"
    path.write_text(str(os.getpid()))
    path.rename(path.with_name(f"worker-{place}"))
    time.sleep(60)

kerasmgpu.notebook_launch(wait, (".",), num_workers=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGCONT"), reason="needs POSIX")
def test_the_stop_button_ends_all_workers(tmp_path):
    running = client([WAITING], tmp_path)
    running.allow_errors = True
    paths = [tmp_path / f"worker-{number}" for number in (0, 1)]

    def stop():
        wait_until(lambda: all(path.exists() for path in paths), seconds=60)
        asyncio.run(running.km.interrupt_kernel())

    stopping = threading.Thread(target=stop)
    stopping.start()
    notebook = running.execute(env=ENVIRONMENT)
    stopping.join()
    errors = [
        output
        for output in notebook.cells[0].outputs
        if output.output_type == "error"
    ]
    assert [error.ename for error in errors] == ["KeyboardInterrupt"]
    assert not any(is_alive(int(path.read_text())) for path in paths)
