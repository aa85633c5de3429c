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

import sys
import types

from kerasmgpu import _import_on_use
from kerasmgpu.check.checking import check

_import_on_use(__name__)

__all__ = ["check"]


class _CallableModule(types.ModuleType):
    """A module that can be called, as its function `check`."""

    __call__ = staticmethod(check)


sys.modules[__name__].__class__ = _CallableModule
