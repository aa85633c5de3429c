"""Starts the workers of a job, on this machine and others, and stays by them.

`python -m kerasmgpu.launch` is the command; see `kerasmgpu/launch/__main__.py`.
`notebook.py` is its counterpart for functions (`function_call.py`).
One launcher runs per machine. The one of rank 0 decides (`job.py`, pure; its
sockets are in `controller.py`), every launcher obeys (`member.py`) and runs
its workers (`workers.py`), each under a guard (`guard.py`) that outlives the
launcher just long enough to leave no orphan. TensorFlow is never imported.
"""
