"""Cases of `shared_program`: variables that are sharded over workers.

A case is a run of the parity table, `weights: CASE`, `optimizer: CASE`, `weights
grouped: CASE` for parts in each worker, `optimizer offloaded: CASE`, or `mesh RxC:
CASE` for rows and columns of a mesh, each with `in 2` for two micro-batches;
`files`; or `int8 base`.
"""

import time

import kerasmgpu

READ_TIMEOUT_SECONDS = 3


def run(strategy, name, files):
    """`harness.Outcome` of a run, or what `files` returns."""
    if name == "files":
        return save_and_read(strategy, files)
    if name == "int8 base":
        made = strategy(shard="weights", min_shard_bytes=0)
        return tuned(made.scope)
    from tests.workers import parity_program

    setting, _, name = name.partition(": ")
    if setting.startswith("mesh"):
        from tests.parity.meshes import both_divided

        shape = tuple(map(int, setting.split()[1].split("x")))
        parts = 2 if setting.endswith("in 2") else 1
        made = strategy(distribution=both_divided(shape), micro_batches=parts)
        return parity_program.run(lambda: made, name, files)
    shard, *others = setting.split()
    strategy = strategy(
        shard=shard,
        min_shard_bytes=0,
        shard_over="worker" if "grouped" in others else None,
        offload="optimizer" if "offloaded" in others else None,
        micro_batches=2 if setting.endswith("in 2") else 1,
    )
    return parity_program.run(lambda: strategy, name, files)


def tuned(scope):
    """Trains adapters of an int8 base, and calls it in a `tf.function`.

    Returns its weights and results, and the errors of what can't be.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    dense = keras.layers.Dense
    with scope():
        inputs = keras.Input((5,), dtype="float64")
        first = dense(5, dtype="float64")(inputs)
        wide = dense(9, "gelu", dtype="float64")(first)
        model = keras.Model(inputs, dense(5, dtype="float64")(wide))
    *_, base, last = model.layers
    base.quantize("int8")  # Outside of the scope.
    base.enable_lora(2)
    with scope():
        model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.default_rng(0).normal(size=(13, 5))
    model.fit(x, x[:, ::-1], batch_size=5, epochs=2, shuffle=False, verbose=0)

    @tf.function
    def twice(x):
        return tf.while_loop(
            lambda i, x: i < 2, lambda i, x: (i + 1, model(x)), (0, x)
        )[1]

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(twice(x) ** 2)
        return tape.gradient(loss, last.kernel.value)

    results = [*model.get_weights(), twice(x), gradient(x)]
    last.kernel.assign(2 * last.kernel)
    results.append(twice(x))
    errors = []
    for wrong in (
        lambda: tf.function(lambda: last.kernel.value.assign_add(x[:9]))(),
        lambda: tf.data.Dataset.from_tensors(x).map(model),
    ):
        try:
            wrong()
        except kerasmgpu.InputError as error:
            errors.append(str(error))
    dtypes = [weight.dtype for weight in model.weights]
    return dtypes, [np.asarray(one) for one in results], errors


def save_and_read(strategy, folder):
    """Saves a model, and reads a variable alone.

    Returns a dictionary, with the error of reading a variable on the first
    worker alone as `"message"`.
    """
    import keras
    import numpy as np

    def shard(variable):
        return True

    strategy = strategy(shard=shard, min_shard_bytes=0)
    index = strategy.cluster_resolver.task_id
    outcomes = {}
    saves = outcomes["saves"] = []

    class Backwards(keras.layers.Dense):
        """Reads its variables in an order of its own when it is saved."""

        def save_own_variables(self, store):
            saves.append([v.numpy().shape for v in reversed(self.weights)])
            super().save_own_variables(store)

    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), Backwards(7)])
        model.compile("sgd", "mse")
    outcomes["weights"] = model.get_weights()
    outcomes["part"] = model.weights[0].value.parts[0].numpy()
    with strategy.scope():  # Keras makes one more optimizer.
        model.save(folder / "model.keras")
    model.save_weights(folder / "all.weights.json", max_shard_size=1)
    keras.saving.save_model(model, folder / f"of_{index}.keras")
    keras.saving.save_model(model, folder / f"of_{index}.h5")
    keras.saving.save_weights(model, folder / f"of_{index}.weights.h5")
    try:
        model.save_weights(folder / "nowhere" / "all.weights.h5")
    except FileNotFoundError:
        outcomes["failed"] = True
    model.set_weights([np.ones([5, 7]), np.zeros(7)])
    model.load_weights(folder / "model.keras")
    outcomes["loaded weights"] = model.get_weights()
    strategy.extended.read_timeout_seconds = READ_TIMEOUT_SECONDS
    if index == 0:
        start = time.monotonic()
        try:
            model.weights[0].numpy()
        except kerasmgpu.InputError as error:
            outcomes["message"] = str(error)
        outcomes["seconds"] = time.monotonic() - start
        (folder / "read alone").touch()
    while not (folder / "read alone").exists():
        time.sleep(0.05)
    strategy.extended.read_timeout_seconds = 60
    outcomes["read again"] = model.weights[0].numpy()  # By both: it works.
    return outcomes
