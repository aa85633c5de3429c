"""Feeds `grain` data sets to `fit`, and keeps their iterator's states.

A state says where an iterator is in its data, so that a run resumes there
without reading the batches before. TensorFlow reads ahead of the step: the
iterator's present state belongs to a later batch than the one that was trained
on last. So the state after each batch is kept until its step is done.
"""

import importlib.metadata
import json
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras.src import tree
from keras.src.trainers.data_adapters import data_adapter_utils

from kerasmgpu._keras import fit
from kerasmgpu._keras.versions import grain_adapter
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.errors import InputError

_KEPT = 1000
"""States that are kept; TensorFlow reads some tens of batches ahead."""


class GrainSource:
    """The batches of a `grain` data set, as a `tf.data.Dataset` reads them.

    Attributes:
        keeps_states: Boolean, whether states are kept.
        is_one_stream: Boolean, whether all epochs read one iterator.
    """

    keeps_states = is_one_stream = False

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._states: dict[int, Any] = {}
        self._num_iterators = 0
        self._resumed: tuple[Any, int] | None = None

    def start_at(self, saved: dict[str, Any]) -> bool:
        """Lets the next iterator begin where a state says.

        Args:
            saved: Dictionary of `saved_state`.

        Returns:
            Boolean, whether it does: `grain` promises to read its states with
            the version that made them.

        Raises:
            InputError: If the state is another data set's.
        """
        if saved["version"] != _version():
            return False
        text = saved["state"]
        state = text.encode() if saved["is_bytes"] else json.loads(text)
        iterator = iter(self._dataset)
        try:
            iterator.set_state(state)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                "The saved state of the grain data can't be restored: "
                f"{type(error).__name__}: {error}. Call fit with the saved "
                "run's data"
            ) from error
        self._resumed = iterator, saved["batches"]
        return True

    def saved_state(self, num_batches: int) -> dict[str, Any] | None:
        """State of the newest iterator after some batches, as plain data.

        Returns:
            Dictionary; `None` if the state isn't kept, or no JSON can hold it.
        """
        state = self._states.get(num_batches)
        if state is None:
            return None
        is_bytes = isinstance(state, bytes)  # Of a `DataLoader`.
        try:
            text = state.decode() if is_bytes else json.dumps(state)
        except TypeError:
            return None
        return {
            "version": _version(),
            "batches": num_batches,
            "is_bytes": is_bytes,
            "state": text,
        }

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        iterator, begin = resumed or (iter(self._dataset), 0)
        self._num_iterators += 1
        # A stream's batches are counted over all epochs, so an iterator that
        # begins the data anew has other numbers.
        keeps = not self.is_one_stream or self._num_iterators == 1
        states = self._states = {}
        for number, batch in enumerate(iterator, begin + 1):
            if self.keeps_states and keeps:
                states[number] = iterator.get_state()
                states.pop(number - _KEPT, None)
            yield _for_tensorflow(batch)


def _version() -> str:
    return importlib.metadata.version("grain")


def _for_tensorflow(batch: Any) -> Any:
    """Returns a batch as Keras's adapter gives it to TensorFlow."""
    return tree.lists_to_tuples(tree.map_structure(_converted, batch))


def _converted(value: Any) -> Any:
    if value is None:
        return tf.experimental.Optional.empty(None)
    if data_adapter_utils.is_scipy_sparse(value):
        return data_adapter_utils.scipy_sparse_to_tf_sparse(value)
    if data_adapter_utils.is_jax_sparse(value):
        return data_adapter_utils.jax_sparse_to_tf_sparse(value)
    return value


if grain_adapter is not None:

    @seam(grain_adapter.GrainDatasetAdapter, "get_tf_dataset")
    def _get_tf_dataset(original: Original, adapter: Any) -> tf.data.Dataset:
        """Reads the data of `fit` through a `GrainSource`.

        Keras's generator closes over its data set, whose iterator nobody else
        can reach.
        """
        running = fit.innermost()
        if running is None or running.iterator is not None:
            return original(adapter)  # The data of a validation, or no `fit`.
        running.grain = source = GrainSource(adapter._dataset)
        return tf.data.Dataset.from_generator(
            lambda: source,
            output_signature=tree.map_structure(
                data_adapter_utils.convert_to_tf_tensor_spec,
                adapter._output_signature,
            ),
        )
