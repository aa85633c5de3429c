"""Counts the floating-point operations of a training step.

They are counted on the graph of the step as one device would run it, gradients
included, without running it:

* `operations`: operations of one node;
* `recomputation`: nodes that compute again what the forward pass computed;
* `counting`: the nodes of a step, its loops and branches;
* `step_flops`: the result: by rows of a batch, data type and layer.

A multiply-add counts as two operations. Elementwise operations, reductions,
pooling, normalisation and optimizer updates are not counted, as in PaLM's
definition of model FLOPs (Chowdhery et al. 2022, appendix B).
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
