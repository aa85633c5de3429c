"""Makes the pictures of this folder: a run as its user sees it.

    python docs/images/make_pictures.py

trains the autoencoder on two replicas, then as a job of two workers, with
everything that shows a run switched on. It needs Chromium; without TensorBoard
its picture is left out, and said. Two CPU cores take about two minutes.
"""

import functools
import html
import http.client
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

HERE = pathlib.Path(__file__).parent
EPOCHS = 12
PORT = 16006
PICTURES = (
    # File, width, height, dark.
    ("report.png", 1280, 1560, False),
    ("report_dark.png", 1280, 1560, True),
    ("report_phone.png", 390, 1560, True),
)
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 18px 22px; background: #14181d; color: #e4e8ec;
       font: 12px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }}
</style><pre>{}</pre>"""


def train(folder):
    """Trains; the program of each worker."""
    from kerasmgpu import callbacks
    from kerasmgpu.recipes import autoencoder

    # The run is short: look more often.
    callbacks.DeviceStats = functools.partial(
        callbacks.DeviceStats, seconds=0.1
    )
    callbacks.Monitors = functools.partial(callbacks.Monitors, every=10)
    job = "KERASMGPU_JOB" in os.environ
    autoencoder.run(
        virtual_devices=1 if job else 2,
        epochs=EPOCHS,
        output_dir=folder,
        tensorboard=True,
    )


def run(*command, **environment):
    """Runs a command; returns what it has printed."""
    done = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    return done.stdout


def photograph(address, name, width, height, dark=False, seconds=0):
    """Writes a picture of a page, with as few colors as it needs."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chrome"))))
    with tempfile.TemporaryDirectory() as folder:
        # A frame may be narrower than the least window of a browser.
        page = pathlib.Path(folder, "frame.html")
        page.write_text(
            '<body style="margin:0"><iframe style="border:0" '
            f'src="{address}" width="{width}" height="{height}"></iframe>'
        )
        run(
            *(browser, "--headless", "--no-sandbox", "--disable-gpu"),
            *("--hide-scrollbars", "--allow-file-access-from-files"),
            f"--screenshot={HERE / name}",
            f"--window-size={width},{height}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *([f"--virtual-time-budget={1000 * seconds}"] * bool(seconds)),
            page.as_uri() if address.startswith("file:") else address,
        )
    print(HERE / name)


def photograph_text(text, name, folder, width=1280):
    """Writes a picture of a program's output."""
    lines = [
        textwrap.fill(line, 150, subsequent_indent="    ", tabsize=4)
        for line in text.splitlines()
    ]
    text = "\n".join(lines)
    page = folder / "text.html"
    page.write_text(PAGE.format(html.escape(text)), "utf-8")
    height = 18 * text.count("\n") + 66
    photograph(page.as_uri(), name, width, height)


def photograph_tensorboard(folder):
    """Writes a picture of TensorBoard, which draws in a browser."""
    if importlib.util.find_spec("tensorboard") is None:
        print("no picture of TensorBoard: pip install tensorboard")
        return
    command = ["tensorboard.main", f"--logdir={folder}", f"--port={PORT}"]
    server = subprocess.Popen(
        [sys.executable, "-m", *command], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(1)
            try:
                http.client.HTTPConnection("localhost", PORT).connect()
                break
            except OSError:
                continue
        query = "darkMode=false&forceSVG=true&tagFilter=samples_per_sec%7Cgrad%7Clr-"
        address = f"http://localhost:{PORT}/?{query}#timeseries"
        photograph(address, "tensorboard.png", 1280, 1100, seconds=60)
    finally:
        server.terminate()
        server.wait()


def main():
    python = functools.partial(run, sys.executable)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        two, job = folder / "two_replicas", folder / "two_workers"
        printed = python(__file__, two)
        launched = ("-m", "kerasmgpu.launch", "--num_workers=2", "--")
        python(*launched, __file__, job, KERASMGPU_JOB="1")
        photograph_text(printed, "progress.png", folder)
        page = folder / "report.html"
        python("-m", "kerasmgpu", "report", two, job, f"--output={page}")
        for name, width, height, dark in PICTURES:
            photograph(page.as_uri(), name, width, height, dark)
        photograph_tensorboard(folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1])
    else:
        main()
