"""The dump on the page is the one that its program writes."""

import re

from kerasmgpu.partitioner.passes import dump
from tests.docs import pages

PAGE = (pages.ROOT / "docs" / "lowering.md").read_text("utf-8")


def test_the_dump_is_that_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv(dump.VARIABLE, str(tmp_path))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown, *_ = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    code = code.replace("virtual_devices=2", 'devices=["CPU:0", "CPU:1"]')
    exec(compile(code, "docs/lowering.md", "exec"), {})
    (folder,) = tmp_path.iterdir()
    files = sorted(folder.iterdir())
    written = (folder / "11_guard_empty_shares.txt").read_text("utf-8")
    assert numbered(written) == numbered(shown)
    for file in files:
        assert f"`{file.name}`" in PAGE


def numbered(text):
    """Names of captured handles are numbers that each run counts anew."""
    return re.sub(r"\b\d+:0 R", "handle:0 R", text)
