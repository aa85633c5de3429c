"""Benchmarks against alternatives.

    python -m benchmarks --workloads=deep_narrow --replica_counts=1,2

trains the same models on the same batches with plain Keras on one device, with
`tf.distribute.MirroredStrategy`, with kerasmgpu and, if installed, with Keras on
JAX and with PyTorch. Contenders take turns, each in a separate process. From
the inside out:

* `workloads`: the models and their data, for any Keras backend;
* `torch_models`: the same models for PyTorch;
* `contenders`: the contenders and their required packages;
* `figures`, `meter`: statistics of runs; time and memory of a process;
* `training`, `child`: one run, in its process;
* `torch_training`: the same for PyTorch, in a process per replica;
* `machine`: description of hardware and versions;
* `runs`: the schedule of all runs;
* `tables`: the table and the plot;
* `__main__`: the command.
"""
