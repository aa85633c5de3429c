import http.server
import io
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import datasets
from kerasmgpu.recipes.datasets import (
    generated_ratings,
    movielens,
    ratings_table,
)
from tests.recipes.datasets import ratings_file

REAL = Path(__file__, "../../../../shared/data/ml-latest-small.zip").resolve()

# User 9 comes before user 4, and item ids have gaps.
LINES = [(9, 300, 4.0), (9, 20, 3.5), (4, 300, 5.0)]
HEADER = "userId,movieId,rating,timestamp\n"


def text_of(separator, header=""):
    lines = [separator.join(map(str, (*line, 978300760))) for line in LINES]
    return header + "\n".join(lines) + "\n"


FORMS = {
    "u.data": text_of("\t"),
    "ratings.dat": text_of("::"),
    "ratings.csv": text_of(",", HEADER),
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


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
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
def test_file_folder_and_zip(tmp_path, load, name):
    text = FORMS[name]
    flat, nested, renamed = (
        tmp_path / each for each in ("flat", "nested", "renamed.txt")
    )
    flat.mkdir()
    (nested / "ml-x").mkdir(parents=True)
    for path in (flat / name, nested / "ml-x" / name, renamed):
        path.write_text(text)
    others = {"ml-x/README": "read me", "__MACOSX/ml-x/._" + name: "fork"}
    sources = [
        flat / name,
        flat,
        nested,
        renamed,
        write_zip(tmp_path / "flat.zip", {name: text}),
        write_zip(tmp_path / "nested.ZIP", {"ml-x/" + name: text, **others}),
    ]
    for source in sources:
        assert_is_lines(load(source))
        assert_is_lines(load(str(source)))  # from the cache


def test_home_folder(tmp_path, load, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "u.data").write_text(FORMS["u.data"])
    assert_is_lines(load("~/u.data"))


def test_description_tells_source_and_counts(tmp_path, load):
    path = write_zip(tmp_path / "ml.zip", {"ml/u.data": FORMS["u.data"]})
    expected = f"ml/u.data in {path}: 3 ratings of 2 users and 2 items"
    assert load(path).description == expected
    assert load(path).description == expected


def test_second_load_comes_from_the_cache(tmp_path, load, num_parsed):
    (tmp_path / "u.data").write_text(FORMS["u.data"])
    for _ in range(2):
        assert_is_lines(load(tmp_path / "u.data"))
    assert len(num_parsed) == 1


def test_cache_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASMGPU_CACHE", str(tmp_path / "mine"))
    (tmp_path / "u.data").write_text(FORMS["u.data"])
    movielens.load(tmp_path / "u.data")
    assert len(list(tmp_path.glob("mine/parsed/*.parquet"))) == 1


def test_what_is_written_is_read(tmp_path, load):
    ratings = generated_ratings.generate(60, 90, 1500)
    ratings_file.write(tmp_path / "ratings.csv", ratings)
    read = load(tmp_path)
    for name in ("users", "items", "values", "user_ids", "item_ids"):
        np.testing.assert_array_equal(
            getattr(read, name), getattr(ratings, name)
        )


@pytest.mark.parametrize("largest", [1000, 3 << 20, 2**31 - 1])
def test_sparse_ids_are_numbered_densely(tmp_path, load, largest):
    # The largest ids are searched for, smaller ones are looked up.
    ids = np.unique(np.linspace(0, largest, 500).astype(int))
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


def test_second_rating_of_a_pair_is_an_error(tmp_path, load):
    (tmp_path / "ratings.csv").write_text(FORMS["ratings.csv"] + "9,20,1,9\n")
    message = "Lines 3 and 5 of .*rate item 20 by user 9"
    with pytest.raises(InputError, match=message):
        load(tmp_path)


def test_line_that_does_not_parse_leaves_no_cache(tmp_path, load):
    (tmp_path / "u.data").write_text(FORMS["u.data"] + "oops\n")
    for _ in range(2):
        with pytest.raises(InputError, match="Line 4 of .*u.data.*'oops'"):
            load(tmp_path / "u.data")
    assert not (tmp_path / "cache").exists()


def test_line_in_a_zip_is_named(tmp_path, load):
    path = write_zip(tmp_path / "ml.zip", {"m/u.data": "1\t2\t3\t4\n1\t2\n"})
    with pytest.raises(InputError, match=r"Line 2 of m/u\.data in .*ml\.zip"):
        load(path)


@pytest.mark.parametrize("name", ["missing.csv", "ml-2m", "folder/ml-1m.zip"])
def test_missing_file_or_unknown_name(load, name):
    with pytest.raises(InputError, match=f"{name} is no file") as error:
        load(name)
    assert all(known in str(error.value) for known in datasets.MOVIELENS)


def test_zip_without_ratings(tmp_path, load):
    deep = {"movies.csv": "1,Toy Story\n", "a/b/ratings.csv": "1,2,3,4\n"}
    path = write_zip(tmp_path / "ml.zip", deep)
    with pytest.raises(InputError, match="ml.zip has no ratings file"):
        load(path)


def test_folder_without_ratings(tmp_path, load):
    with pytest.raises(InputError, match="has no ratings file"):
        load(tmp_path)


def test_several_ratings_files(tmp_path, load):
    for folder in ("ml-1m", "ml-20m"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ratings.csv").write_text("1,2,3,4\n")
    with pytest.raises(InputError, match="several.*ml-1m.*ml-20m"):
        load(tmp_path)


def broken_zips():
    buffer = io.BytesIO()
    text = "".join(f"{n}\t{n}\t{n % 5 + 1}\t9\n" for n in range(5000))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("u.data", text)
    whole = buffer.getvalue()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    unknown = bytearray(whole)  # A compression method that nobody has.
    for header, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        unknown[whole.index(header) + offset] = 77
    return {
        "truncated": whole[:-100],
        "damaged": bytes(damaged),
        "empty": b"",
        "unknown method": bytes(unknown),
    }


@pytest.mark.parametrize("kind", broken_zips())
def test_broken_zip(tmp_path, load, kind):
    path = tmp_path / "ml.zip"
    path.write_bytes(broken_zips()[kind])
    with pytest.raises(InputError) as error:
        load(path)
    # A flipped bit may show as a line that doesn't parse before the checksum
    # at the end of the member is reached.
    assert "ml.zip" in str(error.value)
    if kind != "damaged":
        assert "not a valid zip file" in str(error.value)
    assert not (tmp_path / "cache").exists()


def test_wrong_checksum_of_a_member_that_parses(tmp_path, load):
    path = tmp_path / "ml.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("u.data", FORMS["u.data"])
    path.write_bytes(path.read_bytes().replace(b"9\t300\t4.0", b"9\t300\t1.0"))
    with pytest.raises(InputError, match="not a valid zip file.*CRC"):
        load(path)


def test_encrypted_zip(tmp_path, load):
    path = write_zip(tmp_path / "ml.zip", {"u.data": FORMS["u.data"]})
    content = bytearray(path.read_bytes())
    for header, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="encrypted"):
        load(path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of `tmp_path/server`: its base URL."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "server"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_):
            """Says nothing: the test reports what goes wrong."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_named_data_set_is_fetched_once(tmp_path, load, server, num_parsed):
    served = tmp_path / "server" / "ml-100k.zip"
    write_zip(served, {"ml-100k/u.data": FORMS["u.data"]})
    assert_is_lines(load("ml-100k", base_url=server))
    assert [path.name for path in tmp_path.glob("cache/downloads/*")] == [
        "ml-100k.zip"
    ]
    served.unlink()
    assert_is_lines(load("ml-100k", base_url=server))
    assert len(num_parsed) == 1


def test_existing_path_goes_before_a_name(tmp_path, load, monkeypatch):
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "ratings.dat").write_text(FORMS["ratings.dat"])
    monkeypatch.chdir(tmp_path)
    assert_is_lines(load("ml-1m", base_url="http://127.0.0.1:9"))


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
