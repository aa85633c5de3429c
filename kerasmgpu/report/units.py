"""Numbers with their units, as the report shows them."""

import math
from collections.abc import Callable

Format = Callable[[float], str]
_MISSING = "–"


def plain(value: float, digits: int = 4) -> str:
    """A number with so many digits; large ones are grouped: `12,345`."""
    if not math.isfinite(value):
        return _MISSING
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e15 or size < 1e-4:
        return f"{value:.{digits - 1}g}"
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def short(value: float) -> str:
    """A number of an axis: `12k`, `0.25`, `3M`."""
    if not math.isfinite(value):
        return _MISSING
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.4g}{letter}"
    return f"{value:.4g}"


def percent(value: float) -> str:
    """A share as `12 %`; small ones with a decimal."""
    if not math.isfinite(value):
        return _MISSING
    if 0 < value < 0.0005:
        return "< 0.1 %"
    digits = 1 if 0 < abs(value) < 0.0995 else 0
    return f"{100 * value:.{digits}f} %"


def seconds(value: float) -> str:
    """A duration in the unit that fits: `1.25 ms`, `3 min 20 s`."""
    if not math.isfinite(value):
        return _MISSING
    if value >= 3600:
        minutes = round(value / 60)
        return f"{minutes // 60:,} h {minutes % 60:02} min"
    if value >= 120:
        whole = round(value)
        return f"{whole // 60} min {whole % 60:02} s"
    for factor, unit in ((1, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs" if value else "0 s"


def data(value: float) -> str:
    """A number of bytes, in powers of 1024: `1.5 MiB`."""
    if not math.isfinite(value):
        return _MISSING
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1024**power:
            return f"{value / 1024**power:,.4g} {unit}"
    return f"{value:.0f} B"


def with_unit(unit: str, form: Format = plain) -> Format:
    """A format that ends with a unit."""

    def formatted(value: float) -> str:
        text = form(value)
        return text if text == _MISSING else f"{text} {unit}"

    return formatted
