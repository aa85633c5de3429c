"""Objects that a configuration names: `{class: keras.optimizers.Adam, ...}`.

A mapping with the key `class` is a call of the function or class of that dotted
name; the other keys are its keywords, which may hold such mappings, too. So a
configuration is code.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerasmgpu.commands import search_path
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet.yaml_sections import Section

CLASS = "class"


def build(section: Section, without: Sequence[str] = ()) -> Any:
    """Builds a section's object, without the keys in `without`.

    Errors name the line of the file.
    """
    function = _function(section)
    keywords = {
        key: built(value)
        for key, value in section.items()
        if key not in (CLASS, *without)
    }
    _require_keywords(function, section, keywords)
    try:
        return function(**keywords)
    except (TypeError, ValueError) as error:
        raise section.error(
            CLASS, f"({section[CLASS]}) refused its keywords: {error}"
        ) from error


def build_a(kind: type, section: Section, without: Sequence[str] = ()) -> Any:
    """Builds a section's object, which must be a Keras object of this kind."""
    found = build(section, without)
    if not isinstance(found, kind):
        raise section.error(
            CLASS, f"must make a keras.{kind.__name__}. Received: {found!r}"
        )
    return found


def built(value: Any) -> Any:
    """A value of the configuration, with all its named objects built."""
    if isinstance(value, list):
        return [built(item) for item in value]
    if isinstance(value, Section):
        if CLASS in value:
            return build(value)
        return {key: built(item) for key, item in value.items()}
    return value


def _function(section: Section) -> Callable[..., Any]:
    if CLASS not in section:
        raise InputError(
            f"{section.where}: the key {section.name(CLASS)} is missing; "
            "expected a dotted name such as my_nets.ConvNet"
        )
    name = section[CLASS]
    if not isinstance(name, str) or "." not in name.strip("."):
        raise section.error(
            CLASS,
            f"must be a dotted name such as my_nets.ConvNet. Received: {name}",
        )
    function = _find(section, name.split("."))
    if not callable(function):
        raise section.error(CLASS, f"({name}) is no class or function")
    return function


def _find(section: Section, parts: Sequence[str]) -> Any:
    """Finds an object by its dotted name: a module, then attributes of it."""
    for count in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:count])
        try:
            found = search_path.load(module_name)
        except (ImportError, SyntaxError) as error:
            problem = f"can't be imported: {module_name}: {error}"
            if isinstance(error, ModuleNotFoundError):
                if f"{module_name}.".startswith(f"{error.name}."):
                    continue  # No module: perhaps it is a class.
                problem = f"can't be imported: {module_name} needs {error.name}"
            raise section.error(CLASS, problem) from error
        break
    else:
        raise section.error(
            CLASS,
            f"({'.'.join(parts)}): there is no module {parts[0]}; modules are "
            "looked for in the working folder and in PYTHONPATH",
        )
    for attribute in parts[count:]:
        if not hasattr(found, attribute):
            names = [n for n in dir(found) if not n.startswith("_")]
            close = difflib.get_close_matches(attribute, names) or names[:8]
            raise section.error(
                CLASS,
                f"({module_name}.{attribute}): {module_name} has no "
                f"{attribute}; it has {', '.join(close)}",
            )
        found = getattr(found, attribute)
        module_name += f".{attribute}"
    return found


def _require_keywords(
    function: Callable[..., Any], section: Section, keywords: Mapping[str, Any]
) -> None:
    """Refuses keywords that aren't in the signature, with their line."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # Some functions in C have none; the call raises then.
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    names = [
        p.name
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    for key in keywords:
        if key not in names:
            raise section.error(
                key,
                f"is no keyword of {section[CLASS]}; there are: "
                f"{', '.join(names) or 'none'}",
            )
