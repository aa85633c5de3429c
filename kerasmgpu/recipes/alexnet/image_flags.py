"""The flags of images, networks and optimizers."""

from types import SimpleNamespace

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import shared_flags
from kerasmgpu.recipes.shared.flag_definitions import Definitions


def define(flag_values: flags.FlagValues) -> None:
    """Defines the flags that other recipes don't have."""
    flag = Definitions(flag_values)
    # fmt: off
    # Data.
    shared_flags.define_data(flag_values, path_help=
        "Folder with a folder of images per class (or train/ and val/ with "
        "these), or TFRecords: a file or their folder.")
    flag.choice("dataset", "generated",
        ["generated", "cifar10", "fashion_mnist", "digits", "synthetic"],
        "Data where there is no --data_path. generated: drawings; cifar10, "
        "fashion_mnist: fetched by Keras; digits: scikit-learn's; synthetic: "
        "one batch that stays on the devices, to measure computing alone.")
    flag.integer("image_size", None,
        "Height and width in pixels that the network sees. Left out: 224 for "
        "files and synthetic images, else that of the data.",
        least=8, most=4096)
    flag.integer("num_classes", None,
        "Classes of TFRecords (labels are below) and synthetic images. Left "
        "out: the labels of all records are read; 1000 for synthetic images.",
        least=2, most=10**7)
    shared_flags.define_held_out(flag_values, 0.2,
        "Fraction of the images that is held out, where the data have no "
        "validation part.")
    flag.switch("augment", True,
        "Cut, move and mirror training images at random, where that suits the "
        "data: digits have no mirror images, drawings vary already.")
    flag.switch("compare_input", False,
        "Also measure computing alone, and say whether the images or the "
        "devices set the pace.")
    # The network.
    flag.choice("network", "alexnet",
        ["alexnet", "resnet50", "wide_resnet28"], "The network.")
    flag.number("width", None,
        "Factor of the network's units: 1 is the published AlexNet and "
        "ResNet-50, k is WideResNet-28-k. Left out: 0.25, 1 and 10.",
        least=1e-6, most=64)
    flag.choice("mixed_precision", "none", ["none", "float16", "bfloat16"],
        "Type that layers compute in; weights stay float32. float16 scales "
        "the loss, and is for GPUs.")
    flag.settings(batch_norm=
        "Rows whose mean and variance normalise: those of the global batch, "
        "or (Goyal et al.) each replica's own, without a collective per layer.")
    # The optimizer.
    flag.choice("optimizer", "sgd", ["sgd", "lars", "lamb"],
        "sgd has momentum; lars and lamb are for very large batches.")
    flag.number("momentum", 0.9, "Of sgd and lars.", least=0, most=1)
    flag.number("weight_decay", 5e-4,
        "Of kernels; biases and scales of batch normalisation have none.",
        least=0)
    flag.number("trust_coefficient", 0.001,
        "Of lars: share of a layer's weights that a step changes at learning "
        "rate 1.", least=0, excludes_bounds=True)
    flag.integer("warmup_epochs", 0,
        "Passes over the data in which the learning rate rises to its full "
        "value, from that of one replica; --warmup_steps in other words.",
        least=0)
    flag.choice("learning_rate_decay", "cosine", ["cosine", "stairs", "none"],
        "How the learning rate falls over the run; stairs: to a tenth after "
        "30, 60 and 80 of 90 parts.")
    flag.number("label_smoothing", 0.0,
        "Share of each label that is spread over all classes.",
        least=0, most=1)
    # The study of batch sizes.
    flag.strings("batch_sizes", None,
        "Global batches to compare, in rows (16,64,256): one run for each, "
        "each rule for the learning rate and each seed. --learning_rate is "
        "that of the smallest.")
    flag.integer("num_seeds", None,
        "Runs of each kind with --batch_sizes, with other initial weights, "
        "order and split. Left out: 3.")
    # fmt: on


def check(settings: SimpleNamespace) -> None:
    """Validates combinations of settings."""
    if settings.warmup_steps and settings.warmup_epochs:
        raise InputError(
            "Give either --warmup_steps or --warmup_epochs. Received: both"
        )
    if settings.num_seeds and not settings.batch_sizes:
        raise InputError(
            "--num_seeds needs --batch_sizes, the batches to compare. "
            f"Received: --num_seeds={settings.num_seeds} alone"
        )
    if settings.dataset == "synthetic" and settings.compare_input:
        raise InputError(
            "--compare_input compares images with synthetic ones. Received: "
            "--dataset=synthetic, which has no others"
        )


def require_packages(settings: SimpleNamespace) -> None:
    """Refuses settings whose packages aren't installed."""
    if settings.dataset == "digits" and not settings.data_path:
        flag_parsing.require_package(
            "sklearn", "scikit-learn", "--dataset=digits"
        )
