"""The workloads' models in idiomatic PyTorch.

Keras on PyTorch would be another, slower contender. Layers, weights, data,
losses and SGD are those of `workloads`. The other optimizers differ in their
epsilon, which does not affect the speed:

* Adam: Keras adds epsilon to the root of the uncorrected second moment, PyTorch
  to the bias-corrected one, as in algorithm 1 of arXiv:1412.6980.
* RMSprop: Keras adds 1e-7 under the root, PyTorch adds its epsilon to the root.
  An epsilon of sqrt(1e-7) is closest: updates are equal for gradients that are
  far smaller or far larger.
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
"""Permutation of a layer's weight axes to the order of Keras's kernel."""


@dataclasses.dataclass(frozen=True)
class TorchModel:
    """A `workloads.Workload` in PyTorch.

    Attributes:
        build: Function of the `torch.device` that returns the module.
        optimizer: Function of the module's parameters.
        loss: Function of predictions and targets that returns the **sum**.
    """

    build: Callable
    optimizer: Callable
    loss: Callable = nn.MSELoss(reduction="sum")


def _dense(sizes, activation):
    """Builds dense layers of consecutive sizes, each with an activation."""
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
            # Keras's "same" with a stride of 2 pads right and bottom only.
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
    # NCCL all-reduces dense tensors only, so GPUs can't use sparse gradients.
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
"""`TorchModel`s by the name of their `Workload`."""


def load_start_weights(model):
    """Assigns the initial weights of all contenders to a module.

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
    """Converts a batch to tensors for PyTorch's layers and losses.

    Args:
        x: NumPy array of a workload; images are `[rows, height, width,
            channels]`.
        y: NumPy array, `[rows, outputs]`, or `[rows, 1]` integer labels.

    Returns:
        Pair of tensors that are copies; images are `[rows, channels, height,
        width]`, labels `[rows]`.
    """
    x, y = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y))
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    if not y.is_floating_point():
        y = y.flatten().long()
    return x, y
