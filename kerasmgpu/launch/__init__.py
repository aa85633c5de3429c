"""Starts and supervises the workers of a job, on one machine or several.

`python -m kerasmgpu.launch` is the command; see `kerasmgpu/launch/__main__.py`.
`notebook.py` is its counterpart for functions (`function_call.py`).
One launcher runs per machine. The launcher of rank 0 controls the job (`job_state.py`
is its state machine, `controller.py` its sockets). Every launcher executes its
commands (`member.py`) and runs the machine's workers (`processes.py`), each under
a guard process (`guard.py`) that kills the worker if the launcher dies.
TensorFlow is never imported.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
