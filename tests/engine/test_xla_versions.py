"""What compiled programs depend on, and how two machines differ in it."""

import builtins
import io

import pytest

from kerasmgpu.engine import xla_versions

ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n"
X86 = "processor\t: 0\nmodel\t: 1\nmodel name\t: EPYC: 7\nflags\t: sse avx\n\n"


@pytest.mark.parametrize(
    "text, expected",
    [(ARM, ("part 0xd0c", "fp asimd")), (X86, ("EPYC: 7", "sse avx"))],
)
def test_the_processor_is_told_by_linux(monkeypatch, text, expected):
    monkeypatch.setattr(builtins, "open", lambda *_, **__: io.StringIO(text))
    assert xla_versions._processor() == expected


def test_equal_versions_have_one_name():
    here = xla_versions.versions(on_gpus=False)
    assert xla_versions.digest(here) == xla_versions.digest(
        dict(reversed(here.items()))
    )
    assert here["CPU"] and "GPU" not in here
    other = {**here, "TensorFlow": "1.0"}
    assert xla_versions.digest(other) != xla_versions.digest(here)


def test_only_what_differs_is_told():
    there = {"TensorFlow": "2.20", "CPU": "A", "CPU features": "sse avx512f"}
    here = {"TensorFlow": "2.20", "CPU": "B", "CPU features": "avx2 sse"}
    assert xla_versions.differences(there, {**here, "GPU": "H100"}) == [
        "CPU: A there, B here",
        "CPU features: avx512f only there, avx2 only here",
        "GPU: none there, H100 here",
    ]
