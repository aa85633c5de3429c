"""The workloads' models for PyTorch, as its users would write them.

Keras on PyTorch is another contender, and a slower one. Layers, weights, data
and losses are those of `workloads`, and so is SGD. The other optimizers treat
their epsilon differently, which is no matter of speed:

* Adam: Keras adds it to the root of the second moment as it is, PyTorch after
  correcting the moment's bias, like algorithm 1 of arXiv:1412.6980.
* RMSprop: Keras adds 1e-7 below the root, PyTorch adds its epsilon to the
  root. The root of 1e-7 comes nearest: the same where gradients are far
  smaller or far larger than it.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.workloads import (
    NUM_ITEMS,
    VOCABULARY,
    start_weights,
)

_KERAS_AXES = {
    nn.Linear: (1, 0),
    nn.Conv2d: (2, 3, 1, 0),
    nn.Embedding: (0, 1),
}
"""The axes of a layer's weight in the order of Keras's kernel."""


@dataclasses.dataclass(frozen=True)
class TorchModel:
    """What a `workloads.Workload` is in PyTorch.

    Attributes:
        build: Function of the `torch.device` that returns the module.
        optimizer: Function of the module's parameters.
        loss: Function of predictions and targets that returns the **sum**.
    """

    build: Callable
    optimizer: Callable
    loss: Callable = nn.MSELoss(reduction="sum")


def _dense(sizes, activation):
    """Dense layers from each size to the next, each with an activation."""
    layers = []
    for inputs, units in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inputs, units), activation()]
    return layers


def _deep_narrow(device):
    return nn.Sequential(*_dense([32] * 51, nn.ReLU), nn.Linear(32, 32))


def _autoencoder(device):
    return nn.Sequential(
        *_dense([NUM_ITEMS, 500, 250, 500, NUM_ITEMS], nn.Sigmoid)
    )


def _convnet(device):
    layers = []
    for channels, filters in ((3, 32), (32, 64), (64, 128)):
        layers += [
            # Keras's "same" with a stride of 2: right and bottom only.
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(channels, filters, 3, stride=2),
            nn.ReLU(),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    )


class _MeanOfWords(nn.Module):
    def forward(self, vectors):
        return vectors.mean(dim=1)


def _embeddings(device):
    # NCCL sums dense tensors only, so on GPUs users have to do without.
    sparse = device.type == "cpu"
    return nn.Sequential(
        nn.Embedding(VOCABULARY, 32, sparse=sparse),
        _MeanOfWords(),
        *_dense([32, 64], nn.ReLU),
        nn.Linear(64, 1),
    )


TORCH_MODELS = {
    "deep_narrow": TorchModel(
        _deep_narrow, lambda p: torch.optim.Adam(p, lr=1e-4, eps=1e-7)
    ),
    "autoencoder": TorchModel(
        _autoencoder,
        lambda p: torch.optim.RMSprop(p, lr=1e-3, alpha=0.9, eps=1e-7**0.5),
    ),
    "convnet": TorchModel(
        _convnet,
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        nn.CrossEntropyLoss(reduction="sum"),
    ),
    "embeddings": TorchModel(_embeddings, lambda p: torch.optim.SGD(p, lr=0.1)),
}
"""Name of a `Workload` to its `TorchModel`."""


def load_start_weights(model):
    """Gives a module the weights that every contender starts from.

    Args:
        model: `torch.nn.Module` of the layers of this file.
    """
    views = []
    for layer in model.modules():
        if type(layer) in _KERAS_AXES:
            views.append(layer.weight.permute(_KERAS_AXES[type(layer)]))
            if getattr(layer, "bias", None) is not None:
                views.append(layer.bias)
    weights = start_weights([tuple(view.shape) for view in views])
    with torch.no_grad():
        for view, weight in zip(views, weights):
            view.copy_(torch.from_numpy(weight))


def tensors(x, y):
    """A batch as PyTorch's layers and losses take it.

    Args:
        x: NumPy array of a workload; images are `[rows, height, width,
            channels]`.
        y: NumPy array, `[rows, outputs]`, or `[rows, 1]` integer labels.

    Returns:
        Pair of tensors with memory of their own; images are `[rows, channels,
        height, width]`, labels `[rows]`.
    """
    x, y = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y))
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    if not y.is_floating_point():
        y = y.flatten().long()
    return x, y
