"""The exit waits for threads behind the handler in which a worker leaves."""

import subprocess
import sys

from kerasmgpu.engine import exit_waits

AT_EXIT = """
import atexit, sys, time, types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
from kerasmgpu.engine import exit_waits

exit_waits.install()
atexit.register(print, "left")
from kerasmgpu.engine import freed_iterators

class Slow:
    def __del__(self):
        time.sleep(0.3)
        print("freed")

freed_iterators._start([Slow()])
exit_waits.add(lambda: print("last"))
print("ended")
"""


def test_a_worker_tells_its_end_before_the_exit_waits():
    """Its watch leaves in an exit handler; see `job/membership.py`."""
    command = [sys.executable, "-c", AT_EXIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["ended", "left", "last", "freed"], (
        done.stderr
    )


def test_what_ended_is_not_waited_for(monkeypatch):
    called = []
    monkeypatch.setattr(exit_waits, "_waits", [])
    for name in "abc":
        exit_waits.add(lambda name=name: called.append(name))
    removed = exit_waits._waits[1]
    exit_waits.remove(removed)
    exit_waits.remove(removed)
    exit_waits._run()
    assert called == ["c", "a"]
