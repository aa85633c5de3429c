"""Models, and their floating-point operations by hand.

Each function returns a compiled model, its arrays of `ROWS` examples, and the
operations of a training step per example. `3 *` stands for a product of the
forward pass and its two gradients; the gradient of the model's input is not
computed, so that a layer on the input has `2 *`.
"""

import keras
import numpy as np
import tensorflow as tf

ROWS = 8
L = keras.layers


def arrays(inputs, output, integers=()):
    random = np.random.default_rng(0)

    def array(shape, limit=None):
        if limit is None:
            return random.normal(size=(ROWS, *shape)).astype("float32")
        return random.integers(1, limit, (ROWS, *shape)).astype("int32")

    made = tuple(array(shape) for shape in inputs)
    made += tuple(array(shape, limit) for shape, limit in integers)
    return (made[0] if len(made) == 1 else made, array(output))


def compiled(model, loss="mse", **settings):
    model.compile("adam", loss, **settings)
    return model


def mlp():
    model = keras.Sequential(
        [
            keras.Input((100,)),
            L.Dense(64, "relu"),
            L.BatchNormalization(),
            L.Dropout(0.1),
            L.Dense(32, "relu"),
            L.Dense(10),
        ]
    )
    flops = 2 * (2 * 100 * 64 + 3 * 64 * 32 + 3 * 32 * 10)
    return compiled(model), arrays([(100,)], (10,)), flops


def convnet():
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            L.Conv2D(16, 3, padding="same", activation="relu"),
            L.MaxPooling2D(),
            L.Conv2D(32, 5, strides=2, padding="same"),
            L.Conv2D(24, 3, dilation_rate=2),
            L.Conv2D(24, 3, groups=4, padding="same"),
            L.Flatten(),
            L.Dense(10),
        ]
    )
    first = 32 * 32 * 3 * 3 * 3 * 16
    second = 8 * 8 * 5 * 5 * 16 * 32
    third = 4 * 4 * 3 * 3 * 32 * 24
    grouped = 4 * 4 * 3 * 3 * (24 // 4) * 24
    head = 4 * 4 * 24 * 10
    flops = 2 * (2 * first + 3 * (second + third + grouped + head))
    # CPUs have grouped convolutions in XLA only.
    model = compiled(model, jit_compile=True)
    return model, arrays([(32, 32, 3)], (10,)), flops


def resnet():
    """ResNet-50's plan: bottlenecks of 3, 4, 6 and 3, on small images."""
    size, plan = 64, ((64, 3), (128, 4), (256, 6), (512, 3))
    model = keras.applications.ResNet50(
        weights=None, input_shape=(size, size, 3), classes=10, pooling="avg"
    )
    side = size // 2
    first = side**2 * 7 * 7 * 3 * 64
    side, channels, macs = side // 2, 64, 0
    for stage, (width, blocks) in enumerate(plan):
        side //= 2 if stage else 1
        for block in range(blocks):
            if block == 0:  # The shortcut.
                macs += side**2 * channels * 4 * width
            macs += side**2 * (channels * width + 9 * width**2 + 4 * width**2)
            channels = 4 * width
    macs += channels * 10
    flops = 2 * (2 * first + 3 * macs)
    return compiled(model), arrays([(size, size, 3)], (10,)), flops


def mobilenet():
    """MobileNet's plan (Howard et al. 2017, table 1), a quarter as wide."""
    size, alpha = 64, 0.25
    model = keras.applications.MobileNet(
        weights=None,
        input_shape=(size, size, 3),
        alpha=alpha,
        classes=10,
        dropout=0,
    )
    side, channels = size // 2, int(32 * alpha)
    first, macs = side**2 * 9 * 3 * channels, 0
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    plan += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for width, stride in plan:
        side //= stride
        width = int(width * alpha)
        macs += side**2 * channels * (9 + width)
        channels = width
    macs += channels * 10
    flops = 2 * (2 * first + 3 * macs)
    return compiled(model), arrays([(size, size, 3)], (10,)), flops


def separable():
    model = keras.Sequential(
        [
            keras.Input((16, 16, 4)),
            L.SeparableConv2D(8, 3, padding="same", depth_multiplier=2),
            L.DepthwiseConv2D(3, depth_multiplier=2),
            L.GlobalAveragePooling2D(),
        ]
    )
    depthwise = 16 * 16 * 9 * 8
    pointwise = 16 * 16 * 8 * 8
    second = 14 * 14 * 9 * 16
    flops = 2 * (2 * depthwise + 3 * (pointwise + second))
    return compiled(model), arrays([(16, 16, 4)], (16,)), flops


def gpt():
    """6 N per token, and 12 · layers · width · length for attention."""
    length, width, heads, layers, vocabulary = 32, 64, 4, 2, 50
    tokens = keras.Input((length,), dtype="int32")
    x = L.Embedding(vocabulary, width)(tokens)
    for _ in range(layers):
        normal = L.LayerNormalization()(x)
        attention = L.MultiHeadAttention(heads, width // heads)
        x = x + attention(normal, normal, use_causal_mask=True)
        hidden = L.Dense(4 * width, "gelu")(L.LayerNormalization()(x))
        x = x + L.Dense(width)(hidden)
    model = keras.Model(tokens, L.Dense(vocabulary)(x))
    weights = layers * 12 * width**2 + width * vocabulary
    flops = length * (6 * weights + 12 * layers * width * length)
    model = compiled(model)
    return model, arrays([], (length, vocabulary), [((length,), 50)]), flops


def vit():
    """Patches by a convolution, encoders, a head."""
    side, patch, width, heads, layers = 32, 8, 48, 4, 2
    images = keras.Input((side, side, 3))
    length = (side // patch) ** 2
    x = L.Conv2D(width, patch, strides=patch)(images)
    x = L.Reshape((length, width))(x)
    for _ in range(layers):
        x = x + L.MultiHeadAttention(heads, width // heads)(x, x)
        x = x + L.Dense(width)(L.Dense(2 * width, "gelu")(x))
    model = keras.Model(images, L.Dense(10)(L.GlobalAveragePooling1D()(x)))
    patches = length * patch**2 * 3 * width
    encoder = length * (4 + 4) * width**2 + 2 * length**2 * width
    flops = 2 * (2 * patches + 3 * (layers * encoder + width * 10))
    return compiled(model), arrays([(side, side, 3)], (10,)), flops


def bert():
    """Grouped-query and masked attention, by einsum, and a tied head."""
    length, width, vocabulary = 16, 32, 40

    class Encoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = L.Embedding(vocabulary, width, mask_zero=True)
            self.attention = L.GroupQueryAttention(8, 4, 2)

        def call(self, tokens):
            x = self.embedding(tokens)
            x = x + self.attention(x, x)
            return tf.einsum("btd,vd->btv", x, self.embedding.embeddings)

    projections = length * width * (4 * 8 + 2 * 2 * 8 + 4 * 8)
    scores = 2 * length**2 * 4 * 8
    head = length * width * vocabulary
    flops = 6 * (projections + scores + head)
    model = compiled(Encoder())
    return model, arrays([], (length, vocabulary), [((length,), 40)]), flops


def lstm():
    steps, features, units = 7, 5, 6
    model = keras.Sequential(
        [keras.Input((steps, features)), L.LSTM(units), L.Dense(3)]
    )
    gates = 4 * units
    flops = 2 * steps * (2 * features * gates + 3 * units * gates) + 6 * 18
    return compiled(model), arrays([(steps, features)], (3,)), flops


def gru():
    steps, features, units = 9, 4, 5
    model = keras.Sequential(
        [
            keras.Input((steps, features)),
            L.GRU(units, return_sequences=True),
            L.GRU(units),
        ]
    )
    gates = 3 * units
    first = 2 * features * gates + 3 * units * gates
    second = 3 * units * gates + 3 * units * gates
    flops = 2 * steps * (first + second)
    return compiled(model), arrays([(steps, features)], (units,)), flops


def masked_bilstm():
    steps, width, units = 6, 8, 5
    model = keras.Sequential(
        [
            keras.Input((steps,), dtype="int32"),
            L.Embedding(20, width, mask_zero=True),
            L.Bidirectional(L.LSTM(units)),
            L.Dense(2),
        ]
    )
    gates = (width + units) * 4 * units
    flops = 6 * (2 * steps * gates + 2 * units * 2)
    # Of a masked layer, Keras runs the cell once before the loop.
    flops += 2 * 2 * gates
    return compiled(model), arrays([], (2,), [((steps,), 20)]), flops


def unet():
    images = keras.Input((16, 16, 2))
    down = L.Conv2D(8, 3, padding="same")(images)
    x = L.Conv2D(16, 3, padding="same")(L.MaxPooling2D()(down))
    x = L.Conv2DTranspose(8, 2, strides=2)(x)
    x = L.Concatenate()([x, down])
    model = keras.Model(images, L.Conv2D(1, 1)(x))
    first = 16 * 16 * 9 * 2 * 8
    second = 8 * 8 * 9 * 8 * 16
    up = 8 * 8 * 2 * 2 * 16 * 8  # Each input is multiplied by all filters.
    head = 16 * 16 * 16
    flops = 2 * (2 * first + 3 * (second + up + head))
    return compiled(model), arrays([(16, 16, 2)], (16, 16, 1)), flops


def volumes():
    """3-D and 1-D convolutions, and transposed ones."""
    images = keras.Input((8, 8, 8, 2))
    x = L.Conv3D(4, 3, padding="same")(images)
    x = L.Conv3DTranspose(3, 2, strides=2)(x)
    x = L.Reshape((16, 16 * 16 * 3))(L.Permute((1, 2, 3, 4))(x))
    x = L.Conv1D(5, 3, padding="causal")(x)
    model = keras.Model(images, L.Conv1DTranspose(2, 4, strides=2)(x))
    first = 8**3 * 27 * 2 * 4
    up = 8**3 * 8 * 4 * 3
    rows = 16 * 3 * 768 * 5
    rows_up = 16 * 4 * 5 * 2
    flops = 2 * (2 * first + 3 * (up + rows + rows_up))
    return compiled(model), arrays([(8, 8, 8, 2)], (34, 2)), flops


def dlrm():
    """Embeddings, a bottom and a top MLP, products of all pairs."""
    dense = keras.Input((13,))
    ids = keras.Input((4,), dtype="int32")
    bottom = L.Dense(8, "relu")(L.Dense(16, "relu")(dense))
    rows = L.Embedding(100, 8)(ids)
    every = L.Concatenate(axis=1)([L.Reshape((1, 8))(bottom), rows])
    pairs = L.Flatten()(L.Dot(axes=2)([every, every]))
    model = keras.Model([dense, ids], L.Dense(1)(L.Dense(16, "relu")(pairs)))
    flops = 2 * (
        2 * 13 * 16 + 3 * 16 * 8 + 3 * 5 * 5 * 8 + 3 * 25 * 16 + 3 * 16
    )
    return compiled(model), arrays([(13,)], (1,), [((4,), 100)]), flops


def autoencoder():
    """Mixed precision, and a loss per step of 3 steps per execution."""
    policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    model = keras.Sequential(
        [
            keras.Input((50,)),
            L.Dense(20, dtype=policy),
            L.Dense(50, dtype=policy),
        ]
    )
    flops = 2 * (2 * 50 * 20 + 3 * 20 * 50)
    model = compiled(model, steps_per_execution=3)
    return model, arrays([(50,)], (50,)), flops


def gan():
    """A train_step of two models, with a loop."""

    class GAN(keras.Model):
        def __init__(self):
            super().__init__()
            self.generator = keras.Sequential(
                [keras.Input((4,)), L.Dense(8), L.Dense(6)], name="generator"
            )
            self.critic = keras.Sequential(
                [keras.Input((6,)), L.Dense(16, "relu"), L.Dense(1)],
                name="critic",
            )

        def call(self, noise):
            return self.critic(self.generator(noise))

        def train_step(self, data):
            real, _ = data
            rows = tf.shape(real)[0]
            for model in (self.critic, self.critic, self.generator):
                noise = tf.random.normal([rows, 4])
                with tf.GradientTape() as tape:
                    fake = self.generator(noise)
                    loss = tf.reduce_mean(self.critic(fake))
                    if model is self.critic:
                        loss -= tf.reduce_mean(self.critic(real))
                grads = tape.gradient(loss, model.trainable_variables)
                for grad, variable in zip(grads, model.trainable_variables):
                    variable.assign_sub(0.1 * grad)
            return {"loss": loss}

    generator, critic = [4 * 8, 8 * 6], [6 * 16, 16]
    # A critic's step: the fake and the real batch, weights' gradients, and the
    # gradient between its layers; none of the generator.
    of_critic = sum(generator) + 2 * (2 * sum(critic) + critic[1])
    # The generator's step: gradients pass through the critic.
    of_generator = 2 * sum(critic) + 2 * sum(generator) + generator[1]
    model = GAN()
    model.compile("sgd")
    x = arrays([(6,)], (1,))
    return model, x, 2 * (2 * of_critic + of_generator)


MODELS = (
    *(mlp, convnet, resnet, mobilenet, separable, gpt, vit, bert, lstm, gru),
    *(masked_bilstm, unet, volumes, dlrm, autoencoder, gan),
)
