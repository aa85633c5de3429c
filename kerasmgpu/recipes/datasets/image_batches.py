"""Batches of images: their order, decoding and augmentation.

Order and augmentation follow from the seed and the step alone, so that a run
that is resumed, or runs on other devices, sees the same batches. The last batch
of a pass may be smaller.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow import Tensor

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_data, image_decoding, row_order
from kerasmgpu.recipes.datasets.image_data import (
    ImageData,
    ImageRecords,
    LabelledImages,
)

Dataset: TypeAlias = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE
Part = LabelledImages | ImageRecords

# Batches to decode at a time, each on all cores: while one waits for its last
# image, the next has begun.
_BATCHES_AT_ONCE = 2
_FILES_AT_ONCE = 16
# Size of the shuffle buffer, beside the random order of the files.
_SHUFFLED_RECORDS = 10_000
_SAMPLES = 16


@dataclasses.dataclass(frozen=True)
class ImageBatches:
    """Batches of images, cropped or resized to `image_size`.

    With `augment`, training images are cropped, shifted and mirrored. An image
    that can't be decoded is left out of its batch, which is then a row smaller;
    `leave_out` is called with its name, in every pass.
    """

    data: ImageData
    image_size: int
    global_batch_size: int
    seed: int
    augment: bool
    leave_out: Callable[[bytes], None]

    def __post_init__(self) -> None:
        for part in (self.data.train, self.data.held_out):
            if not part.in_memory:
                self._require_images(part)

    def training(self, first_step: int = 0) -> Dataset:
        """Endless batches `(images, classes)`, from a step on.

        uint8 `[rows, size, size, channels]` and one-hot float32 `[rows,
        classes]`.
        """
        part = self.data.train
        if isinstance(part, ImageRecords):
            batches = self._shuffled_records(part, first_step)
        else:
            batches = row_order.shuffled(
                (part.images, part.labels),
                self.global_batch_size,
                self.seed,
                first_step,
            )
        return self._finished(batches.enumerate(first_step), part, True)

    def held_out(self) -> Dataset:
        """One pass in the order of the data; batches as in `training`."""
        part = self.data.held_out
        batches = _rows(part).batch(self.global_batch_size)
        num_batches = -(-len(part) // self.global_batch_size)
        finished = self._finished(batches.enumerate(), part, False)
        # Keras warns of data of unknown length. (A batch without an image that
        # can be decoded is replaced by another.)
        return finished.repeat().take(num_batches)

    def _shuffled_records(self, part: ImageRecords, first_step: int) -> Dataset:
        paths = tf.constant(part.paths)

        def one_pass(number: Tensor) -> Dataset:
            order = tf.random.experimental.stateless_shuffle(
                paths, seed=[self.seed, number]
            )
            records = Dataset.from_tensor_slices(order).interleave(
                part.read, _FILES_AT_ONCE, None, AUTOTUNE, deterministic=True
            )
            # `Dataset.shuffle` takes no symbolic seed; its op does.
            shuffled = tf.raw_ops.ShuffleDataset(
                input_dataset=tf.data.experimental.to_variant(records),
                buffer_size=min(len(part), _SHUFFLED_RECORDS),
                # Two zeros would mean a random seed.
                seed=self.seed + 1,
                seed2=number,
                output_types=[tf.string, tf.string],
                output_shapes=[[], []],
                reshuffle_each_iteration=False,
            )
            return tf.data.experimental.from_variant(
                shuffled, records.element_spec
            ).batch(self.global_batch_size)

        steps_per_pass = -(-len(part) // self.global_batch_size)
        return row_order.from_step(first_step, steps_per_pass, one_pass)

    def _finished(
        self, batches: Dataset, part: Part, training: bool
    ) -> Dataset:
        """Decodes and augments enumerated batches."""
        augment = training and self.augment
        if part.in_memory:
            batches = batches.map(
                lambda step, items: self._resized(step, items, augment),
                AUTOTUNE,
            )
        else:
            batches = batches.interleave(
                lambda step, items: self._decoded(step, items, augment),
                cycle_length=_BATCHES_AT_ONCE,
                num_parallel_calls=_BATCHES_AT_ONCE,
                deterministic=True,
            )
        return batches.prefetch(AUTOTUNE)

    def _resized(self, step: Tensor, items: Any, augment: bool) -> Any:
        images, labels = items
        if augment and self.data.may_shift:
            images = image_decoding.shift_and_flip(
                images, self._seed_of(step), self.data.may_flip
            )
        images = image_decoding.resize(images, self.image_size)
        return images, tf.one_hot(labels, self.data.num_classes)

    def _decoded(self, step: Tensor, items: Any, augment: bool) -> Dataset:
        """A data set of one batch: the items that can be decoded."""

        def decode(row: Tensor, item: Any) -> tuple[Tensor, ...]:
            encoded, label = _read(*item)
            if augment:
                image = image_decoding.random_crop(
                    encoded, self.image_size, self._seed_of(step, row)
                )
            else:
                image = image_decoding.central_crop(encoded, self.image_size)
            end = tf.constant(self.data.num_classes, label.dtype)
            with tf.control_dependencies(
                [tf.debugging.assert_less(label, end)]
            ):
                return row, image, tf.one_hot(label, self.data.num_classes)

        rows = Dataset.from_tensor_slices(items).enumerate()
        decoded = rows.map(decode, AUTOTUNE, deterministic=True)
        batch = decoded.ignore_errors().batch(self.global_batch_size)
        return batch.map(
            lambda rows, *batch: self._reported(items[0], rows, batch)
        )

    def _reported(self, names: Tensor, rows: Tensor, batch: Any) -> Any:
        """Reports the names of rows missing from the batch; returns the batch."""

        def report(missing: Tensor) -> int:
            for name in missing.numpy():
                self.leave_out(name)
            return len(missing)

        every_row = tf.range(tf.size(names, tf.int64))
        missing = tf.raw_ops.ListDiff(x=every_row, y=rows).out
        reported = tf.cond(
            tf.size(missing) > 0,
            lambda: tf.py_function(
                report, [tf.gather(names, missing)], tf.int32
            ),
            lambda: 0,
        )
        with tf.control_dependencies([reported]):
            return tf.nest.map_structure(tf.identity, batch)

    def _seed_of(self, *numbers: Tensor) -> Tensor:
        seed = tf.constant([self.seed, 0])
        for number in numbers:
            seed = tf.random.fold_in(seed, tf.cast(number, tf.int32))
        return seed

    def _require_images(self, part: Part) -> None:
        """Refuses files that are no images before the training."""
        name = None
        for item in _rows(part, max(1, len(part) // _SAMPLES)).take(_SAMPLES):
            name = name or item[0].numpy().decode("utf-8", "surrogateescape")
            try:
                encoded, _ = _read(*item)
                image_decoding.central_crop(encoded, self.image_size)
            except tf.errors.InvalidArgumentError:
                continue
            return
        raise InputError(
            "Expected images as JPEG, PNG, GIF or BMP. Received: "
            f"{name}, which can't be decoded, nor can others that were tried"
        )


def _rows(part: Part, stride: int = 1) -> Dataset:
    """Pairs of image or path and label, or of name and record, in order.

    Takes each `stride`-th image, but every record: skipping one would read it.
    """
    if isinstance(part, ImageRecords):
        return Dataset.from_tensor_slices(list(part.paths)).flat_map(part.read)
    return Dataset.from_tensor_slices(
        (part.images[::stride], part.labels[::stride])
    )


def _read(name: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes and label of an item: a path and its label, or a record."""
    if rest.dtype == tf.string:
        return image_data.parse_record(rest)
    return tf.io.read_file(name), rest
