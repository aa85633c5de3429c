"""Adds up the floating-point operations of a training step."""

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kerasmgpu.hardware.data_sheets import Device
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.sizes import SizeLike


@dataclasses.dataclass(frozen=True)
class Product:
    """One counted operation of a step: a matrix product, convolution, FFT ….

    Attributes:
        name: String, name of the operation.
        dtype: String, data type of its factors.
        flops: Integer or `sizes.Size`, operations in all rounds of its loops.
        is_backward: Whether it is of the backward pass.
        is_recomputed: Whether it repeats a computation of the forward pass.
        parts: Integer, into how many parts devices divide it.
    """

    name: str
    dtype: str
    flops: SizeLike
    is_backward: bool
    is_recomputed: bool
    parts: int = 1


@dataclasses.dataclass(frozen=True)
class StepFlops:
    """Floating-point operations of a step of all replicas together.

    Attributes:
        products: List of `Product`.
        uncounted: Counter of types of operations that no rule counts.
        elementwise: Counter of types of operations that, by convention, are
            not counted.
    """

    products: list[Product]
    uncounted: "collections.Counter[str]"
    elementwise: "collections.Counter[str]"

    def by_dtype(
        self, rows: float | None = None, recomputed: bool = False
    ) -> dict[str, float] | None:
        """Returns the operations by data type of the factors.

        Args:
            rows: Number, rows of the global batch. Not needed if the step was
                traced for a fixed number.
            recomputed: Whether to count recomputations, as hardware FLOPs do
                and model FLOPs do not.

        Returns:
            Dictionary from data types to operations; `None` if they depend on
            unknown sizes, or on `rows` while that is `None`.
        """
        total: dict[str, float] = {}
        for one in self._counted(recomputed):
            flops = value(one.flops, rows)
            if flops is None:
                return None
            total[one.dtype] = total.get(one.dtype, 0) + flops
        return total

    def total(
        self, rows: float | None = None, recomputed: bool = False
    ) -> float | None:
        """Returns the operations of a step; arguments as for `by_dtype`."""
        by_dtype = self.by_dtype(rows, recomputed)
        return None if by_dtype is None else sum(by_dtype.values())

    def seconds_at_peak(
        self, device: Device, rows: float | None, tensor_float_32: bool = True
    ) -> float | None:
        """Returns the shortest possible time of a step on one device.

        Model FLOPs utilisation is this time, divided by the replicas and by the
        time that a step takes.

        Args:
            rows: Integer, rows of the global batch.
            tensor_float_32: See `Device.peak`.

        Returns:
            Float, seconds; `None` if the operations, or the device's peak for
            one of their data types, are unknown.
        """
        seconds = 0.0
        by_dtype = self.by_dtype(rows)
        for dtype, flops in ({} if by_dtype is None else by_dtype).items():
            peak = device.peak(dtype, tensor_float_32)
            if peak is None:
                return None
            seconds += flops / peak
        return None if by_dtype is None else seconds

    def formula(self, recomputed: bool = False) -> str:
        """Returns the operations as text, by rows: `"1.2e+09 · rows + 3e+06"`."""
        return text(
            sizes.sum_of(one.flops for one in self._counted(recomputed))
        )

    def unknown(self) -> list[str]:
        """Returns the names of unknown sizes and loop counts (besides rows)."""
        return sorted(
            {
                symbol.name
                for one in self.products
                for symbol in getattr(one.flops, "symbols", ())
                if not symbol.joined.is_rows
            }
        )

    def by_layer(self, paths: Collection[str]) -> dict[str, list[Product]]:
        """Returns the products of each layer, in the order of the step.

        Args:
            paths: Paths of layers, `"model/block/dense"`, and of all of their
                parents.

        Returns:
            Dictionary from paths to products. Those outside of layers are
            under their first name scope.
        """
        found: dict[str, list[Product]] = {}
        for one in self.products:
            found.setdefault(layer_of(one.name, paths), []).append(one)
        return found

    def _counted(self, recomputed: bool) -> Iterator[Product]:
        return (
            one for one in self.products if recomputed or not one.is_recomputed
        )


def value(flops: SizeLike, rows: float | None) -> float | None:
    """Evaluates a number of operations for a global batch of `rows`.

    `None` if they depend on other sizes, or on `rows` while that is `None`.
    """
    if isinstance(flops, int):
        return flops
    if rows is None or not all(s.joined.is_rows for s in flops.symbols):
        return None
    values: dict[sizes.Symbol, Any] = dict.fromkeys(flops.symbols, rows)
    return sizes.evaluate(flops, values)


def text(flops: SizeLike) -> str:
    """Formats operations as a sum of terms, those with most factors first."""
    if isinstance(flops, int):
        return f"{flops:.4g}"
    terms: collections.Counter[tuple[str, ...]] = collections.Counter()
    for symbols, coefficient in flops.terms.items():
        names = ("rows" if s.joined.is_rows else s.name for s in symbols)
        terms[tuple(sorted(names))] += coefficient
    ordered = sorted(terms.items(), key=lambda term: -len(term[0]))
    return " + ".join(
        " · ".join([f"{coefficient:.4g}", *names])
        for names, coefficient in ordered
    )


def layers_in(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields a model and all layers in it, each behind its path.

    Args:
        layer: `keras.Model` or layer.
        path: Its path. Default: its name.
    """
    path = path or layer.name
    yield path, layer
    for inner in layer._flatten_layers(recursive=False, include_self=False):
        yield from layers_in(inner, f"{path}/{inner.name}")


def layer_of(operation: str, paths: Collection[str]) -> str:
    """Returns the path of the layer that an operation belongs to.

    For an operation outside of all layers, returns its first name scope, or
    else its name. Keras opens a name scope per call of a layer, to which
    TensorFlow appends a number; gradients have their layer's scope after a
    prefix. Where the scopes begin with a layer that is not the model, as in
    `keras.remat` and in a `train_step` of several models, the path is
    completed.

    Args:
        paths: See `StepFlops.by_layer`.
    """
    *scopes, _ = re.split("gradients/", operation)[-1].split("/")
    path = ""
    for scope in scopes:
        for name in (re.sub(r"_\d+$", "", scope), scope):
            inner = _inside(path, name, paths)
            if inner is not None:
                path = inner
                break
    first = [scope for scope in scopes if scope != "gradient_tape"]
    return path or "/".join(first[:1]) or operation


def _inside(path: str, name: str, paths: Collection[str]) -> str | None:
    """Returns the path of the layer `name` in the layer `path`, or `None`.

    If `path` is empty, returns the outermost layer of that name.
    """
    if path:
        inner = f"{path}/{name}"
        return inner if inner in paths else None
    found: Iterable[str] = (
        one for one in paths if one.rsplit("/", 1)[-1] == name
    )
    return min(found, key=lambda one: one.count("/"), default=None)
