"""Writes planned programs as functions for the replicas.

writing.py           nodes as a `FunctionDef`
signatures.py        attributes that follow from an operation's inputs
operation_writer.py  operations at places
function_writer.py   a function's values, sizes and order
host_sizes.py        sizes, computed on the host when the function runs
building.py          a function with the communication of its replicas
emission.py          instruction by instruction; `operations.py` has those
                     that rules name, `regions.py` loops and branches
replicas.py          communication in shared memory; `collectives.py` and
                     `cross_device.py` between devices and workers
all_passes.py        the list of passes; those on nodes are in `turns.py`,
                     `cluster_for_xla.py` and `compilation.py`
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
