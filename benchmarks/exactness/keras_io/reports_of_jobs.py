"""Programs after public reports: jobs of several processes."""

from benchmarks.exactness.registry import report


@report("tensorflow/tensorflow", 33531)
def accuracy_of_finite_data(run):
    """Reported: the end of the data is an error as soon as there is a metric."""
    run.job(
        """
x = np.random.default_rng(0).normal(size=(26, 5))
y = np.arange(26) % 3
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(6)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.DATA
)
data = data.with_options(options)
with strategy.scope():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
history = model.fit(data, epochs=2, verbose=0).history
weights = [w.tolist() for w in model.get_weights()]
print("result", json.dumps([history["accuracy"], *weights]), flush=True)
"""
    )


@report("tensorflow/tensorflow", 31252)
def callbacks_that_write_in_every_worker(run):
    """Reported: checkpoints and logs can't be written in a job."""
    run.job(
        """
x = np.random.default_rng(0).normal(size=(24, 5))
y = x[:, :1]
with strategy.scope():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=False)
callbacks = [
    keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
    keras.callbacks.BackupAndRestore("backup"),
    keras.callbacks.CSVLogger("log.csv"),
]
history = model.fit(
    x, y, batch_size=6, epochs=2, verbose=0, shuffle=False,
    validation_data=(x, y), callbacks=callbacks,
).history
best = keras.models.load_model("best.keras").get_weights()
print("result", json.dumps([history["val_loss"], *[w.tolist() for w in best]]))
"""
    )


@report("tensorflow/models", 10849)
def validation_of_fewer_rows_than_workers(run):
    """Reported: a job fails in its first evaluation."""
    run.job(
        """
x = np.random.default_rng(0).normal(size=(25, 5))
y = x[:, :1]
with strategy.scope():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
data = tf.data.Dataset.from_tensor_slices((x, y))
history = model.fit(
    data.batch(6), epochs=2, verbose=0, validation_data=data.take(7).batch(6)
).history
print("result", json.dumps([history["val_loss"], history["val_mae"]]))
"""
    )
