"""Starts and supervises the workers of a job, on one machine or several.

`python -m kerasmgpu.launch` is the command (`__main__.py`, `dry_run.py`), and
`notebook.py` its counterpart for functions (`function_call.py`); both validate
their settings first (`settings.py`). One launcher runs per machine (`launcher.py`).
That of rank 0 controls the job: `job_state.py` is its state machine,
`controller.py` its sockets, `verdict.py` determines the result. Every launcher
executes its commands (`member.py`), assigns GPUs (`gpus.py`), shows the workers'
output (`output.py`) without noise (`noise.py`), and runs the machine's workers
(`processes.py`): each under a guard process (`guard.py`) that kills the worker
if the launcher dies, and on request with a network of its own (`isolation.py`).
TensorFlow is never imported.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
