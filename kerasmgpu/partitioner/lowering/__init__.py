"""Writes planned programs as functions for the replicas.

Writing:
  writing.py           nodes as a `FunctionDef`
  signatures.py        attributes that follow from an operation's inputs
  operation_writer.py  operations at places
  function_writer.py   a function's values, sizes and order
  host_sizes.py        sizes, computed on the host when the function runs
  building.py          a function with the communication of its replicas
  emission.py          instruction by instruction
  operations.py        operations that rules name
  regions.py           loops and branches
  outlined.py          functions that each replica calls
  call_options.py      options with which TensorFlow runs functions
  micro_batches.py     communication of a device's micro-batches
  device_shares.py     rows of each micro-batch of a device
  windows.py           operations on windows along a divided axis
  entries.py           sparse inputs: the entries of each replica's rows
  empty_shares.py      kernels that fail for a share without rows
  compute_time.py      a worker's compute time, without its waits

Communication:
  replicas.py         in shared memory
  cross_device.py     by an all-reduce of the user's choice
  collectives.py      between devices and workers:
  packing.py          what is sent as one vector, and padded
  communicators.py    all-reduce, all-gather and all-to-all of it
  exchanges.py        rows of tables: to their owners, and back
  halos.py            rows of images: from their neighbours
  lines.py            along one axis of a mesh

Passes on written nodes:
  all_passes.py        the list of all passes
  turns.py             order of micro-batches and collectives
  update_together.py   all replicas make a step's assignments, or none does

For XLA:
  xla_clusters.py      which nodes XLA compiles together
  xla_blocks.py        cuts them where they repeat
  xla_functions.py     outlines them as functions: the last pass
  xla_replacements.py  operations that TensorFlow translates faster
  xla_first_run.py     one device compiles, and the others load
  once.py              which nodes run once for all replicas
  content_names.py     names functions by their content
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
