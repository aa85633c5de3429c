"""Ratings, reviews and images as the files that recipes read."""

import json

import tensorflow as tf


def write_ratings(path, ratings):
    """Writes ratings as MovieLens does: `userId,movieId,rating,timestamp`."""
    columns = (
        ratings.user_ids[ratings.users],
        ratings.item_ids[ratings.items],
        ratings.values,
    )
    lines = [
        f"{user},{item},{value},0\n" for user, item, value in zip(*columns)
    ]
    path.write_text("".join(["userId,movieId,rating,timestamp\n", *lines]))


def review(user="u1", item="i1", text="Good, it's GOOD", overall=4.0):
    """One review, a line of Amazon's data."""
    values = user, item, text, overall
    return json.dumps(
        dict(zip("reviewerID asin reviewText overall".split(), values))
    )


def write_reviews(path, reviews):
    """Writes `reviews.Reviews`, a line each."""
    lines = []
    for k in range(len(reviews)):
        words = reviews.tokens[reviews.starts[k] : reviews.starts[k + 1]]
        lines.append(
            review(
                f"user{reviews.users[k]}",
                f"item{reviews.items[k]}",
                " ".join(reviews.words[word] for word in words),
                float(reviews.ratings[k]),
            )
        )
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_records(path, images):
    """Writes pairs of encoded image and label as TFRecords."""
    feature = tf.train.Feature
    with tf.io.TFRecordWriter(str(path)) as writer:
        for encoded, label in images:
            values = {
                "image/encoded": feature(
                    bytes_list=tf.train.BytesList(value=[encoded])
                ),
                "image/class/label": feature(
                    int64_list=tf.train.Int64List(value=[label])
                ),
            }
            example = tf.train.Example(
                features=tf.train.Features(feature=values)
            )
            writer.write(example.SerializeToString())
    return path
