"""Programs that fail, hang or end their process are rows of a table."""

import functools
import os
import time

import pytest

from benchmarks.exactness import processes


@pytest.mark.slow
def test_processes_that_end_or_hang_are_rows():
    def measure(name, variant):
        if variant == "b":
            if name == "ends":
                os._exit(3)
            if name == "hangs":
                time.sleep(600)
            if name == "fails":
                raise ValueError("no")
        return {"distance": 0.0}

    told = {}
    processes.run_all(
        functools.partial(
            processes.records, lambda name: functools.partial(measure, name)
        ),
        {name: list("abc") for name in ("ends", "hangs", "fails", "works")},
        jobs=2,
        timeout_seconds=3.0,
        tell=lambda name, variant, result: told.update(
            {name + variant: result}
        ),
    )
    assert told.pop("endsb") == {"error": "Ended with status 3"}
    assert told.pop("hangsb") == {"error": "Timed out"}
    assert told.pop("failsb") == {"error": "ValueError", "notes": ["no"]}
    assert len(told) == 9
    assert all(result == {"distance": 0.0} for result in told.values())
