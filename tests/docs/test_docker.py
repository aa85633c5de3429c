"""What can be said of the Dockerfile without Docker."""

import re

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
