"""Runs everything of a long run once: fit, evaluate, save, load, resume.

    kerasmgpu check my_module:build

runs the user's compiled model on one device and on all, in processes of its
own, and says how long each stage took and which failed. The files, from the
inside out:

* `stage_record`: the file of stages, which a process writes and its parent
  reads;
* `stages`: what a process does; `child`: that process;
* `checking`: the function `check`, which starts the processes;
* `check_report`: the table;
* `__main__`: the command.

The module is callable, as `kerasmgpu.verify` is: `kerasmgpu.check(build)` calls
the function `checking.check`.
"""

from kerasmgpu import _import_on_use
from kerasmgpu.check.checking import check

_import_on_use(__name__, call=check)

__all__ = ["check"]
