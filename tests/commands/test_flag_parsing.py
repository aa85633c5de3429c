"""Flags: numbers of replicas, and what needs an optional package."""

import sys

import pytest
from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.flag_parsing import counts_of_flag, require_package
from kerasmgpu.errors import InputError, checked_counts
from kerasmgpu.recipes import alexnet, autoencoder, convnet


def test_a_flags_texts_are_integers_in_order_each_once():
    assert checked_counts(counts_of_flag(["4", " 1", "4", "2"])) == [1, 2, 4]


@pytest.mark.parametrize(
    "texts, received", [(["2", "x"], "'x'"), (["1.5"], "'1.5'"), (["0"], "0")]
)
def test_what_is_no_count_is_named(texts, received):
    with pytest.raises(InputError, match=f"replica_counts={received}"):
        checked_counts(counts_of_flag(texts))


def test_the_least_count_is_the_commands():
    with pytest.raises(InputError, match="at least 2"):
        checked_counts([1, 2], minimum=2)


def test_none_is_no_count():
    with pytest.raises(InputError, match="must have at least one number"):
        checked_counts([])


def test_what_is_installed_is_not_imported():
    require_package("json.tool", "json", "a test")
    assert "json.tool" not in sys.modules


def test_the_line_says_what_needs_it_and_how_to_get_it():
    with pytest.raises(
        InputError,
        match=r"^--x needs no-such, which is not installed: pip install "
        r"no-such$",
    ):
        require_package("no_such_module", "no-such", "--x")


def test_digits_without_scikit_learn_are_refused_before_anything(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match="--dataset=digits needs scikit-learn"):
        alexnet.run(preset="batch_study")
    with pytest.raises(InputError, match="--batch_sizes must be"):
        alexnet.run(preset="batch_study", batch_sizes=["3"])


def test_ratings_without_polars_are_refused_before_anything(
    monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "polars", None)
    for flag, keywords in (
        ("--data_path", {"data_path": str(tmp_path)}),
        ("--dataset", {"dataset": "ml-100k"}),
    ):
        with pytest.raises(
            InputError, match=f"^{flag}=.* needs polars.*: pip install polars$"
        ):
            autoencoder.run(**keywords)


def test_a_configuration_without_pyyaml_is_refused_before_anything(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match="needs pyyaml.*: pip install pyyaml$"):
        convnet.run()


def documented(model, *, rows: int = 3, rate: float = 0.5, show=True):
    """Does nothing.

    Args:
        model: A model.
        rows: Integer, rows of a
            `batch`.
        rate: Float.
        show: Boolean.

    Returns:
        Nothing.
    """


def test_flags_of_a_functions_arguments():
    values = flags.FlagValues()
    flag_parsing.define_arguments(documented, values)
    assert set(values) == {"rows", "rate"}
    assert values["rows"].help == "Rows of a batch."
    assert (values["rows"].default, values["rate"].default) == (3, 0.5)
    values(["program", "--rows=4"])
    assert values.rows == 4
