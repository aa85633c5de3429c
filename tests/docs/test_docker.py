"""What can be said of the Dockerfile without Docker."""

import os
import pathlib
import re
import subprocess
import sys

from tests.docs import pages


def test_what_is_copied_is_there_and_not_ignored():
    ignored, *let_in = [
        line
        for line in pages.text(".dockerignore").splitlines()
        if line and not line.startswith(("#", "**"))
    ]
    assert ignored == "*"
    copied = [
        source
        for line in re.findall(r"^COPY (.+)$", pages.text("Dockerfile"), re.M)
        for source in line.split()[:-1]
    ]
    assert sorted(f"!{source}" for source in copied) == sorted(let_in)
    assert all((pages.ROOT / source).exists() for source in copied)


def test_the_program_does_not_run_as_root():
    text = pages.text("Dockerfile")
    (user,) = re.findall(r"^USER (\w+)$", text, re.M)
    assert f"useradd --create-home {user}" in text
    assert text.index("\nUSER ") < text.index("\nCMD ")


def test_a_tensorflow_that_is_there_stays(tmp_path):
    recorder = tmp_path / "pip"
    recorder.write_text(
        '#!/bin/sh\necho "pip $*"\n[ "$2" = -r ] && cat "$3"\nexit 0\n'
    )
    recorder.chmod(0o755)
    interpreter = pathlib.Path(sys.executable).parent
    done = subprocess.run(
        ["bash", pages.ROOT / "packaging/install_in_image.sh", pages.ROOT],
        env=dict(os.environ, PATH=f"{tmp_path}:{interpreter}:/usr/bin:/bin"),
        capture_output=True,
        text=True,
        check=True,
    )
    first, *required, last = done.stdout.splitlines()
    assert first.startswith("pip install -r ")
    names = {re.split(r"[>=]", line)[0] for line in required}
    assert {"keras", "absl-py", "rich", "cloudpickle", "polars"} <= names
    assert not any("tensorflow" in line for line in required)
    assert last == f"pip install --no-deps {pages.ROOT}"
