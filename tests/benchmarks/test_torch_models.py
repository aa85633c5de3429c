"""PyTorch's models are Keras's: same weights, loss and updates."""

import keras
import numpy as np
import pytest

from benchmarks.workloads import WORKLOADS, start_weights

torch = pytest.importorskip("torch", reason="the pytorch contender needs it")

from benchmarks.torch_models import (  # noqa: E402
    TORCH_MODELS,
    load_start_weights,
    tensors,
)

IN_PYTORCH = [name for name, w in WORKLOADS.items() if w.is_in_pytorch]


def test_every_workload_has_a_model():
    assert list(TORCH_MODELS) == IN_PYTORCH


def keras_losses(workload, x, y, steps):
    """Losses of `steps` steps, and the number of parameters."""
    model, optimizer, loss = workload.build()
    model.set_weights(start_weights([w.shape for w in model.weights]))
    # Eagerly: to trace 51 layers takes longer.
    model.compile(optimizer, loss, run_eagerly=True)
    losses = []
    for _ in range(steps):
        losses.append(float(model.train_on_batch(x, y)))
        model.reset_metrics()
    return losses, model.count_params()


def torch_losses(torch_model, x, y, steps):
    module = torch_model.build(torch.device("cpu"))
    load_start_weights(module)
    optimizer = torch_model.optimizer(module.parameters())
    inputs, targets = tensors(x, y)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch_model.loss(module(inputs), targets) / y.size
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", IN_PYTORCH)
def test_losses_are_those_of_keras(name):
    x, y = WORKLOADS[name].arrays(np.random.default_rng(4), 6)
    ours, parameters = torch_losses(TORCH_MODELS[name], x, y, 3)
    keras_ones, keras_parameters = keras_losses(WORKLOADS[name], x, y, 3)
    assert parameters == keras_parameters
    assert ours[0] == pytest.approx(keras_ones[0], rel=1e-5)
    # After updates; RMSprop's epsilon is another formula.
    tolerance = 0.1 if name == "autoencoder" else 1e-4
    assert ours == pytest.approx(keras_ones, rel=tolerance)
    assert len(set(ours)) == 3


@pytest.mark.parametrize("gradient", [1.0, 1e-6])
def test_rmsprop_is_the_same_far_from_its_epsilon(gradient):
    variable = keras.Variable(np.zeros(1, "float32"))
    _, optimizer, _ = WORKLOADS["autoencoder"].build()
    optimizer.build([variable])
    optimizer.apply([np.full(1, gradient, "float32")])
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.full((1,), gradient)
    TORCH_MODELS["autoencoder"].optimizer([parameter]).step()
    # By hand: 0.001 by the root of 0.1 and of 1e-7, times the gradient.
    by_hand = -1e-3 * gradient / (0.1 * gradient**2 + 1e-7) ** 0.5
    assert float(variable.value[0]) == pytest.approx(by_hand, rel=1e-5)
    assert parameter.item() == pytest.approx(by_hand, rel=2e-3)


def test_layout_of_images_and_labels():
    x = np.arange(2 * 4 * 5 * 3, dtype="float32").reshape(2, 4, 5, 3)
    images, labels = tensors(x, np.array([[7], [9]], "int32"))
    assert images.shape == (2, 3, 4, 5) and images.is_contiguous()
    assert images[1, 2, 3, 4].item() == x[1, 3, 4, 2]
    assert labels.tolist() == [7, 9] and labels.dtype == torch.int64


def test_embeddings_are_dense_where_nccl_sums_them():
    build = TORCH_MODELS["embeddings"].build
    assert build(torch.device("cpu"))[0].sparse
    assert not build(torch.device("cuda"))[0].sparse
