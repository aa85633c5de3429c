"""Published efficiencies, and predictions of them.

No number is fitted: rates and latencies are those of `link_rates`. Only the link and
the overlap of the two programs were chosen with knowledge of the measurements;
`compare` takes others, to show their effect.

* TensorFlow's benchmarks (May 2017, tensorflow.org/performance/benchmarks; one
  DGX-1 with 8 P100): overlap 0, all gradients are summed after the backward
  pass. The link is assumed to be PCIe 3: the ResNets reduced on the CPU
  (`parameter_server` on `cpu`), which is reached by PCIe 3. AlexNet and VGG-16
  used NCCL of that time and may have used NVLink, but at NVLink's rate they
  would have lost next to nothing, and they lost 25 %.
* Horovod (github.com/horovod/horovod, docs/benchmarks.rst; 4 Pascal GPUs per
  machine, 25 Gbit/s RoCE): overlap 1, each gradient is sent as soon as it is
  computed (Sergeev and Del Balso, arXiv:1802.05799). PCIe 3 inside a machine,
  a ring in each machine and one between them.

Parameter counts are those of keras.io/api/applications, AlexNet's those of its
one-column form (Krizhevsky, arXiv:1404.5997), in float32. Horovod does not
publish one GPU's rate: it is taken from TensorFlow's table, at the same batch
of 64. ResNet-101 is not in that table: its seconds per image are interpolated
linearly between ResNet-50 and ResNet-152, by operations (3.8, 7.6 and 11.3
billion: He et al., arXiv:1512.03385, table 1).
"""

import dataclasses

from kerasmgpu.plan.link_rates import link
from kerasmgpu.plan.step_time import Machines, Step, predict

PARAMETERS = {
    "AlexNet": 61.1e6,
    "VGG-16": 138.4e6,
    "ResNet-50": 25.6e6,
    "ResNet-101": 44.7e6,
    "ResNet-152": 60.4e6,
    "Inception V3": 23.9e6,
}

_TENSORFLOW = {
    # (model, batch per GPU): images per second on 1, 2, 4 and 8 GPUs.
    ("AlexNet", 512): (2987, 5658, 10509, 17822),
    ("VGG-16", 64): (154, 295, 584, 1081),
    ("VGG-16", 32): (144, 281, 549, 820),
    ("ResNet-50", 64): (219, 422, 852, 1734),
    ("ResNet-50", 32): (195, 368, 768, 1485),
    ("ResNet-152", 64): (91.8, 181, 356, 716),
    ("Inception V3", 64): (142, 284, 569, 1131),
}

_HOROVOD = {
    # (model, GPUs): efficiency.
    ("VGG-16", 128): 0.79,
    ("VGG-16", 512): 0.68,
    ("Inception V3", 128): 0.90,
    ("Inception V3", 512): 0.90,
    ("ResNet-101", 128): 0.90,
    ("ResNet-101", 512): 0.90,
}

_RESNET_101_SECONDS = 1 / 219 + (1 / 91.8 - 1 / 219) * (7.6 - 3.8) / (
    11.3 - 3.8
)
_ONE_GPU = {
    "VGG-16": 154,
    "Inception V3": 142,
    "ResNet-101": 1 / _RESNET_101_SECONDS,
}
"""Images per second of one P100 at a batch of 64."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One published efficiency (0 to 1), with the prediction."""

    source: str
    model: str
    rows_per_replica: int
    num_replicas: int
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.published - 1


def compare(
    tensorflow_overlap: float = 0.0,
    horovod_overlap: float = 1.0,
    dgx_link: str = "pcie3",
) -> list[Row]:
    """Predicts all published efficiencies.

    Args:
        tensorflow_overlap: Float, see the module docstring. Defaults to 0.
        horovod_overlap: Float. Defaults to 1.
        dgx_link: Name of the link between the GPUs of the DGX-1. Defaults to
            `"pcie3"`.
    """
    dgx = Machines(8, inside=link(dgx_link))
    rows = []
    for (model, batch), rates in _TENSORFLOW.items():
        step = _step(model, batch, rates[0], tensorflow_overlap)
        for count, rate in zip((2, 4, 8), rates[1:]):
            rows.append(
                Row(
                    "TensorFlow, DGX-1",
                    model,
                    batch,
                    count,
                    rate / rates[0] / count,
                    predict(step, dgx, count).efficiency,
                )
            )
    cluster = Machines(4, inside=link("pcie3"), between=link("25gbit"))
    for (model, count), efficiency in _HOROVOD.items():
        step = _step(model, 64, _ONE_GPU[model], horovod_overlap)
        predicted = predict(step, cluster, count).efficiency
        rows.append(Row("Horovod", model, 64, count, efficiency, predicted))
    return rows


def _step(model: str, rows: int, rate: float, overlap: float) -> Step:
    return Step(
        rows=rows,
        compute_seconds=rows / rate,
        reduced_bytes=4 * PARAMETERS[model],
        overlap=overlap,
    )
