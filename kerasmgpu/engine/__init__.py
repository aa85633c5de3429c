"""What concerns TensorFlow's strategy engine alone; nothing of Keras.

extended.py            the engines (`StrategyExtended`) of our strategies
devices.py             chooses the replicas' devices
context.py             state of TensorFlow's process-wide context
seams.py               registers and installs patches
generators.py          `tf.random.Generator` in a step
scalars.py             distributed variables as numbers and arrays
slices.py              sliced assignment to distributed variables
summed_variables.py    assignment to sums over the replicas
tapes.py               gradient tapes outside of replicas
pipelines.py           stateful parts of a `tf.data` pipeline
files.py               files that a data set reads
freed_iterators.py     frees iterators in a background thread
optionals.py           empty optionals in batches
log_filter.py          drops TensorFlow's log line per collective
private_names.py       all private names of TensorFlow used outside of
                       the partitioner
"""

TENSORFLOW_RANGE = ((2, 18), (2, 21))
"""First and last minor version of TensorFlow on which this was checked."""
