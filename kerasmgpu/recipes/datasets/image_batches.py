"""Batches of images: their order, decoding and augmentation.

Order and augmentation follow from the seed and the step alone, so that a run
that is resumed, or runs on other devices, sees the same batches. The last batch
of a pass may be smaller.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_decoding, image_records, row_order
from kerasmgpu.recipes.datasets.images import ImageData, LabelledImages

# Batches to decode at a time, each on all cores: while one waits for its last
# image, the next has begun.
_BATCHES_AT_ONCE = 2
_FILES_AT_ONCE = 16
# Size of the shuffle buffer, beside the random order of the files.
_SHUFFLED_RECORDS = 10_000
_SAMPLES = 16

Part = LabelledImages | image_records.ImageRecords


class ImageBatches:
    """Batches of `ImageData` to train and validate on.

    An image that can't be decoded is left out of its batch, which is then a row
    smaller.

    Args:
        data: `images.ImageData`.
        image_size: Height and width that the network sees.
        global_batch_size: Rows of a full batch.
        seed: Integer.
        augment: Whether training images are cropped, shifted and mirrored.
        leave_out: Function of the name of an image left out, called in every
            pass.
    """

    def __init__(
        self,
        data: ImageData,
        image_size: int,
        global_batch_size: int,
        seed: int,
        augment: bool,
        leave_out: Callable[[bytes], None],
    ) -> None:
        self._data = data
        self._image_size = image_size
        self._global_batch_size = global_batch_size
        self._seed = seed
        self._augment = augment
        self._leave_out_one = leave_out
        for part in (data.train, data.held_out):
            if not part.in_memory:
                self._require_images(part)

    def training(self, first_step: int = 0) -> tf.data.Dataset:
        """Endless batches `(images, classes)`, from a step on.

        uint8 `[rows, size, size, channels]` and one-hot float32 `[rows,
        classes]`.
        """
        part = self._data.train
        order = len(part), self._global_batch_size, self._seed, first_step
        if isinstance(part, image_records.ImageRecords):
            batches = self._shuffled_records(part, first_step)
        elif part.in_memory:
            arrays = part.images, part.labels
            batches = row_order.shuffled(arrays, *order[1:])
        else:
            paths, labels = tf.constant(part.images), tf.constant(part.labels)
            batches = row_order.batches(*order).map(
                lambda rows: (tf.gather(paths, rows), tf.gather(labels, rows))
            )
        return self._finished(batches.enumerate(first_step), part, True)

    def held_out(self) -> tf.data.Dataset:
        """One pass of batches in the order of the data; as `training`."""
        part = self._data.held_out
        batches = _rows(part).batch(self._global_batch_size)
        num_batches = -(-len(part) // self._global_batch_size)
        finished = self._finished(batches.enumerate(), part, False)
        # Keras warns of data of unknown length. (A batch without an image that
        # can be decoded is replaced by another.)
        return finished.repeat().take(num_batches)

    def _shuffled_records(
        self, part: image_records.ImageRecords, first_step: int
    ) -> tf.data.Dataset:
        paths = tf.constant(part.paths)

        def one_pass(number: tf.Tensor) -> tf.data.Dataset:
            order = tf.random.experimental.stateless_shuffle(
                paths, seed=[self._seed, number]
            )
            records = tf.data.Dataset.from_tensor_slices(order).interleave(
                part.read,
                cycle_length=_FILES_AT_ONCE,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            records = _shuffled(records, len(part), self._seed, number)
            return records.batch(self._global_batch_size)

        steps_per_pass = -(-len(part) // self._global_batch_size)
        return row_order.from_step(first_step, steps_per_pass, one_pass)

    def _finished(
        self, batches: tf.data.Dataset, part: Part, training: bool
    ) -> tf.data.Dataset:
        """Decodes and augments enumerated batches."""
        if part.in_memory:
            finish = self._augmented if training else self._resized
            batches = batches.map(finish, tf.data.AUTOTUNE)
        else:
            batches = batches.interleave(
                lambda step, items: self._decoded(step, items, training),
                cycle_length=_BATCHES_AT_ONCE,
                num_parallel_calls=_BATCHES_AT_ONCE,
                deterministic=True,
            )
        return batches.prefetch(tf.data.AUTOTUNE)

    def _augmented(self, step: tf.Tensor, items: Any) -> Any:
        images, labels = items
        if self._augment and self._data.may_shift:
            images = image_decoding.shift_and_flip(
                images, self._seed_of(step), self._data.may_flip
            )
        return self._resized(step, (images, labels))

    def _resized(self, step: tf.Tensor, items: Any) -> Any:
        images, labels = items
        return (
            image_decoding.resize(images, self._image_size),
            tf.one_hot(labels, self._data.num_classes),
        )

    def _decoded(
        self, step: tf.Tensor, items: Any, training: bool
    ) -> tf.data.Dataset:
        """A data set of one batch: the items that can be decoded."""
        random = training and self._augment

        def decode(row: tf.Tensor, item: Any) -> tuple[tf.Tensor, ...]:
            encoded, label = _read(*item)
            if random:
                image = image_decoding.random_crop(
                    encoded, self._image_size, self._seed_of(step, row)
                )
            else:
                image = image_decoding.central_crop(encoded, self._image_size)
            in_range = tf.debugging.assert_less(
                tf.cast(label, tf.int64),
                tf.constant(self._data.num_classes, tf.int64),
            )
            with tf.control_dependencies([in_range]):
                classes = tf.one_hot(label, self._data.num_classes)
            return row, image, classes

        rows = tf.data.Dataset.from_tensor_slices(items).enumerate()
        decoded = rows.map(decode, tf.data.AUTOTUNE, deterministic=True)
        batch = decoded.ignore_errors().batch(self._global_batch_size)
        return batch.map(
            lambda rows, images, classes: self._note(
                items[0], rows, (images, classes)
            )
        )

    def _note(self, names: tf.Tensor, rows: tf.Tensor, batch: Any) -> Any:
        """Reports the names of missing rows."""
        present = tf.scatter_nd(
            rows[:, None],
            tf.ones_like(rows, tf.bool),
            tf.shape(names, tf.int64),
        )

        def note() -> tf.Tensor:
            missing = tf.boolean_mask(names, ~present)
            return tf.py_function(self._leave_out, [missing], tf.int32)

        noted = tf.cond(tf.reduce_all(present), lambda: 0, note)
        with tf.control_dependencies([noted]):
            return tf.nest.map_structure(tf.identity, batch)

    def _leave_out(self, names: tf.Tensor) -> int:
        for name in names.numpy():
            self._leave_out_one(name)
        return len(names)

    def _seed_of(self, *numbers: tf.Tensor) -> tf.Tensor:
        seed = tf.constant([self._seed, 0])
        for number in numbers:
            seed = tf.random.fold_in(seed, tf.cast(number, tf.int32))
        return seed

    def _require_images(self, part: Part) -> None:
        """Refuses files that are no images before the training."""
        stride = 1
        if not isinstance(part, image_records.ImageRecords):
            stride = max(1, len(part) // _SAMPLES)
        name = None
        for item in _rows(part, stride).take(_SAMPLES):
            name = name or item[0].numpy().decode("utf-8", "surrogateescape")
            try:
                encoded, _ = _read(*item)
                image_decoding.central_crop(encoded, self._image_size)
            except tf.errors.InvalidArgumentError:
                continue
            return
        raise InputError(
            "Expected images as JPEG, PNG, GIF or BMP. Received: "
            f"{name}, which can't be decoded, nor can others that were tried"
        )


def _rows(part: Part, stride: int = 1) -> tf.data.Dataset:
    """Pairs of image or path and label, or of name and record, in order."""
    if isinstance(part, image_records.ImageRecords):
        paths = tf.data.Dataset.from_tensor_slices(list(part.paths))
        return paths.flat_map(part.read)
    return tf.data.Dataset.from_tensor_slices(
        (part.images[::stride], part.labels[::stride])
    )


def _shuffled(
    records: tf.data.Dataset, num_rows: int, seed: int, number: tf.Tensor
) -> tf.data.Dataset:
    """Shuffles records by the seed and the number of the pass.

    `tf.data.Dataset.shuffle` takes no symbolic seed; its op does.
    """
    shuffled = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        buffer_size=min(num_rows, _SHUFFLED_RECORDS),
        # Two zeros would mean a random seed.
        seed=seed + 1,
        seed2=number,
        output_types=[tf.string, tf.string],
        output_shapes=[[], []],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(shuffled, records.element_spec)


def _read(name: tf.Tensor, rest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Bytes and label of an item: a path and its label, or a record."""
    if rest.dtype == tf.string:
        return image_records.parse(rest)
    return tf.io.read_file(name), rest
