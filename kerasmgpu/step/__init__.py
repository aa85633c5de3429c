"""The exact step: what N replicas must do to train the model of one device.

Keras's own `train_step`, `test_step` and `predict_step` run once per replica,
each on its share of the global batch. The modules here supply the pieces in
which the shares must meet, one idea per file:

* `replica`: what a replica knows of itself and of the global batch;
* `split`: a global batch becomes shares whose sizes differ by at most one;
* `collectives`: sums and gathers over the replicas;
* `loss`: a loss has the value of the global batch on every replica, and its
  gradient is the replica's own part;
* `gradients`: summed once, then the same update on every replica;
* `state`: variables that layers assign themselves stay the same everywhere;
* `normalization`: moments of the global batch;
* `randomness`: every row draws what it would draw on one device;
* `metrics`: results of the global batch, read where they are needed;
* `compilation`, `empty_shares`, `row_degree`: XLA per replica, kernels of no
  rows, and telling a sum over rows from a mean.

`kerasmgpu/_keras/` connects these pieces to Keras; nothing here reaches
into Keras by itself.
"""
