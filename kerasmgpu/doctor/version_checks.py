"""Judges versions: do Python's packages and TensorFlow fit together?"""

from collections.abc import Iterator
from typing import Any

from kerasmgpu.doctor.catalogue import found
from kerasmgpu.doctor.findings import Finding, fine

_OPTIONAL = {
    "matplotlib": "plots",
    "nvidia-ml-py": "what the driver tells of GPUs",
    "tensorboard": "Keras's callback of that name",
}
_REINSTALL = (
    "see what `python -c 'import tensorflow, keras'` says; or install what "
    'fits: pip install --upgrade "kerasmgpu[gpu]"'
)


def judge_versions(
    versions: dict[str, str], facts: dict[str, Any]
) -> Iterator[Finding]:
    """Judges versions, and what importing them gave.

    Args:
        versions: As `tensorflow_facts.versions` returns them.
        facts: As the process of `tensorflow_facts` returns them; or
            `{"error": why it failed}`.
    """
    shown = ", ".join(
        f"{name} {version}"
        for name, version in versions.items()
        if not name.startswith("nvidia-")
    )
    warning = facts.get("warning")
    failed = facts.get("error") or facts.get("import_error")
    if failed:
        text, hint = (
            f"{shown}; starting failed: {failed}",
            warning or _REINSTALL,
        )
        yield found("import_failed", "versions", text, hint=hint)
    elif warning:
        yield found("versions_unchecked", "versions", shown, hint=warning)
    else:
        yield fine("versions", "versions", f"{shown} fit together")
    for package, use in _OPTIONAL.items():
        if package not in versions:
            text = f"{package} is not installed ({use})"
            yield found("package_missing", "versions", text, package=package)
    if facts.get("backend", "tensorflow") != "tensorflow":
        text = f"Keras's backend is {facts['backend']}"
        yield found("backend", "versions", text)
    if "xla" in facts:
        yield _xla(facts["xla"])


def _xla(facts: dict[str, Any]) -> Finding:
    if "error" in facts:
        return found("xla", "XLA", f"compiling failed: {facts['error']}")
    return fine("xla", "XLA", f"compiles and runs ({facts['seconds']:.2g} s)")
