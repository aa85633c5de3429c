"""Reads TensorBoard event files back."""

import collections

import tensorflow as tf


def values(folder):
    """Dictionary from tags to `{step: value}`; the value of a histogram is its
    `HistogramProto`. Of all files of a folder; no tag may have a step twice."""
    found = collections.defaultdict(dict)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                # Figures of a sample and of an epoch that ends there.
                found[value.tag].setdefault(event.step, []).append(
                    getattr(value, kind)
                )
    return {
        tag: {step: values[-1] for step, values in steps.items()}
        for tag, steps in found.items()
    }
