"""A YAML file whose values know their lines, for error messages.

    config = yaml_sections.load(path)
    yaml_sections.override(config, "model.n_gpus=2")
    config.require_keys(required=("model",), optional=("callbacks",))
    raise config["model"].error("n_gpus", "must be 0 or more")

Numbers such as 1e-3 are numbers here (YAML 1.1 wants 1.0e-3), and a duplicate
key is an error.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from kerasmgpu.errors import InputError, one_line
from kerasmgpu.stores.places import opened, place

Path = tuple[str | int, ...]
Place = Callable[[int], str]  # The place of a line, in messages.


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number."""


class _Dumper(yaml.SafeDumper):
    """Quotes strings that would be read back as numbers."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


class Section(dict):
    """A mapping of the file, with the line of each key.

    `path` has the keys and indices from the top of the file; `where` is a text
    such as `"net.yaml, line 3"`.
    """

    def __init__(self, path: Path = (), where: str = "") -> None:
        super().__init__()
        self.path = path
        self.where = where
        self.places: dict[str, str] = {}

    def name(self, key: str) -> str:
        """The dotted name of a key, as `--set` takes it."""
        return ".".join(map(str, (*self.path, key)))

    def error(self, key: str, problem: str) -> InputError:
        """An `InputError` about a key of this section, in one line."""
        where = self.places.get(key, self.where)
        return InputError(f"{where}: {self.name(key)} {one_line(problem)}")

    def require_keys(
        self, required: Sequence[str], optional: Sequence[str] = ()
    ) -> None:
        """Raises `InputError` for a missing or unknown key."""
        known = (*required, *optional)
        for key in self:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                meant = f" (is {near[0]} meant?)" if near else ""
                raise self.error(
                    key, f"is not known{meant}; there are: {', '.join(known)}"
                )
        for key in required:
            if key not in self:
                raise InputError(
                    f"{self.where}: the key {self.name(key)} is missing; "
                    f"expected are {', '.join(required)}"
                )

    def section(self, key: str) -> "Section":
        """The section at `key`; raises `InputError` for another value."""
        value = self[key]
        if not isinstance(value, Section):
            problem = f"must be a mapping of keys. Received: {value!r}"
            raise self.error(key, problem)
        return value


_Dumper.add_representer(Section, _Dumper.represent_dict)


def load(path: Any) -> Section:
    """Reads a file as a `Section`."""
    try:
        with opened(place(path)) as file:
            text = file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Section:
    """Reads a text; messages call it `name`."""
    config = _value(text, lambda line: f"{name}, line {line}", (), name)
    if not isinstance(config, Section):
        raise InputError(
            f"{name} must have keys with values (`model: ...`). Received: "
            f"{config!r}"
        )
    return config


def override(config: Section, assignment: str) -> None:
    """Sets one value of the file, as the flag `--set` does.

    The value in `"model.n_gpus=2"` is YAML. The key of a list's item is its
    number: `"callbacks.0.patience=3"`.
    """
    name, equals, text = assignment.partition("=")
    *parents, key = path = name.strip().split(".")
    place = f"--set {assignment}"
    if not equals or not all(path):
        raise InputError(f"{place}: expected key=value, such as model.n_gpus=2")
    target = config
    for parent in parents:
        target = target[_existing(target, parent, place)]
    if isinstance(target, Section):
        target.places[key] = place
    elif isinstance(target, list):
        key = _existing(target, key, place)
    else:
        raise InputError(f"{place}: {'.'.join(parents)} is a single value")
    target[key] = _value(text, lambda line: place, tuple(path), place)


def _existing(target: Any, key: str, place: str) -> Any:
    """An existing key of a section, or index of a list."""
    if isinstance(target, list):
        if key.isdecimal() and int(key) < len(target):
            return int(key)
        expected = f"a number below {len(target)}"
    elif isinstance(target, Section):
        if key in target:
            return key
        expected = f"one of {', '.join(target)}"
    else:
        expected = "nothing: it is a single value"
    raise InputError(f"{place}: there is no {key}; expected {expected}")


def dump(config: Section) -> str:
    """The file, overrides included, as YAML text."""
    return yaml.dump(
        config, Dumper=_Dumper, sort_keys=False, allow_unicode=True
    )


def flatten(value: Any, path: Path = ()) -> dict[str, Any]:
    """Maps dotted names to the single values of a configuration."""
    if not isinstance(value, (dict, list)):
        return {".".join(map(str, path)): value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    flat = {}
    for key, child in items:
        flat.update(flatten(child, (*path, key)))
    return flat


def _value(text: str, place: Place, path: Path, name: str) -> Any:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise InputError(f"{name} is empty")
        return _construct(loader, node, place, path)
    except yaml.reader.ReaderError as error:
        raise InputError(
            f"{name} is not YAML: character {error.position} is no text"
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = place(mark.line + 1)
        raise InputError(f"{where}: not YAML: {error.problem}") from error
    except RecursionError as error:
        raise InputError(f"{name}: a value contains itself") from error


def _construct(loader: _Loader, node: Any, place: Place, path: Path) -> Any:
    """The value of a node; sections know the lines of their keys."""
    if isinstance(node, yaml.SequenceNode):
        return [
            _construct(loader, child, place, (*path, index))
            for index, child in enumerate(node.value)
        ]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    section = Section(path, place(node.start_mark.line + 1))
    for key_node, _ in node.value:
        where = place(key_node.start_mark.line + 1)
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError(f"{where}: a key must be a single word")
        if key in section.places:
            raise section.error(key, f"is given again, {where.split(', ')[-1]}")
        section.places[key] = where
    # `<<: *other` inserts the keys of another mapping.
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        key = key_node.value
        section.places.setdefault(key, place(key_node.start_mark.line + 1))
        section[key] = _construct(loader, value_node, place, (*path, key))
    return section
