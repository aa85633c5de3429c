"""What is said of the checkpoint that a `fit` has found."""

from collections.abc import Mapping, Sequence
from typing import Any

from kerasmgpu._keras import run_settings
from kerasmgpu.callbacks.checkpoints.snapshot import Progress
from kerasmgpu.stores.places import Place


def finished(
    path: Place,
    progress: Progress,
    num_epochs: int,
    settings: Mapping[str, Any],
) -> str:
    """Says that a run is complete, so that its `fit` trains nothing.

    Args:
        num_epochs: Integer, the argument `epochs` of `fit`.
        settings: Dictionary, see `run_settings.read`.
    """
    done = _count(progress.epoch)
    if progress.stop_training:
        way = (
            f"was stopped by a callback after {done}, of epochs={num_epochs}. "
            "To train, give Checkpoint, or default, another directory"
        )
    else:
        way = (
            f"has {done}, of epochs={num_epochs}. To train on, raise epochs; to "
            "train anew, give Checkpoint, or default, another directory"
        )
    return (
        "nothing is trained, fit returns the saved result: the run in "
        f"{path} {way}.{_differences(progress, settings)}"
    )


def resuming(
    path: Place,
    progress: Progress,
    num_epochs: int,
    settings: Mapping[str, Any],
) -> str:
    """Says from where a run resumes; see `finished`."""
    return (
        f"resuming from {path} (epoch {progress.epoch + 1} of {num_epochs}, "
        f"step {progress.step}).{_differences(progress, settings)}"
    )


def not_finite(
    path: Place, variables: Sequence[str], before: str | None
) -> str:
    """Says that a checkpoint has NaN or infinity in its weights.

    Args:
        variables: Sequence of the variables' paths.
        before: String, name of the checkpoint before, or `None`.
    """
    which = variables[0]
    if len(variables) > 1:
        which = f"{len(variables)} variables, the first of which is {which}"
    way = "give Checkpoint, or default, another directory to train anew"
    if before is not None:
        way = f"delete it to resume from {before}, or {way}"
    return (
        f"{path} has NaN or infinity in {which}, and the run goes on from that. "
        f"If that is no use, {way}; the callback NotFinite finds where a NaN "
        "comes from."
    )


def _differences(progress: Progress, settings: Mapping[str, Any]) -> str:
    found = run_settings.differences(progress.settings or {}, settings)
    if not found:
        return ""
    says = [f" Settings differ from the saved run's: {', '.join(found)}"]
    if any(one.startswith("learning_rate=") for one in found):
        says.append("the saved learning rate is restored")
    if any(one.startswith("batch_size=") for one in found) and progress.step:
        says.append(
            f"the epoch goes on behind {progress.step} batches of the new size"
        )
    return f"{'; '.join(says)}."


def _count(epochs: int) -> str:
    return f"{epochs} epoch{'' if epochs == 1 else 's'}"
