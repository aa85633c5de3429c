"""Dotted names become objects, or one line says what was tried."""

import keras
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet import named_objects, yaml_sections


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(
        "import keras\n"
        "NUMBER = 3\n"
        "def net(units=1):\n"
        "    if units < 1:\n"
        "        raise ValueError('units must be\\nat least 1')\n"
        "    return keras.Sequential([keras.layers.Dense(units)])\n"
        "def broken():\n"
        "    return {}['missing']\n"
    )
    (tmp_path / "my_imports.py").write_text("import no_such_package\n")
    (tmp_path / "my_syntax.py").write_text("def net(:\n")
    monkeypatch.syspath_prepend(tmp_path)


def build(text, **keywords):
    config = yaml_sections.parse(text, "net.yaml")
    return named_objects.build(config, **keywords)


def test_a_class_gets_its_keywords_and_nested_objects():
    optimizer = build(
        "class: keras.optimizers.SGD\n"
        "learning_rate:\n"
        "  class: keras.optimizers.schedules.CosineDecay\n"
        "  initial_learning_rate: 1e-1\n"
        "  decay_steps: 10\n"
    )
    assert isinstance(optimizer, keras.optimizers.SGD)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)


def test_a_function_without_what_is_not_for_it():
    model = build("class: my_nets.net\nunits: 2\nn_gpus: 4", without=["n_gpus"])
    assert model.layers[0].units == 2


@pytest.mark.parametrize(
    "text, message",
    [
        ("units: 3", "line 1: the key class is missing"),
        ("class: 3", "line 1: class must be a dotted name .* Received: 3"),
        ("class: ConvNet", "must be a dotted name"),
        ("class: no_nets.ConvNet", "no module no_nets; modules are looked"),
        ("class: my_nets.nett", "my_nets has no nett; it has net"),
        ("class: my_nets.net.a", "my_nets.net has no a"),
        ("class: my_nets.NUMBER", "no class or function"),
        ("class: my_imports.net", "my_imports needs no_such_package"),
        ("class: my_syntax.net", "can't be imported: my_syntax"),
        (
            "class: my_nets.net\nunit: 3",
            "line 2: unit is no keyword of my_nets.net; there are: units",
        ),
        ("class: my_nets.net\nunits: 0", "line 1: .*refused its keywords"),
        ("class: keras.optimizers.SGD\nrate: 1", "line 1: .*rate"),
    ],
)
def test_mistakes_name_the_line(text, message):
    with pytest.raises(InputError, match=message) as raised:
        build(text)
    assert str(raised.value).startswith("net.yaml, line ")


def test_defects_of_the_users_code_keep_their_traceback():
    with pytest.raises(KeyError, match="missing"):
        build("class: my_nets.broken")
