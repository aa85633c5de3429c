"""Short figures of the speed in Keras's progress bar.

The bar shows all logs with four decimals, under the names that files have. At
the end of an epoch it gets the speed under a short name, as a number that has a
format of its own. `Progbar.update` (Keras 3.10 to 3.15) divides it by a count
of 1 and formats the result; another version would show its decimals.
"""

import math
from typing import Any

from keras.callbacks import ProgbarLogger

from kerasmgpu.engine.seams import Original, seam

_SHORT = {
    "examples_per_second": ("examples/s", "{:,.0f}"),
    "input_wait_share": ("input wait", "{:.0%}"),
}
"""Names of logs, with the bar's names and formats."""


class _Formatted(float):
    """A float that is shown in a format of its own."""

    def __new__(cls, value: float, text: str) -> "_Formatted":
        made = super().__new__(cls, value)
        made.text = text
        return made

    text: str

    def __truediv__(self, count: Any) -> float:
        return self if count == 1 else float(self) / count

    def __format__(self, form: str) -> str:
        return self.text


@seam(ProgbarLogger, "on_epoch_end")
def _on_epoch_end(
    original: Original,
    self: Any,
    epoch: int,
    logs: dict[str, Any] | None = None,
) -> None:
    shown = {}
    for name, value in (logs or {}).items():
        if name in _SHORT:
            if math.isnan(value):  # All steps were traced.
                continue
            name, form = _SHORT[name]
            value = _Formatted(value, form.format(float(value)))
        shown[name] = value
    original(self, epoch, shown)
