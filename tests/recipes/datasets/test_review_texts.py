"""Texts of users and items, and what must not be in them."""

import numpy as np
import tensorflow as tf

from kerasmgpu.recipes.datasets.review_texts import (
    PADDING,
    UNKNOWN,
    ReviewTexts,
    training_and_validation,
    vocabulary,
)
from kerasmgpu.recipes.datasets.reviews import Collector, generate

WORDS = 12


def reviews_of(*rows):
    collected = Collector()
    for user, item, text in rows:
        collected.add(user, item, 3.0, text)
    return collected.reviews("test")


def texts_of(reviews, train, rows, words=WORDS):
    """The texts as strings: user's and item's of each row."""
    size, tokens = vocabulary(reviews, train, 20_000)
    texts = ReviewTexts(reviews, tokens, train, words)
    names = dict(
        zip(tokens.tolist(), map(reviews.words.__getitem__, reviews.tokens))
    )
    names[UNKNOWN] = "?"
    assert max(names) < size
    return [
        tuple(" ".join(names[n] for n in text[row] if n) for text in taken)
        for taken in [[t.numpy() for t in texts.take(np.array(rows))]]
        for row in range(len(rows))
    ]


FIVE = reviews_of(
    ("ann", "film", "a1 a2"),
    ("ann", "book", "b1"),
    ("bob", "film", "c1 c2"),
    ("bob", "song", "d1"),
    ("cat", "film", "e1"),
)


def test_own_review_is_in_neither_text():
    every = np.arange(5)
    assert texts_of(FIVE, every, every) == [
        ("b1", "c1 c2 e1"),
        ("a1 a2", ""),
        ("d1", "a1 a2 e1"),
        ("c1 c2", ""),
        ("", "a1 a2 c1 c2"),
    ]


def test_what_is_held_out_is_in_no_text_and_in_no_vocabulary():
    train = np.array([0, 1, 3, 4])
    # Row 2 is held out: nobody's text has c1 or c2, not even as unknown words.
    assert texts_of(FIVE, train, [0, 2, 3, 4]) == [
        ("b1", "e1"),
        ("d1", "a1 a2 e1"),
        ("", ""),
        ("", "a1 a2"),
    ]
    _, tokens = vocabulary(FIVE, train, 20_000)
    c1 = FIVE.words.index("c1")
    assert set(tokens[FIVE.tokens == c1]) == {UNKNOWN}


def test_a_second_review_of_the_same_item_is_left_out_too():
    twice = reviews_of(
        ("ann", "film", "a1"), ("ann", "book", "b1"), ("ann", "film", "a2")
    )
    expected = [("b1", ""), ("a1 a2", ""), ("b1", "")]
    assert texts_of(twice, np.arange(3), [0, 1, 2]) == expected
    # Also where one of them is held out.
    assert texts_of(twice, np.array([0, 1]), [2]) == [("b1", "")]


def test_long_texts_are_cut_after_the_own_review_is_left_out():
    assert texts_of(FIVE, np.arange(5), [0, 4], words=2) == [
        ("b1", "c1 c2"),
        ("", "a1 a2"),
    ]


def test_no_leak_in_many_generated_reviews():
    # Every review has a word of its own, by which it would be found.
    generated = generate(40, 30, 600)
    marked = Collector()
    for row in range(600):
        user, item = generated.users[row], generated.items[row]
        marked.add(str(user), str(item), 3.0, f"mark{row} same")
    reviews = marked.reviews("test")
    train, held_out = reviews.split(0.2)
    rows = np.concatenate([train, held_out])
    is_train = np.isin(np.arange(600), train)
    for row, (user, item) in zip(rows, texts_of(reviews, train, rows, 100)):
        same_user = (reviews.users == reviews.users[row]) & is_train
        same_item = (reviews.items == reviews.items[row]) & is_train
        same_user[row] = same_item[row] = False
        for text, expected in ((user, same_user), (item, same_item)):
            marks = {w for w in text.split() if w != "same"}
            assert marks == {f"mark{k}" for k in np.flatnonzero(expected)}


def test_the_vocabulary_keeps_the_most_frequent_words():
    reviews = reviews_of(("a", "x", "of the the of the end"), ("b", "x", "end"))
    size, tokens = vocabulary(reviews, np.array([0]), max_words=2)
    assert size == 4
    assert tokens.tolist() == [3, 2, 2, 3, 2, UNKNOWN, UNKNOWN]


def test_training_goes_on_at_any_step_and_validation_is_one_pass():
    _, tokens = vocabulary(FIVE, np.arange(5), 20_000)
    texts = ReviewTexts(FIVE, tokens, np.arange(5), WORDS)
    ratings = np.arange(5, dtype=np.float32)
    train, held_out = np.array([0, 2, 3]), np.array([4, 1])

    def ratings_of(data):
        return [y[:, 0].tolist() for _, y in data.as_numpy_iterator()]

    keywords = dict(global_batch_size=2, seed=1)
    whole, validation = training_and_validation(
        texts, ratings, train, held_out, **keywords
    )
    (inputs, _), *_ = validation
    for text in (inputs["user_text"], inputs["item_text"]):
        assert (text.shape, text.dtype) == ((2, WORDS), tf.int32)
    # The other reviews of cat, who has none, and of the film.
    assert inputs["user_text"][0, 0] == PADDING != inputs["item_text"][0, 0]
    assert ratings_of(validation) == [[4, 1]]
    expected = ratings_of(whole.take(4))
    assert sorted(sum(expected[:2], [])) == [0, 2, 3]
    resumed, _ = training_and_validation(
        texts, ratings, train, held_out, **keywords, first_step=3
    )
    assert ratings_of(resumed.take(1)) == expected[3:]
