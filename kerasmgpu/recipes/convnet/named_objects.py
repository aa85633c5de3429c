"""Objects that a configuration names: `{class: keras.optimizers.Adam, ...}`.

Every mapping with the key `class` stands for what the function or class of
that dotted name returns for the other keys; they may hold such mappings too. So
a configuration is code.
"""

import difflib
import importlib
import inspect

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet.yaml_sections import Section

CLASS = "class"


def build(section, without=()):
    """Builds what a section stands for, without the keys in `without`.

    Mistakes are told with the line of the file.
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


def built(value):
    """A value of the configuration, with all that it names built."""
    if isinstance(value, list):
        return [built(item) for item in value]
    if isinstance(value, Section):
        if CLASS in value:
            return build(value)
        return {key: built(item) for key, item in value.items()}
    return value


def _function(section):
    """The function or class that the section names."""
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


def _find(section, parts):
    """The object of a dotted name: the longest module, then attributes."""
    for count in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:count])
        try:
            found = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if module_name == error.name or module_name.startswith(
                f"{error.name}."
            ):
                continue  # The name's own module: perhaps it is a class.
            raise section.error(
                CLASS, f"can't be imported: {module_name} needs {error.name}"
            ) from error
        except (ImportError, SyntaxError) as error:
            raise section.error(
                CLASS, f"can't be imported: {module_name}: {error}"
            ) from error
        return _attribute(section, found, module_name, parts[count:])
    raise section.error(
        CLASS,
        f"({'.'.join(parts)}): there is no module {parts[0]}; modules are "
        "looked for in the working folder and in PYTHONPATH",
    )


def _attribute(section, found, name, attributes):
    for attribute in attributes:
        if not hasattr(found, attribute):
            names = [n for n in dir(found) if not n.startswith("_")]
            close = difflib.get_close_matches(attribute, names) or names[:8]
            raise section.error(
                CLASS,
                f"({'.'.join([name, attribute])}): {name} has no {attribute}; "
                f"it has {', '.join(close)}",
            )
        found, name = getattr(found, attribute), f"{name}.{attribute}"
    return found


def _require_keywords(function, section, keywords):
    """Refuses keywords that the signature doesn't have, by name and line."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # Written in C, some have none: the call will tell.
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
