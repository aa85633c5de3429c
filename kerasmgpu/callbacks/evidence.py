"""The file of an `Audit`: what a run was, and how its steps compared."""

import json
import math
from collections import Counter
from typing import Any

import keras
import tensorflow as tf

import kerasmgpu
from kerasmgpu import atomic_files
from kerasmgpu.callbacks import audit_verdict
from kerasmgpu.callbacks.audit_verdict import Finding
from kerasmgpu.callbacks.local_devices import device_names
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.engine.private_names import configuration
from kerasmgpu.hardware.nvml import open_nvml
from kerasmgpu.stores.places import place

NAME = "evidence.json"

_KEPT = 100
"""Steps that the file lists, the last ones."""


class Evidence:
    """Collects findings of a `fit`, and writes them to a file.

    Attributes:
        path: String, the file; `None`: none is written.
        largest: Dictionary, the largest distance of each layer so far.
    """

    def __init__(self, model: keras.Model, path: str | None) -> None:
        self.path = path
        self.largest: dict[str, float] = {}
        self._verdicts: Counter[str] = Counter()
        self._steps: list[dict[str, Any]] = []
        self._model = model

    @property
    def num_steps(self) -> int:
        """Number of steps that were compared."""
        return (
            sum(self._verdicts.values()) - self._verdicts[audit_verdict.NOT_RUN]
        )

    @property
    def verdict(self) -> str:
        """The worst verdict of a step that was compared."""
        compared = [v for v in self._verdicts if v != audit_verdict.NOT_RUN]
        return audit_verdict.worst(compared)

    def add(
        self, step: int, finding: Finding, seconds: float, micro_batches: int
    ) -> None:
        """Adds what was found of a step, and writes the file."""
        self._verdicts[finding.verdict] += 1
        for layer, distance in finding.by_layer.items():
            self.largest[layer] = max(self.largest.get(layer, 0.0), distance)
        self._steps.append(
            {
                "step": step,
                "verdict": finding.verdict,
                "largest_difference": _plain(
                    max(finding.by_layer.values(), default=0.0)
                ),
                "micro_batches_of_one_device": micro_batches,
                "seconds": round(seconds, 3),
                **({"text": finding.text} if finding.text else {}),
            }
        )
        if self.path is not None:
            text = json.dumps(self._facts(), indent=2, default=str) + "\n"
            atomic_files.write_text(place(self.path), text)

    def _facts(self) -> dict[str, Any]:
        strategy: ExactStrategy = self._model.distribute_strategy
        return {
            "format": audit_verdict.FORMAT,
            "model": self._model.name,
            "layers": dict(
                Counter(
                    type(layer).__name__
                    for layer in self._model._flatten_layers(include_self=False)
                )
            ),
            "optimizer": type(self._model.optimizer).__name__,
            "precision": self._model.dtype_policy.name,
            "xla": str(self._model.jit_compile),
            "replicas": strategy.num_replicas_in_sync,
            "workers": strategy.num_workers,
            "devices": device_names(strategy),
            "settings": _settings(strategy),
            "versions": _versions(),
            "steps_compared": self.num_steps,
            "verdict": self.verdict,
            "largest_differences": {
                layer: _plain(value) for layer, value in self.largest.items()
            },
            "steps": self._steps[-_KEPT:],
        }


def _plain(value: float) -> float | None:
    """Returns a number that JSON has; `None` for infinity."""
    return float(f"{value:.3g}") if math.isfinite(value) else None


def _settings(strategy: ExactStrategy) -> dict[str, Any]:
    """Returns a strategy's settings that aren't their defaults."""
    default = type(strategy.settings)()
    return {
        name: getattr(value, "__name__", value)
        for name, value in vars(strategy.settings).items()
        if value != getattr(default, name)
    }


def _versions() -> dict[str, Any]:
    build = tf.sysconfig.get_build_info()
    nvml, _ = open_nvml()
    driver = None
    if nvml is not None:
        driver = nvml.driver_version
        nvml.close()
    return {
        "kerasmgpu": kerasmgpu.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "driver": driver,
        "tensor_float_32": (
            tf.config.experimental.tensor_float_32_execution_enabled()
        ),
        "deterministic": configuration.is_op_determinism_enabled(),
    }
