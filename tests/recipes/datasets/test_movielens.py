"""Every published form and place of ratings, and splits of two files."""

import io
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import autoencoder, datasets
from kerasmgpu.recipes.autoencoder import unknown_ratings
from kerasmgpu.recipes.datasets import movielens, ratings_table
from kerasmgpu.recipes.datasets.ratings import Biases, generate
from tests.recipes.datasets import written_data

REAL = Path(__file__, "../../../../shared/data/ml-latest-small.zip").resolve()

# User 9 comes before user 4, and item ids have gaps.
LINES = [(9, 300, 4.0), (9, 20, 3.5), (4, 300, 5.0)]
HEADER = "userId,movieId,rating,timestamp\n"
NOWHERE = "http://127.0.0.1:9"


def text_of(separator, lines, header=""):
    texts = [separator.join(map(str, (*line, 978300760))) for line in lines]
    return header + "\n".join(texts) + "\n"


FORMS = {
    "u.data": text_of("\t", LINES),
    "ratings.dat": text_of("::", LINES),
    "ratings.csv": text_of(",", LINES, HEADER),
}


@pytest.fixture
def load(tmp_path):
    """`movielens.load` with a cache folder of the test's own."""

    def load(path, **arguments):
        cache_dir = tmp_path / "cache"
        return movielens.load(path, cache_dir=cache_dir, **arguments)

    return load


@pytest.fixture
def num_parsed(monkeypatch):
    """A list that grows by one for each file that is parsed."""
    calls = []
    parse = ratings_table.parse
    monkeypatch.setattr(
        ratings_table,
        "parse",
        lambda *arguments: calls.append(1) or parse(*arguments),
    )
    return calls


def write_zip(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def assert_is_lines(ratings):
    np.testing.assert_array_equal(ratings.user_ids, [4, 9])
    np.testing.assert_array_equal(ratings.item_ids, [20, 300])
    np.testing.assert_array_equal(ratings.users, [1, 1, 0])
    np.testing.assert_array_equal(ratings.items, [1, 0, 1])
    np.testing.assert_array_equal(ratings.values, [4, 3.5, 5])


@pytest.mark.parametrize("name", FORMS)
def test_file_folder_and_zip_are_parsed_once(tmp_path, load, name, num_parsed):
    text = FORMS[name]
    flat, nested, renamed = (
        tmp_path / each for each in ("flat", "nested", "renamed.txt")
    )
    flat.mkdir()
    (nested / "ml-x").mkdir(parents=True)
    for path in (flat / name, nested / "ml-x" / name, renamed):
        path.write_text(text)
    others = {"ml-x/README": "read me", "__MACOSX/ml-x/._" + name: "fork"}
    flat_zip = write_zip(tmp_path / "flat.zip", {name: text})
    members = {"ml-x/" + name: text, **others}
    nested_zip = write_zip(tmp_path / "nested.ZIP", members)
    sources = {
        flat / name: flat / name,
        flat: flat / name,
        nested: nested / "ml-x" / name,
        renamed: renamed,
        flat_zip: f"{name} in {flat_zip}",
        nested_zip: f"ml-x/{name} in {nested_zip}",
    }
    for source, told in sources.items():
        for path in (source, str(source)):  # The second is from the cache.
            assert_is_lines(load(path))
            expected = f"{told}: 3 ratings of 2 users and 2 items"
            assert load(path).description == expected
    # The folder `flat` has a file that was parsed.
    assert len(num_parsed) == 5


def test_home_folder_and_cache_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERASMGPU_CACHE", str(tmp_path / "mine"))
    (tmp_path / "u.data").write_text(FORMS["u.data"])
    assert_is_lines(movielens.load("~/u.data"))
    assert len(list(tmp_path.glob("mine/parsed/*.parquet"))) == 1


def test_what_is_written_is_read(tmp_path, load):
    ratings = generate(60, 90, 1500)
    written_data.write_ratings(tmp_path / "ratings.csv", ratings)
    read = load(tmp_path)
    for name in ("users", "items", "values", "user_ids", "item_ids"):
        np.testing.assert_array_equal(
            getattr(read, name), getattr(ratings, name)
        )


def test_sparse_ids_are_numbered_densely(tmp_path, load):
    ids = np.unique(np.linspace(0, 2**31 - 1, 500).astype(int))
    ids = np.random.default_rng(0).permutation(ids)
    text = "".join(f"{each}\t{each}\t3\t9\n" for each in ids)
    (tmp_path / "u.data").write_text(text)
    ratings = load(tmp_path / "u.data")
    for unique_ids, positions in (
        (ratings.user_ids, ratings.users),
        (ratings.item_ids, ratings.items),
    ):
        np.testing.assert_array_equal(unique_ids, np.sort(ids))
        np.testing.assert_array_equal(unique_ids[positions], ids)


@pytest.mark.parametrize(
    "name, more, message",
    [
        ("ratings.csv", "9,20,1,9\n", "Lines 3 and 5 of .*item 20 by user 9"),
        ("u.data", "oops\n", "Line 4 of .*u.data.*'oops'"),
    ],
)
def test_a_wrong_file_leaves_no_cache(tmp_path, load, name, more, message):
    (tmp_path / name).write_text(FORMS[name] + more)
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            load(tmp_path / name)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["missing.csv", "ml-2m", "folder/ml-1m.zip"])
def test_missing_file_or_unknown_name(load, name):
    with pytest.raises(InputError, match=f"{name} is no file") as error:
        load(name)
    assert all(known in str(error.value) for known in datasets.MOVIELENS)


def test_places_without_a_ratings_file_or_with_several(tmp_path, load):
    with pytest.raises(InputError, match="has no ratings file"):
        load(tmp_path)
    deep = {"movies.csv": "1,Toy Story\n", "a/b/ratings.csv": "1,2,3,4\n"}
    path = write_zip(tmp_path / "ml.zip", deep)
    with pytest.raises(InputError, match="ml.zip has no ratings file"):
        load(path)
    for folder in ("ml-1m", "ml-20m"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ratings.csv").write_text("1,2,3,4\n")
    with pytest.raises(InputError, match="several.*ml-1m.*ml-20m"):
        load(tmp_path)


def zip_bytes(compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    text = "".join(f"{n}\t{n}\t{n % 5 + 1}\t9\n" for n in range(5000))
    write_zip(buffer, {"u.data": text}, compression)
    return buffer.getvalue()


def in_headers(content, in_member, in_directory, change):
    """Changes a byte of a member's header and of its entry's."""
    changed = bytearray(content)
    for header, offset in (
        (b"PK\x03\x04", in_member),
        (b"PK\x01\x02", in_directory),
    ):
        place = content.index(header) + offset
        changed[place] = change(changed[place])
    return bytes(changed)


BROKEN = {
    "truncated": (zip_bytes()[:-100], "not a valid zip file"),
    "empty": (b"", "not a valid zip file"),
    "checksum": (
        zip_bytes(zipfile.ZIP_STORED).replace(b"\t9\t5\t", b"\t9\t1\t"),
        "not a valid zip file.*CRC",
    ),
    # A compression method that nobody has.
    "method": (
        in_headers(zip_bytes(), 8, 10, lambda byte: 77),
        "not a valid zip file",
    ),
    "encrypted": (in_headers(zip_bytes(), 6, 8, lambda b: b | 1), "encrypted"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_zip(tmp_path, load, kind):
    content, message = BROKEN[kind]
    (tmp_path / "ml.zip").write_bytes(content)
    with pytest.raises(InputError, match=f"ml.zip.* {message}"):
        load(tmp_path / "ml.zip")
    assert not (tmp_path / "cache").exists()


def test_named_data_set_is_fetched_once(tmp_path, load, serve, num_parsed):
    path = write_zip(tmp_path / "100k.zip", {"ml/u.data": FORMS["u.data"]})
    body = path.read_bytes()
    base_url = serve({"/ml-100k.zip": (200, len(body), body)})
    assert_is_lines(load("ml-100k", base_url=base_url))
    (fetched,) = tmp_path.glob("cache/downloads/*")
    assert fetched.name == "ml-100k.zip"
    assert_is_lines(load("ml-100k", base_url=NOWHERE))
    assert len(num_parsed) == 1


def test_existing_path_goes_before_a_name(tmp_path, load, monkeypatch):
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "ratings.dat").write_text(FORMS["ratings.dat"])
    monkeypatch.chdir(tmp_path)
    assert_is_lines(load("ml-1m", base_url=NOWHERE))


@pytest.mark.skipif(not REAL.exists(), reason="the real file is not here")
def test_real_file_zipped_and_unpacked(tmp_path, load):
    zipped = load(REAL)
    with zipfile.ZipFile(REAL) as archive:
        archive.extractall(tmp_path / "unpacked")
    unpacked = load(tmp_path / "unpacked")
    # The counts are those of the README inside; of its 9,742 movies 18 are
    # not rated.
    for ratings in (zipped, unpacked):
        assert len(ratings) == 100_836
        assert (ratings.num_users, ratings.num_items) == (610, 9_724)
    np.testing.assert_array_equal(zipped.items, unpacked.items)
    # An independent path to the same sums.
    text = (tmp_path / "unpacked/ml-latest-small/ratings.csv").read_text()
    table = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1)
    np.testing.assert_array_equal(zipped.user_ids[zipped.users], table[:, 0])
    np.testing.assert_array_equal(zipped.item_ids[zipped.items], table[:, 1])
    np.testing.assert_array_equal(zipped.values, table[:, 2])


# Splits: ml-100k's u1.base and u1.test, and what ml-10m's script writes.
SPLITS = {"\t": ("u1.base", "u1.test"), "::": ("r1.train", "r1.test")}
TRAIN = [(1, 10, 5), (1, 30, 3), (7, 10, 4), (7, 20, 1), (9, 30, 2)]
TEST = [(1, 20, 4), (9, 10, 2)]
# Item 40, user 8, and both.
UNKNOWN = [(7, 40, 5), (8, 10, 1), (8, 40, 4)]


def write_split(folder, train, test, separator="\t"):
    paths = [folder / name for name in SPLITS[separator]]
    for path, lines in zip(paths, (train, test)):
        path.write_text(text_of(separator, lines))
    return paths


def triples(ratings):
    columns = (
        ratings.user_ids[ratings.users],
        ratings.item_ids[ratings.items],
        ratings.values,
    )
    return list(zip(*(column.tolist() for column in columns)))


@pytest.mark.parametrize("separator", SPLITS)
def test_both_parts_have_the_numbering_of_training(tmp_path, separator):
    paths = write_split(tmp_path, TRAIN, TEST + UNKNOWN, separator)
    train, test, unknown = movielens.load_split(*paths, tmp_path / "cache")
    assert triples(train) == TRAIN
    assert triples(test) == TEST
    assert unknown.tolist() == [5, 1, 4]
    assert test.user_ids.tolist() == train.user_ids.tolist() == [1, 7, 9]
    assert test.item_ids.tolist() == train.item_ids.tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    "test, message",
    [
        ([*TEST, TRAIN[3]], "share 1 ratings, such as .* item 20 by user 7"),
        (UNKNOWN, "No test rating has a user and an item"),
        ([(1, "x", 3)], "Line 1 of .*u1.test is not a rating"),
    ],
)
def test_files_that_are_no_split_are_refused(tmp_path, test, message):
    paths = write_split(tmp_path, TRAIN, test)
    with pytest.raises(InputError, match=message):
        movielens.load_split(*paths, tmp_path / "cache")


def test_the_default_is_three_on_scales_of_five_stars():
    for lowest, highest, expected in ((1, 5, 3), (0.5, 5, 3), (1, 10, 6)):
        biases = Biases(3.5, None, None, lowest, highest)
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
        paths = write_split(tmp_path, train, part)
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
    train, test = write_split(tmp_path, TRAIN, TEST)
    given = dict(data_path=str(train), test_path=str(test)) | keywords
    with pytest.raises(InputError, match=message):
        autoencoder.run(**given)
