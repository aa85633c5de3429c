"""The predicted memory of a worker, beside what its allocator counts."""

import pytest

from kerasmgpu.commands import child_processes
from kerasmgpu.memory import counting
from tests.memory import allocator, job_models, jobs

WIDE = ("build_wide", "weights", (1, 4))
NORMALISED = ("build_normalised", "none", (1, 4))
SETTINGS = [f"build,{shard},1" for shard in jobs.SHARDS]
SETTINGS += ["deep,weights,1"]
IN_PARTS = [
    f"{name},{shard},{number}"
    for name, shard, parts in (WIDE, NORMALISED)
    for number in parts
]

pytestmark = pytest.mark.skipif(
    not allocator.has_compiler(), reason="needs a C compiler"
)


def outputs(settings, folder):
    """Bytes of kernels' outputs at the peak of each setting, of a single job."""
    measured = jobs.measured(settings, folder)
    return {setting: peaks[0] for setting, peaks in measured.items()}


@pytest.fixture(scope="module")
def outputs_in_parts(tmp_path_factory):
    return outputs(IN_PARTS, tmp_path_factory.mktemp("library"))


@pytest.fixture(autouse=True)
def predicted_in_this_process(monkeypatch):
    """Saves a start of TensorFlow per model; commands' tests do start it."""

    def run_job(child, job, *_):
        return counting.main(job)

    monkeypatch.setattr(child_processes, "run_job", run_job)


@pytest.mark.slow
def test_a_worker_needs_what_is_predicted(tmp_path):
    """Among others where many gradients arrive as one pack, which ends with it."""
    measured = outputs(SETTINGS, tmp_path)
    settings = jobs.predicted("build") | jobs.predicted("deep", ["weights"])
    for setting, num_bytes in settings.items():
        assert num_bytes == pytest.approx(measured[setting], rel=0.1), setting


@pytest.mark.nightly
def test_a_worker_of_a_mesh_needs_what_is_predicted(tmp_path):
    names = [build.__name__ for build in job_models.MESHES]
    wanted = {}
    for name in names:
        wanted |= jobs.predicted(name, jobs.LAYOUT, num_workers=4)
    peaks = jobs.measured(list(wanted), tmp_path, num_workers=4)
    for setting, num_bytes in wanted.items():
        assert num_bytes == pytest.approx(peaks[setting][0], rel=0.1), setting


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "shard", "parts", "most", "least"),
    [(*WIDE, 0.5, 0.3), (*NORMALISED, 1.0, 0.9)],
)
def test_micro_batches_save_what_is_predicted(
    outputs_in_parts, name, shard, parts, most, least
):
    found = jobs.predicted(name, shard, parts)
    for setting, num_bytes in found.items():
        measured = outputs_in_parts[setting]
        assert num_bytes == pytest.approx(measured, rel=0.1), setting
    one, *_, last = (outputs_in_parts[setting] for setting in found)
    assert least < last / one < most
