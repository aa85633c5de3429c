"""Examines a machine: what fits together, what works, and how fast.

    kerasmgpu doctor
    kerasmgpu doctor --train --data_dir=/data --output=doctor.txt

Facts are gathered by one kind of file and judged by another, whose pure
functions of facts return findings. The files, from the inside out:

* `findings`: a finding, and text without names of people and machines;
* `gpu_facts`: the GPUs and their links, as the driver tells them;
* `host_facts`: CPUs, memory, limits, environment and the data folder;
* `tensorflow_facts`: versions, devices, libraries and XLA, in a child process;
* `collective_times`: times collectives over the devices, in a child process;
* `version_checks`, `gpu_checks`, `host_checks`, `collective_checks`: the
  judgements;
* `trial_models`, `trial`, `job_trial`: small models of `--train`, and the child
  processes that train them;
* `trial_checks`: starts these and judges them;
* `examination`: all of it in order;
* `doctor_report`: the table, the text to paste, and JSON;
* `__main__`: the command.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
