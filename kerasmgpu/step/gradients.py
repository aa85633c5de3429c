"""Gradients are summed over the replicas once, then every copy is updated alike.

Gradients on a replica are those of a mean over its rows (`collectives`), so
they are weighted by its share of the rows before they are summed, here or in
`optimizer.scale_loss`.

Keras clips, checks for overflow and accumulates what a single replica
computed and reduces afterwards. Here the sum comes first, packed into one
collective, so that everything non-linear sees the gradient of the global
batch; then the unmodified optimizer runs once per replica on that replica's
copies of the variables. All copies get the same numbers, so they can't drift.
"""

import tensorflow as tf
from absl import logging

from kerasmgpu.errors import InputError
from kerasmgpu.step.packing import Packing
from kerasmgpu.step.replica import updating


def reduce_and_apply(apply, optimizer, gradients, variables, replica):
    """Sums the gradients over the replicas and applies them on each.

    Args:
        apply: Keras's own `apply(optimizer, gradients, variables)`.
        optimizer: The `keras.optimizers.Optimizer` to step.
        gradients: Gradients of this replica (`None`, dense or
            `tf.IndexedSlices`), one per variable.
        variables: Keras variables of the model, or `None` if the optimizer
            was built.
        replica: The current `Replica`.
    """
    if replica.own_time is not None:
        replica.own_time.end_step(replica.started, gradients)
    if not replica.has_keras_loss:
        _announce_own_loss(optimizer)
    weight = tf.cast(replica.rows > 0, tf.float64)
    if id(optimizer) not in replica.weighted_optimizers:
        weight = share_of_rows(replica, "float64")
    variables = None if variables is None else list(variables)
    places = [i for i, gradient in enumerate(gradients) if gradient is not None]
    present = [gradients[i] for i in places]
    packing = Packing(present)
    packs = [_weigh(pack, weight) for pack in packing.pack(present)]
    replica.reduced_bytes += packing.num_bytes()

    def across_replicas(strategy, *per_replica_packs):
        _require_scope(strategy, optimizer)
        if variables is not None and not optimizer.built:
            with tf.init_scope():
                optimizer.build(variables)
        if not present:
            apply(optimizer, gradients, variables)
            return
        # The optimizer's first variable counts its steps: it has a copy on
        # every replica's device, which is all that is asked of it here.
        destinations = optimizer.variables[0].value
        summed = [None] * len(packs)
        for together in packing.reductions():
            results = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM,
                [(per_replica_packs[i], destinations) for i in together],
            )
            for i, result in zip(together, results):
                summed[i] = result

        def update_one_replica(_, *sums):
            complete = list(gradients)
            parts = packing.unpack(sums)
            for place, gradient in zip(places, parts):
                complete[place] = gradient

            def squares():
                return zip(parts, packing.squares(sums))

            # What needs no gradient (the count of steps) waits for the batch
            # too: a data set that ends must not leave half a step behind.
            waiting = tf.control_dependencies([replica.global_rows])
            with updating(squares), waiting:
                apply(optimizer, complete, variables)

        strategy.extended.update(
            destinations, update_one_replica, args=tuple(summed), group=False
        )

    tf.distribute.get_replica_context().merge_call(
        across_replicas, args=tuple(packs)
    )


def _announce_own_loss(optimizer):
    """Says once what is made of a loss that Keras knows nothing of."""
    logging.log_first_n(
        logging.WARNING,
        "kerasmgpu: optimizer %r gets gradients of a loss that `train_step` "
        "computes by hand. It is taken for a mean over the rows that the step "
        "is given, and gradients are weighted by rows. If the step divides by "
        "the global batch size or the number of replicas, remove that line; "
        "`self.compute_loss` and `keras.losses` need no such care.",
        1,
        optimizer.name,
    )


def share_of_rows(replica, dtype):
    """Rows of this replica over those of the global batch."""
    return tf.math.divide_no_nan(
        tf.cast(replica.rows, dtype), tf.cast(replica.global_rows, dtype)
    )


def _weigh(gradient, weight):
    """A gradient times a weight; zeros where the weight is 0.

    An empty share's weight is 0, and what it computed may be 0/0.
    """
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            _weigh(gradient.values, weight),
            gradient.indices,
            gradient.dense_shape,
        )
    return tf.math.multiply_no_nan(gradient, tf.cast(weight, gradient.dtype))


def _require_scope(strategy, optimizer):
    """Raises where the optimizer's state is not on the strategy's devices."""
    counter = optimizer.variables[0].value
    if getattr(counter, "distribute_strategy", None) is not strategy:
        raise InputError(
            f"The optimizer {optimizer.name!r} was made outside "
            "`strategy.scope()`, so its state exists once instead of once per "
            "replica. Move the line that creates it (or `model.compile`) into "
            "`with strategy.scope():`."
        )
