"""Images and their classes: in memory, as files, or as TFRecords."""

import dataclasses
import urllib.error

import numpy as np

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import holding_out

_NAMES_IN_A_MESSAGE = 3


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class ImageArrays:
    """Images in memory.

    Args:
        images: uint8 array `[images, height, width, channels]`.
        labels: int32 array `[images]`.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)

    def rows(self, numbers):
        """The images of these row numbers."""
        return ImageArrays(self.images[numbers], self.labels[numbers])


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images in a file each: JPEG, PNG, GIF or BMP, known by their content.

    Args:
        paths: Array of strings `[images]`.
        labels: int32 array `[images]`.
    """

    paths: np.ndarray
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)

    def rows(self, numbers):
        """The images of these row numbers."""
        return ImageFiles(self.paths[numbers], self.labels[numbers])


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images to train on and held out.

    Args:
        train: `ImageArrays`, `ImageFiles` or `image_records.ImageRecords`.
        held_out: The same.
        num_classes: Labels are below this number.
        image_shape: Height, width and channels of an image in memory; `None`
            where images are cut to size when they are read.
        may_flip: Whether a mirror image is of the same class.
        description: One line for people.
        may_shift: Whether images in memory gain from being moved at random.
            Defaults to `True`.
    """

    train: object
    held_out: object
    num_classes: int
    image_shape: tuple | None
    may_flip: bool
    description: str
    may_shift: bool = True


def split(part, held_out, seed):
    """Cuts off images at random to hold them out.

    Args:
        part: `ImageArrays` or `ImageFiles`.
        held_out: Fraction above 0 and below 1; each side gets one at least.
        seed: Integer of at least 0.

    Returns:
        Two of the same kind: to train on, and held out.

    Raises:
        InputError: If the fraction is out of range or there is one image only.
    """
    is_held_out = holding_out.chosen(len(part), held_out, seed, "images")
    return (
        part.rows(np.flatnonzero(~is_held_out)),
        part.rows(np.flatnonzero(is_held_out)),
    )


def fetched(name):
    """Loads a data set of Keras, fetching it where it isn't there yet.

    Args:
        name: `"cifar10"` or `"fashion_mnist"`.

    Returns:
        `ImageData`; Keras's test images are held out.

    Raises:
        InputError: If it can't be fetched.

    Example:

    ```python
    data = fetched("fashion_mnist")
    print(data.train.images.shape)  # (60000, 28, 28, 1)
    ```
    """
    import keras

    source = getattr(keras.datasets, name)
    try:
        parts = source.load_data()
    except Exception as error:
        # Keras raises the base class itself when it can't fetch a file, and
        # nothing narrower can be caught; any other exception goes on.
        cause = error.__cause__ or error.__context__ or error
        if not isinstance(cause, (urllib.error.URLError, OSError)):
            raise
        raise InputError(
            f"{name} can't be fetched: is there a network? ({error}) Fetch it "
            "on a machine with one, copy Keras's folder (~/.keras/datasets) "
            "here, or give --data_path"
        ) from error
    train, held_out = (_arrays(*part) for part in parts)
    return ImageData(
        train,
        held_out,
        num_classes=10,
        image_shape=train.images.shape[1:],
        may_flip=True,
        description=(
            f"{name}: {len(train):,} images to train on, {len(held_out):,} "
            "held out, 10 classes"
        ),
    )


def digits(held_out, seed):
    """Loads the 1,797 scanned digits, 8 × 8 pixels, of scikit-learn.

    They are a part of "Optical Recognition of Handwritten Digits" (Alpaydin
    and Kaynak, UCI repository, 1998) and need no network.

    Args:
        held_out: Fraction of the images to hold out.
        seed: Integer, seed of that split.

    Returns:
        `ImageData`.

    Raises:
        InputError: If scikit-learn isn't installed, or see `split`.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InputError(
            "--dataset=digits reads the digits that ship with scikit-learn, "
            f"which can't be imported ({error}); pip install scikit-learn"
        ) from error
    # Levels of grey from 0 to 16.
    bunch = datasets.load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    train, rest = split(_arrays(images, bunch.target), held_out, seed)
    return ImageData(
        train,
        rest,
        num_classes=10,
        image_shape=(8, 8, 1),
        may_flip=False,
        description=(
            f"scikit-learn's digits: {len(train):,} images to train on, "
            f"{len(rest):,} held out, 10 classes"
        ),
    )


def generated(image_size, held_out, seed, num_images=4000):
    """Draws images; see `generated_images.generate`.

    Args:
        image_size: Height and width in pixels.
        held_out: Fraction of the images to hold out.
        seed: Integer, seed of that split. The images are always the same.
        num_images: Images in all. Defaults to `4000`.

    Returns:
        `ImageData`.
    """
    from kerasmgpu.recipes.alexnet import generated_images

    images, labels = generated_images.generate(num_images, image_size)
    train, rest = split(ImageArrays(images, labels), held_out, seed)
    num_classes = len(generated_images.CLASS_NAMES)
    return ImageData(
        train,
        rest,
        num_classes=num_classes,
        image_shape=images.shape[1:],
        # Their place and angle are drawn at random already.
        may_flip=False,
        may_shift=False,
        description=(
            f"generated, not real: {len(train):,} drawn images to train on, "
            f"{len(rest):,} held out, {num_classes} classes"
        ),
    )


def _arrays(images, labels):
    """`ImageArrays` with a channel and a flat list of labels."""
    if images.ndim == 3:
        images = images[..., None]
    return ImageArrays(images, np.asarray(labels).reshape(-1).astype(np.int32))


def shortened(names):
    """A few names for a message."""
    more = "" if len(names) <= _NAMES_IN_A_MESSAGE else ", …"
    return ", ".join(names[:_NAMES_IN_A_MESSAGE]) + more
