"""Reading review files, splitting them, and the generated ones."""

import gzip

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import reviews
from tests.recipes.datasets import written_data
from tests.recipes.datasets.written_data import review as line


def written(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


LINES = [line(), line("u2", "i1", "Été — 3 stars", 5), line("u1", "i2", "", 1)]


@pytest.mark.parametrize("compressed", [False, True])
def test_reviews_become_numbers(tmp_path, compressed):
    path = written(tmp_path / "reviews.json", *LINES)
    if compressed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    loaded = reviews.load(path)
    assert loaded.words == ["good", "it's", "été", "3", "stars"]
    assert loaded.tokens.tolist() == [0, 1, 0, 2, 3, 4]
    assert loaded.starts.tolist() == [0, 3, 6, 6]
    assert loaded.users.tolist() == [0, 1, 0]
    assert loaded.items.tolist() == [0, 0, 1]
    assert loaded.ratings.tolist() == [4, 5, 1]
    assert (loaded.num_users, loaded.num_items) == (2, 2)
    assert loaded.description == "reviews.json: 3 reviews of 2 items by 2 users"


@pytest.mark.parametrize(
    "bad, why",
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        (line(user=3), "reviewerID is not a string"),
        (line(text=None), "reviewText is not a string"),
        (line(overall="4"), "overall is not a number"),
        (line(overall=True), "overall is not a number"),
        (line(overall=0), "overall is not a number above 0"),
        (line(overall=float("nan")), "overall is not a number"),
        ("", "not JSON"),
    ],
)
def test_malformed_lines_are_left_out_counted_and_shown(tmp_path, bad, why):
    path = written(tmp_path / "r.json", LINES[0], bad, LINES[1], "}", LINES[2])
    loaded = reviews.load(path)
    assert len(loaded) == 3
    assert f"2 malformed line(s) left out, first line 2: {why}" in (
        loaded.description
    )


def test_bytes_that_are_no_text_are_malformed(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b"\xff\xfe\n" + LINES[0].encode() + b"\n")
    assert "; 1 malformed line(s)" in reviews.load(path).description


def test_files_without_reviews_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"r.json.*it is empty"):
        empty = tmp_path / "r.json"
        empty.touch()
        reviews.load(empty)
    with pytest.raises(InputError, match=r"no review \(line 1: not JSON\)"):
        reviews.load(written(tmp_path / "none.json", "a,b", "c,d"))
    with pytest.raises(InputError, match="missing.json .No such file"):
        reviews.load(tmp_path / "missing.json")
    with pytest.raises(InputError, match="can't be read"):
        reviews.load(tmp_path)
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress("\n".join(LINES * 99).encode())[:-20])
    with pytest.raises(InputError, match="cut.json.gz"):
        reviews.load(cut)


def test_a_split_is_a_partition_that_the_seed_decides():
    generated = reviews.generate(20, 10, 100)
    train, held_out = generated.split(0.2, seed=1)
    assert (len(train), len(held_out)) == (80, 20)
    assert sorted([*train, *held_out]) == list(range(100))
    again = generated.split(0.2, seed=1)
    np.testing.assert_array_equal(again[1], held_out)
    assert generated.split(0.2, seed=2)[1].tolist() != held_out.tolist()


def test_generated_reviews_follow_the_seed_and_pairs_are_distinct():
    first, again, other = (
        reviews.generate(30, 20, 200, seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.tokens, again.tokens)
    np.testing.assert_array_equal(first.ratings, again.ratings)
    assert first.ratings.tolist() != other.ratings.tolist()
    pairs = set(zip(first.users.tolist(), first.items.tolist()))
    assert len(pairs) == len(first) == 200
    assert set(first.ratings.tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert first.description.startswith("generated, not real: 200 reviews")


def test_generated_reviews_are_as_those_of_a_file(tmp_path):
    generated = reviews.generate(30, 20, 200)
    written_data.write_reviews(tmp_path / "r.json", generated)
    loaded = reviews.load(tmp_path / "r.json")
    assert loaded.words == generated.words
    np.testing.assert_array_equal(loaded.tokens, generated.tokens)
    np.testing.assert_array_equal(loaded.ratings, generated.ratings)
