"""Proves without a GPU that a model trains on several, and rightly.

    python -m kerasmgpu.prove my_module:build --replicas=8 --gpu=H100-SXM

writes the very step that GPUs would get, and checks on it what can be known
before it runs. The files, from the inside out:

* `called_functions`: the functions that a written step runs;
* `placement`: whether each operation has a kernel of GPUs, and what is copied
  between the host and a GPU;
* `order`: whether no collective waits for ever;
* `proving`: the child process that checks them;
* `proof`: the function `prove`, which also trains that step on logical CPUs;
* `proof_report`: the page;
* `__main__`: the command.

The module is callable: `kerasmgpu.prove(build)` calls `proof.prove`.
"""

from kerasmgpu import _import_on_use
from kerasmgpu.prove.proof import prove

_import_on_use(__name__, call=prove)

__all__ = ["prove"]
