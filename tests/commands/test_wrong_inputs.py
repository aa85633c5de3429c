"""Whatever is wrong, a command ends with one clear line, and soon."""

import json
import re
import subprocess
import sys

import pytest

from tests.commands import wrong_inputs

# A line of the log, which is no error: "I1122 07:01:15.892721 … Parsed …".
_LOG = re.compile(r"I\d{4} ")


@pytest.fixture(scope="module")
def results():
    """What each case printed, and how it ended."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.commands.wrong_inputs", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "number",
    range(len(wrong_inputs.CASES)),
    ids=[ascii(case.arguments) for case in wrong_inputs.CASES],
)
def test_it_is_one_line(results, number):
    case, result = wrong_inputs.CASES[number], results[number]
    assert result["status"] in (1, 2), result
    lines = result["stderr"].splitlines()
    (line,) = [line for line in lines if not _LOG.match(line)]
    assert line.startswith("error: ")
    assert case.message in line
    assert line.isprintable()
    assert "Traceback" not in result["stdout"]
    # Seconds pass until TensorFlow is imported: what is wrong is told before.
    assert result["tensorflow"] == case.tensorflow
