"""How fast is it, beside what else there is?

    python -m benchmarks --workloads=deep_narrow --replica_counts=1,2

trains the same models on the same batches with plain Keras on one device, with
`tf.distribute.MirroredStrategy`, with kerasmgpu and, where they are installed,
with Keras on JAX and with PyTorch, in turns, each in a process of its own. From
the inside out:

* `workloads`: the models and their data, for any Keras backend;
* `torch_models`: the same models for PyTorch;
* `contenders`: who takes part, and what each needs to be installed;
* `figures`, `meter`: arithmetic of one run, and of many; what a process uses;
* `training`, `child`: one run, in its process;
* `torch_training`: the same for PyTorch, in a process per replica;
* `machine`: what it was measured on;
* `runs`: the rounds;
* `tables`: the table and the plot;
* `__main__`: the command.
"""
