"""`python -m kerasmgpu` lists the commands."""

from rich.console import Console
from rich.table import Table

import kerasmgpu

COMMANDS = {
    "kerasmgpu.recipes.autoencoder": (
        "train a collaborative-filtering autoencoder on movie ratings"
    ),
    "kerasmgpu.recipes.polynomial": (
        "fit a polynomial through make_parallel on several devices"
    ),
    "kerasmgpu.recipes.convnet": (
        "train any Keras model from a YAML file with one n_gpus"
    ),
    "kerasmgpu.recipes.alexnet": (
        "classify images: large batches, warm-up, is the input the limit"
    ),
    "kerasmgpu.recipes.image_batch_study": (
        "accuracy against the global batch, by rule for the learning rate"
    ),
    "kerasmgpu.recipes.deepconn": (
        "place a two-tower model's layers on one or two devices, and compare"
    ),
    "kerasmgpu.launch": (
        "run a program in several workers, here and on other machines"
    ),
    "kerasmgpu.benchmark": (
        "time plain Keras, stock, kerasmgpu, JAX and PyTorch on the same models"
    ),
    "kerasmgpu.plan": ("predict what more GPUs bring, and what limits them"),
    "kerasmgpu.scaling_report": (
        "run a recipe at several replica counts: time, speed-up, efficiency"
    ),
    "kerasmgpu.verify": (
        "check that your own model trains alike on one and on N replicas"
    ),
}
"""Module to what `python -m module` does."""


def main():
    """Prints a table of the commands."""
    table = Table(title=f"kerasmgpu {kerasmgpu.__version__}")
    table.add_column("command")
    table.add_column("what it does")
    for module, purpose in COMMANDS.items():
        table.add_row(f"python -m {module}", purpose)
    console = Console()
    console.print(table)
    console.print("Each takes --help.")


if __name__ == "__main__":
    main()
