"""Random programs have the same results on replicas as on one device.

The seed is fixed; `python -m tests.partitioner` runs many more programs.
"""

import hypothesis
import pytest

from tests.partitioner.checking import Difference, Discarded
from tests.partitioner.programs import programs
from tests.partitioner.search import SETTINGS, check_program


@hypothesis.settings(SETTINGS, derandomize=True, max_examples=20)
@hypothesis.given(programs())
def test_replicas_do_what_one_device_does(program):
    compare(program)


@pytest.mark.nightly
@hypothesis.settings(SETTINGS, derandomize=True, max_examples=60)
@hypothesis.given(programs())
def test_many_more_programs(program):
    compare(program)


def compare(program):
    try:
        check_program(program)
    except Discarded:
        hypothesis.reject()
    except Difference as difference:
        raise Difference(f"{difference}\n\n{program.script()}") from difference
