"""Examines a machine: what fits together, what works, and how fast.

    kerasmgpu doctor
    kerasmgpu doctor --train --data_dir=/data --output=doctor.txt

A check's file gathers facts, or is the child process that does, and judges them:
pure functions of facts return findings. The files, from the inside out:

* `findings`: a finding, and the catalogue of those that aren't good;
* `host_checks`: CPUs, memory, limits, environment and the data folder;
* `card_checks`: each GPU, its links, and those of a machine together;
* `gpu_checks`: the GPUs that the driver and that TensorFlow see;
* `tensorflow_checks`: versions, devices, libraries and XLA;
* `collective_checks`: times of collectives over the devices;
* `trials`, `trial`: small models of `--train`, and the child processes that
  train them;
* `examination`: all of it in order;
* `doctor_report`: the table, the text to paste, and JSON;
* `__main__`: the command.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
