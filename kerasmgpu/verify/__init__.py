"""Checks that a model trains the same on N replicas as on one device.

    python -m kerasmgpu.verify my_module:build

trains the user's compiled model for a few steps on one device, with stock
Keras, and on N logical CPU devices, with `kerasmgpu.MirroredStrategy`, each in
a separate process. It prints the differences, the first step and layer to
differ, and the likely cause. No GPU is needed. The files, from the inside out:

* `comparison`: distances between two runs, in plain NumPy;
* `rounding`: whether a difference is rounding;
* `causes`: likely causes of a difference, as sentences;
* `outcome`: a run's result, with its files of arrays;
* `recording`, `float64_functions`, `float_types`, `nudges`, `layer_outputs`,
  `training`, `child`: one run, in its process;
* `runs`: starts runs;
* `judging`: the verdict on a comparison;
* `all_runs`: makes the runs one after the other and compares them;
* `verification`: the function `verify`;
* `parity_report`: the tables;
* `__main__`: the command.

The module is callable: `kerasmgpu.verify(build, data)` calls the function
`verification.verify`. (Importing the subpackage `kerasmgpu.verify`, which
`python -m` needs, would replace a function of this name in `kerasmgpu`.)
"""

from kerasmgpu import _import_on_use
from kerasmgpu.verify.verification import verify

_import_on_use(__name__, call=verify)

__all__ = ["verify"]
