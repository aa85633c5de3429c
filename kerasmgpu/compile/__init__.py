"""Fills a folder with compiled programs ahead of a job.

    python -m kerasmgpu.compile my_module:build --replicas=4 --output=compiled

builds the user's model under a strategy, runs each step once on the first batch,
and keeps what XLA compiles. The files, from the inside out:

* `one_step`: runs each step of the model once, in a strategy's process;
* `child`: the process, or job, of one number of replicas;
* `filling`: starts it for each number, and says what is in the folder;
* `__main__`: the command.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
