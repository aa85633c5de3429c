"""Values of a YAML file know their lines; mistakes are told with them."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet import yaml_sections

TEXT = """\
model:
  class: my_nets.ConvNet
  n_gpus: 4
  layers: [1, {units: 3}]
optimizer: {class: SGD, learning_rate: 1e-3, decay: -2.5E+1, name: "1e-3"}
"""


def parse(text=TEXT):
    return yaml_sections.parse(text, "net.yaml")


def test_values_have_their_types():
    config = parse()
    assert config["model"]["n_gpus"] == 4
    assert config["model"]["layers"] == [1, {"units": 3}]
    assert config["optimizer"] == {
        "class": "SGD",
        "learning_rate": 0.001,
        "decay": -25.0,
        "name": "1e-3",
    }


def test_errors_have_the_key_and_its_line():
    config = parse()
    error = config["model"].error("n_gpus", "must be 0")
    assert str(error) == "net.yaml, line 3: model.n_gpus must be 0"
    inner = config["model"]["layers"][1]
    assert str(inner.error("units", "no")).startswith(
        "net.yaml, line 4: model.layers.1.units"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "^net.yaml is empty$"),
        ("# nothing", "^net.yaml is empty$"),
        ("- 1", "must have keys with values"),
        ("just text", "must have keys with values"),
        ("a: 1\nb: [1, 2", "^net.yaml, line 2: not YAML"),
        ("a: 1\n\tb: 2", "line 2: not YAML"),
        ("a: 1\n---\nb: 2", "not YAML: but found another document"),
        ("a: 1\nb: 2\na: 3", "^net.yaml, line 1: a is given again, line 3"),
        ("a: !!python/name:os.system x", "line 1: not YAML"),
        ("a: *there", "undefined alias"),
        ("? [1, 2]\n: 3", "line 1: a key must be a single word"),
        ("a: &x [*x]", "contains itself"),
        ("a: &x {b: *x}", "contains itself"),
        ("a: \x01", "not YAML: character 3"),
    ],
)
def test_malformed_files(text, message):
    with pytest.raises(InputError, match=message) as raised:
        parse(text)
    assert "\n" not in str(raised.value)


def test_files_that_are_not_text(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(InputError, match="net.yaml is not a text file"):
        yaml_sections.load(path)
    with pytest.raises(FileNotFoundError):
        yaml_sections.load(tmp_path / "none.yaml")


def test_merged_keys_may_be_given_again():
    config = parse("base: &base {a: 1, b: 2}\nnet:\n  <<: *base\n  b: 3")
    assert config["net"] == {"a": 1, "b": 3}


def test_overrides():
    config = parse()
    for assignment in (
        "model.n_gpus=2",
        "model.new={units: 1e2}",
        "model.layers.1.units=7",
        "model.layers.0=null",
    ):
        yaml_sections.override(config, assignment)
    assert config["model"]["n_gpus"] == 2
    assert config["model"]["new"]["units"] == 100.0
    assert config["model"]["layers"] == [None, {"units": 7}]
    error = config["model"].error("n_gpus", "is odd")
    assert str(error) == "--set model.n_gpus=2: model.n_gpus is odd"


@pytest.mark.parametrize(
    "assignment, message",
    [
        ("model.n_gpus", "expected key=value"),
        ("=2", "expected key=value"),
        ("modle.n_gpus=2", "no modle; expected one of model, optimizer"),
        ("model.layers.5=2", "no 5; expected a number below 2"),
        ("model.n_gpus.a=2", "model.n_gpus is a single value"),
        ("model.n_gpus.a.b=2", "it is a single value"),
        ("model.n_gpus=[", "--set model.n_gpus=.: not YAML"),
        ("model.n_gpus=", "is empty"),
    ],
)
def test_overrides_that_lead_nowhere(assignment, message):
    with pytest.raises(InputError, match=message):
        yaml_sections.override(parse(), assignment)


def test_keys_that_are_missing_or_not_known():
    config = parse()
    config.require_keys(("model",), ("optimizer",))
    with pytest.raises(
        InputError, match=r"line 5: optimizer is not known \(is optimiser"
    ):
        config.require_keys(("model", "optimiser"))
    with pytest.raises(InputError, match="^net.yaml, line 1: .* data is miss"):
        config.require_keys(("model", "optimizer", "data"))
    with pytest.raises(InputError, match="line 3: model.n_gpus must be a map"):
        config["model"].section("n_gpus")


def test_what_is_dumped_is_read_back():
    config = parse()
    yaml_sections.override(config, "optimizer.learning_rate=1e-7")
    again = yaml_sections.parse(yaml_sections.dump(config), "again")
    assert again == config
    assert yaml_sections.flatten(again)["model.layers.1.units"] == 3
