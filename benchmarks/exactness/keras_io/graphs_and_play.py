"""Programs after keras.io's examples of graphs and reinforcement learning."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import integers, reals
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


@example("examples/graph/gat_node_classification")
def graph_attention(run):
    """The whole graph is an input; the batch has the numbers of its nodes."""
    nodes = 12
    states = reals(nodes, 5)
    edges = np.stack([integers(nodes, 40), integers(nodes, 40, seed=1)], axis=1)

    class Attention(layers.Layer):
        def __init__(self, units):
            super().__init__()
            self.units = units

        def build(self, _):
            self.kernel = self.add_weight(shape=(5, self.units))
            self.heed = self.add_weight(shape=(2 * self.units, 1))

        def call(self, states, edges):
            moved = ops.matmul(states, self.kernel)
            pairs = ops.reshape(
                ops.take(moved, edges, axis=0), (edges.shape[0], -1)
            )
            scores = ops.leaky_relu(ops.matmul(pairs, self.heed))[:, 0]
            scores = ops.exp(ops.clip(scores, -2.0, 2.0))
            sums = tf.math.unsorted_segment_sum(scores, edges[:, 0], nodes)
            scores = scores / ops.take(sums, edges[:, 0])
            given = ops.take(moved, edges[:, 1], axis=0) * scores[:, None]
            return tf.math.unsorted_segment_sum(given, edges[:, 0], nodes)

    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.before = layers.Dense(5, activation="relu")
            self.attention, self.out = Attention(5), layers.Dense(3)

        def call(self, _):
            x = self.before(states)
            return self.out(self.attention(x, edges) + x)

        def train_step(self, data):
            indices, labels = data
            with tf.GradientTape() as tape:
                scores = ops.take(self(None), indices, axis=0)
                loss = self.compute_loss(None, labels, scores)
            variables = self.trainable_weights
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(labels, scores)
            return {m.name: m.result() for m in self.metrics}

    indices = integers(nodes, ROWS)
    with run.scope():
        model = Network()
        model.compile(
            keras.optimizers.SGD(0.3, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
        )
    run.fit(model, indices, integers(3, ROWS, seed=2))


@example("examples/graph/mpnn-molecular-graphs")
def message_passing(run):
    """Atoms of a molecule send messages along bonds; a GRU keeps them."""

    class Message(layers.Layer):
        def __init__(self):
            super().__init__()
            self.cell = layers.GRUCell(4)

        def build(self, shapes):
            self.kernel = self.add_weight(shape=(2, 16))
            self.cell.build((None, 4))

        def call(self, inputs):
            atoms, bonds, pairs = inputs
            matrices = ops.reshape(
                ops.matmul(bonds, self.kernel), (-1, 9, 4, 4)
            )
            for _ in range(2):
                sent = tf.gather(atoms, pairs[:, :, 1], batch_dims=1)
                sent = ops.einsum("beij,bej->bei", matrices, sent)
                where = ops.one_hot(pairs[:, :, 0], 5, dtype=sent.dtype)
                heard = ops.einsum("ben,bei->bni", where, sent)
                made, _ = self.cell(
                    ops.reshape(heard, (-1, 4)), [ops.reshape(atoms, (-1, 4))]
                )
                atoms = ops.reshape(made, (-1, 5, 4))
            return atoms

    with run.scope():
        atoms, bonds = keras.Input((5, 4)), keras.Input((9, 2))
        pairs = keras.Input((9, 2), dtype="int32")
        x = Message()([atoms, bonds, pairs])
        x = layers.LayerNormalization()(
            x + layers.MultiHeadAttention(2, 4)(x, x)
        )
        x = layers.Dense(6, activation="relu")(
            layers.GlobalAveragePooling1D()(x)
        )
        outputs = layers.Dense(1, activation="sigmoid")(x)
        model = keras.Model([atoms, bonds, pairs], outputs)
        model.compile(
            keras.optimizers.Adam(5e-3),
            "binary_crossentropy",
            metrics=[keras.metrics.AUC(name="AUC")],
        )
    x = [reals(ROWS, 5, 4), reals(ROWS, 9, 2), integers(5, ROWS, 9, 2)]
    run.fit(model, x, integers(2, ROWS, 1), class_weight={0: 2.0, 1: 0.5})


@example("examples/graph/node2vec_movielens")
def node2vec(run):
    """Pairs of nodes of a walk are told from others by embeddings."""
    with run.scope():
        target = keras.Input((), dtype="int32", name="target")
        context = keras.Input((), dtype="int32", name="context")
        table = layers.Embedding(
            9, 4, embeddings_initializer="he_normal", name="nodes"
        )
        alike = layers.Dot(axes=1)([table(target), table(context)])
        model = keras.Model([target, context], alike)
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.BinaryCrossentropy(from_logits=True),
        )
    columns = {
        "target": integers(9, ROWS),
        "context": integers(9, ROWS, seed=1),
    }
    weights = np.random.default_rng(2).uniform(1, 3, size=ROWS)
    labels = integers(2, ROWS, seed=3).astype("float64")
    data = tf.data.Dataset.from_tensor_slices((columns, labels, weights))
    run.fit(model, data.shuffle(ROWS, seed=4).batch(6))


class Cart:
    """A small game: keep a pole up by pushing left or right."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.state = self.random.uniform(-0.1, 0.1, size=4)
        return self.state.copy()

    def step(self, action):
        force = 2.0 * action - 1.0
        place, speed, angle, turn = self.state
        self.state = self.state + 0.2 * np.array(
            [speed, force - angle, turn, 2.0 * angle - force]
        )
        return self.state.copy(), 1.0, bool(abs(self.state[2]) > 0.6)


@example("examples/rl/actor_critic_cartpole")
def actor_critic(run):
    """Episodes are recorded on an eager tape, one action at a time."""
    game, random = Cart(0), np.random.default_rng(1)
    with run.scope():
        inputs = keras.Input((4,))
        common = layers.Dense(8, activation="relu")(inputs)
        action = layers.Dense(2, activation="softmax")(common)
        model = keras.Model(inputs, [action, layers.Dense(1)(common)])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        run.watch(model)
        losses = []
        for _ in range(3):
            state, chosen, values, rewards = game.reset(), [], [], []
            with tf.GradientTape() as tape:
                for _ in range(12):
                    probabilities, value = model(state[None])
                    picked = int(random.uniform() > float(probabilities[0, 0]))
                    values.append(value[0, 0])
                    chosen.append(ops.log(probabilities[0, picked]))
                    state, reward, done = game.step(picked)
                    rewards.append(reward)
                    if done:
                        break
                returns = np.cumsum(rewards[::-1])[::-1]
                returns = (returns - returns.mean()) / (returns.std() + 1e-7)
                loss = sum(
                    -log * (total - value)
                    + keras.losses.huber([value], [total])
                    for log, value, total in zip(chosen, values, returns)
                )
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            losses.append(float(loss))
    run.keep(losses=losses)


@example("examples/rl/deep_q_network_breakout")
def deep_q_network(run):
    """Learns from a memory of moves against a copy that is renewed at times."""
    game, random = Cart(2), np.random.default_rng(3)

    def network():
        return keras.Sequential(
            [keras.Input((4,)), layers.Dense(8, "relu"), layers.Dense(2)]
        )

    with run.scope():
        model, target = network(), network()
        target.set_weights(model.get_weights())
        optimizer = keras.optimizers.Adam(0.01, clipnorm=1.0)
        optimizer.build(model.trainable_variables)

    def learn(states, actions, rewards, following, done):
        future = ops.max(target(following), axis=1)
        wanted = (rewards + 0.99 * future) * (1 - done) - done
        mask = ops.one_hot(actions, 2, dtype=wanted.dtype)
        with tf.GradientTape() as tape:
            guessed = ops.sum(model(states) * mask, axis=1)
            loss = keras.losses.Huber()(wanted, guessed)
        variables = model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables)
        )
        return loss

    memory, state, losses = [], game.reset(), []
    with run.scope():
        run.watch(model)
        step = run.step(learn)
        for frame in range(24):
            if random.uniform() < 0.3:
                action = int(random.integers(2))
            else:
                action = int(np.argmax(model(state[None])[0]))
            after, reward, done = game.step(action)
            memory.append((state, action, reward, after, float(done)))
            state = game.reset() if done else after
            if len(memory) > 9 and frame % 3 == 0:
                rows = random.choice(len(memory), size=9)
                batch = [np.array(c) for c in zip(*(memory[r] for r in rows))]
                losses.append(float(step(*batch)))
            if frame % 9 == 8:
                target.set_weights(model.get_weights())
    run.keep(losses=losses)
