"""Patches and extensions of TensorFlow's strategies, independent of Keras.

    exact_strategy.py        the interface of our strategies, and `is_ours`
    extended.py              their engines (`StrategyExtended`)
    devices.py               chooses the replicas' devices
    given_gpus.py            checks that a worker sees the launcher's GPUs
    context.py               state of TensorFlow's process-wide context and logger
    joint_calls.py           counts the calls that all workers make together

    fit_clock.py             adds up what the time of a `fit` goes to
    feeds.py                 how a data set's batches reach the steps
    pipelines.py             files and stateful parts of a `tf.data` pipeline
    first_worker_reads.py    reads of the first worker, in which others join
    device_iterators.py      makes iterators of devices one at a time
    freed_iterators.py       frees iterators in a background thread
    exit_waits.py            what takes long at the exit of the process

    seams.py                 registers and installs patches
    xla_cache.py             keeps what XLA compiles for the next start
    xla_process.py           TensorFlow's folder of programs in this process
    xla_machine.py           the first worker of a machine compiles for the others
    xla_files.py             the user's folder of programs, kept between starts
    xla_versions.py          what compiled programs depend on
    xla_filled_folders.py    folders that `kerasmgpu compile` has filled
    compiled_graphs.py       which graphs XLA compiles
    graph_resets.py          keeps scopes when the default graph is reset
    generators.py            `tf.random.Generator` in a step
    variable_copies.py       creates copies of a variable
    distributed_variables.py a copy per replica: as numbers, sliced, as sums
    loaded_functions.py      functions of a SavedModel, outside of replicas
    entered.py               the strategy that `set_distribution` enters
    tapes.py                 gradient tapes outside of replicas
    private_names.py         private names of TensorFlow

It imports the partitioner and nothing of Keras.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)

TENSORFLOW_RANGE = ((2, 18), (2, 21))
"""First and last minor version of TensorFlow on which this was checked."""
