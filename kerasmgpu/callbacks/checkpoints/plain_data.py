"""Encodes numbers, strings, `None`, arrays, lists, tuples and dicts as JSON.

Arrays and NumPy scalars go into a separate list, and the JSON holds their
indices in it: type and bits are preserved.
"""

from typing import Any

import numpy as np

_DEEPEST = 50
"""Levels of containers; a deeper nesting is treated as a cycle."""


class NotPlainError(TypeError):
    """Raised for a value that is or contains something but plain data."""


def encode(value: Any, arrays: list[Any], depth: int = 0) -> Any:
    """Returns `value` in a form that `json` can write.

    Args:
        value: `None`, boolean, number, string, NumPy scalar or array, or a
            list, tuple or dictionary of such.
        arrays: List to which copies of the arrays in `value` are appended.
        depth: Integer, number of containers around `value`.

    Returns:
        Data for `decode`.

    Raises:
        NotPlainError: If `value` contains any other type, or containers nested
            more than 50 deep.

    Example:

    ```python
    arrays = []
    text = json.dumps(encode({"best": np.float32(0.1)}, arrays))
    assert decode(json.loads(text), arrays) == {"best": np.float32(0.1)}
    ```
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > _DEEPEST:
        raise NotPlainError("containers are nested too deep, or in a circle")
    if kind in (list, tuple):
        items = [encode(item, arrays, depth + 1) for item in value]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        pairs = [
            [encode(part, arrays, depth + 1) for part in pair]
            for pair in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in (
        "biufc"
    ):
        arrays.append(np.array(value))
        stored = "array" if isinstance(value, np.ndarray) else "scalar"
        return {stored: len(arrays) - 1}
    raise NotPlainError(f"{type(value).__name__} is not plain data")


def decode(data: Any, arrays: list[Any]) -> Any:
    """Returns the value that `encode` turned into `data` and `arrays`."""
    if isinstance(data, list):
        return [decode(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "tuple":
        return tuple(decode(item, arrays) for item in content)
    if kind == "dict":
        return {
            decode(key, arrays): decode(value, arrays) for key, value in content
        }
    return arrays[content].copy() if kind == "array" else arrays[content][()]
