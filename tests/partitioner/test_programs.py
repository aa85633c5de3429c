"""Random programs do the same on replicas as on one device.

Always the same programs; `python -m tests.partitioner` runs many others.
"""

import hypothesis

from tests.partitioner.checking import Difference, Discarded
from tests.partitioner.programs import programs
from tests.partitioner.search import SETTINGS, check_program

NUM_PROGRAMS = 150


@hypothesis.settings(SETTINGS, derandomize=True, max_examples=NUM_PROGRAMS)
@hypothesis.given(programs())
def test_replicas_do_what_one_device_does(program):
    try:
        check_program(program)
    except Discarded:
        hypothesis.reject()
    except Difference as difference:
        raise Difference(f"{difference}\n\n{program.script()}") from difference
