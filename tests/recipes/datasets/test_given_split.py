"""A split that is given as two files, in the forms that MovieLens has."""

import math

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import autoencoder
from kerasmgpu.recipes.autoencoder import unknown_ratings
from kerasmgpu.recipes.datasets import given_split, rating_biases

# ml-100k's u1.base and u1.test, and what ml-10m's split_ratings.sh writes.
FORMS = {"\t": ("u1.base", "u1.test"), "::": ("r1.train", "r1.test")}
TRAIN = [(1, 10, 5), (1, 30, 3), (7, 10, 4), (7, 20, 1), (9, 30, 2)]
TEST = [(1, 20, 4), (9, 10, 2)]
# Item 40, user 8, and both.
UNKNOWN = [(7, 40, 5), (8, 10, 1), (8, 40, 4)]


def write(folder, separator, train, test):
    paths = [folder / name for name in FORMS[separator]]
    for path, ratings in zip(paths, (train, test)):
        path.write_text(
            "".join(
                separator.join(map(str, (*rating, 881250949))) + "\n"
                for rating in ratings
            )
        )
    return paths


def triples(ratings):
    return [
        (ratings.user_ids[user], ratings.item_ids[item], value)
        for user, item, value in zip(
            ratings.users, ratings.items, ratings.values
        )
    ]


@pytest.mark.parametrize("separator", FORMS)
def test_both_parts_have_the_numbering_of_training(tmp_path, separator):
    paths = write(tmp_path, separator, TRAIN, [*UNKNOWN[:1], *TEST])
    train, test, unknown = given_split.load(*paths, tmp_path / "cache")
    assert triples(train) == TRAIN
    assert triples(test) == TEST
    assert unknown.tolist() == [5]
    assert test.user_ids.tolist() == train.user_ids.tolist() == [1, 7, 9]
    assert test.item_ids.tolist() == train.item_ids.tolist() == [10, 20, 30]


def test_ratings_of_unknown_users_and_items_are_apart(tmp_path):
    paths = write(tmp_path, "\t", TRAIN, TEST + UNKNOWN)
    _, test, unknown = given_split.load(*paths, tmp_path / "cache")
    assert triples(test) == TEST
    assert unknown.tolist() == [5, 1, 4]


@pytest.mark.parametrize(
    "test, message",
    [
        ([*TEST, TRAIN[3]], "share 1 ratings, such as .* item 20 by user 7"),
        (UNKNOWN, "No test rating has a user and an item"),
        ([(1, "x", 3)], "Line 1 of .*u1.test is not a rating"),
    ],
)
def test_files_that_are_no_split_are_refused(tmp_path, test, message):
    paths = write(tmp_path, "\t", TRAIN, test)
    with pytest.raises(InputError, match=message):
        given_split.load(*paths, tmp_path / "cache")


def test_the_default_is_three_on_scales_of_five_stars():
    for lowest, highest, expected in ((1, 5, 3), (0.5, 5, 3), (1, 10, 6)):
        biases = rating_biases.Biases(3.5, None, None, lowest, highest)
        assert unknown_ratings.default_rating(biases) == expected


def test_unknown_ratings_count_like_all_others():
    errors = np.array([0.5, -1.0, 2.0])
    unknown = np.array([5, 1, 4], np.float32)
    logs = {"val_rmse": math.sqrt(np.mean(errors**2))}
    unknown_ratings.WithUnknown(3, unknown, 3).on_epoch_end(0, logs)
    everything = [*errors, 2.0, -2.0, 1.0]
    assert logs["val_rmse"] == pytest.approx(
        math.sqrt(np.mean(np.square(everything)))
    )


@pytest.mark.slow
def test_the_recipe_tests_on_the_given_file(tmp_path):
    random = np.random.default_rng(0)
    pairs = [(user, item) for user in range(1, 13) for item in range(1, 11)]
    ratings = [(*pair, int(random.integers(1, 6))) for pair in pairs]
    # Every user and item is trained on.
    test = [r for r in ratings if (r[0] + r[1]) % 5 == 0]
    train = [r for r in ratings if r not in test]
    results = {}
    for name, part in (("known", test), ("all", test + [(99, 1, 5)])):
        paths = write(tmp_path, "\t", train, part)
        results[name] = autoencoder.run(
            data_path=str(paths[0]),
            test_path=str(paths[1]),
            data_dir=str(tmp_path / "cache"),
            hidden_units=["4"],
            global_batch_size=4,
            epochs=1,
            num_replicas=1,
        )
    for figure in ("rmse", "baseline_rmse"):
        known = results["known"].figures[figure]
        # One more rating: 5 stars, where 3 are predicted.
        squares = len(test) * known**2 + (5 - 3) ** 2
        assert results["all"].figures[figure] == pytest.approx(
            math.sqrt(squares / (len(test) + 1)), rel=1e-5
        )
    assert "1 of them of users or items without" in results["all"].data
    assert "without" not in results["known"].data


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(held_out=0.2), "--test_path and --held_out"),
        (dict(data_path=None), "--test_path needs --data_path"),
        (dict(test_path="no/such"), "--test_path must be a file or folder"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path, keywords, message):
    train, test = write(tmp_path, "\t", TRAIN, TEST)
    given = dict(data_path=str(train), test_path=str(test)) | keywords
    with pytest.raises(InputError, match=message):
        autoencoder.run(**given)
