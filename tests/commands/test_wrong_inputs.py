"""Whatever is wrong, a command ends with one clear line, and soon."""

import json
import re
import subprocess
import sys

import pytest

from kerasmgpu.commands.command_line import LOADING
from tests.commands import wrong_inputs

# Lines that are no error: "I1122 07:01:15.892721 … Parsed …", what waits, and
# that the tests' machine has no GPU.
_LOG = re.compile(rf"I\d{{4}} |W\d{{4}} .* no GPU is visible|.*{LOADING}$")


@pytest.mark.nightly
def test_each_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "tests.commands.wrong_inputs", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0
    results = json.loads(done.stdout)
    assert len(results) == len(wrong_inputs.CASES) > 100
    faults = {}
    for case, result in zip(wrong_inputs.CASES, results):
        if wrong := _faults(case, result):
            faults[case.arguments] = (wrong, result)
    assert faults == {}


def _faults(case, result):
    """What is wrong with how a command ended, a list of strings."""
    lines = result["stderr"].splitlines()
    lines = [line for line in lines if not _LOG.match(line)]
    line = lines[0] if lines else ""
    wrong = {
        "its status": result["status"] not in (1, 2),
        "the number of lines": len(lines) != 1,
        "its first word": not line.startswith("error: "),
        "what it says": case.message not in line,
        "what can't be printed": not line.isprintable(),
        "a traceback": "Traceback" in result["stdout"],
        # Seconds pass until TensorFlow is imported: it is told before.
        "the import of TensorFlow": result["tensorflow"] != case.tensorflow,
    }
    return [name for name, is_so in wrong.items() if is_so]
