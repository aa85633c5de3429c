"""Cases of the parity table on a mesh whose axes both divide every variable.

All 77 cases were run on (2, 2) and (2, 3); these are of different kinds.
"""

import pytest

import kerasmgpu
from benchmarks.exactness import harness
from benchmarks.exactness.registry import cases
from tests.parity.meshes import both_divided
from tests.parity.one_device import is_predicted

CASES = cases("parity")

NAMES = [
    "masked loss per token",
    "batch normalisation with a mask",
    "dropout in a recurrent layer",
    "clipnorm of sparse gradients",
    "loss scale with overflow on one replica",
    "several inputs and outputs",
    "sparse tensors",
    "steps per execution",
]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.slow if name == NAMES[0] else pytest.mark.nightly,
        )
        for name in NAMES
    ],
)
def test_a_case_on_a_mesh_ends_like_one_device(name, on_one_device):
    case = CASES[name]
    strategy = kerasmgpu.strategy(distribution=both_divided((2, 3)))
    found = harness.run(case, strategy, predicts=is_predicted(case))
    for what, distance in harness.distances(on_one_device(case), found).items():
        assert distance <= case.tolerance, f"{what}: {distance:.1e}"
    assert found.spread == 0.0
