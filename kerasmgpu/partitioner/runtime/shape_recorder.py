"""Writes the form of a step that records what the clusters for XLA take."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from kerasmgpu.partitioner.ir.lowered import Cluster
from kerasmgpu.partitioner.lowering.content_names import functions_in
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step.definitions import (
    XLA_MUST_COMPILE,
    argument,
    set_attributes,
)
from kerasmgpu.partitioner.step.records import Trait, record

_numbers = itertools.count()


class _Argument(NamedTuple):
    """An argument of a cluster.

    Attributes:
        place: Integer, which of the recorded tensors tells what it is.
        is_whole: Whether that tensor is the argument; else it is its shape.
    """

    dtype: tf.DType
    place: int
    is_whole: bool


class ShapeRecorder:
    """Form of a step that runs without XLA and records shapes.

    Args:
        written: The form that XLA compiles.

    Attributes:
        written: `Written` that returns, after the step's outputs, the shape of
            each cluster's arguments; the argument itself if it is no floating-
            point number, or its cluster has a loop.
        number: Integer, number of these tensors.
    """

    def __init__(self, written: Written) -> None:
        self._lowered = written.lowered
        functions = {one.signature.name: one for one in written.library}
        main = function_pb2.FunctionDef()
        main.CopyFrom(written.library[-1])
        main.signature.name += "_recording"
        nodes = {node.name: node for node in main.node_def}
        plain: dict[str, function_pb2.FunctionDef] = {}
        self._calls: dict[str, node_def_pb2.NodeDef] = {}
        self._arguments: dict[str, list[_Argument]] = {}
        places: dict[tuple[str, bool], int] = {}
        types: list[tf.DType] = []
        for cluster in written.lowered.clusters:
            function, call = functions[cluster.function], nodes[cluster.call]
            self._calls[cluster.call] = copy.deepcopy(call)
            if cluster.function not in plain:
                plain[cluster.function] = copy.deepcopy(function)
                plain[cluster.function].signature.name += "_plain"
                del plain[cluster.function].attr[XLA_MUST_COMPILE]
            call.attr["f"].func.name += "_plain"
            del call.attr[XLA_MUST_COMPILE]
            has_loops = _has_loops(function, functions)
            own = self._arguments[cluster.call] = []
            for reference, given in zip(
                call.input, function.signature.input_arg
            ):
                dtype = tf.as_dtype(given.type)
                is_whole = has_loops or not dtype.is_floating
                if (reference, is_whole) not in places:
                    places[reference, is_whole] = len(types)
                    types.append(dtype if is_whole else tf.int32)
                    name = f"recorded_{len(types)}"
                    main.signature.output_arg.append(argument(name, types[-1]))
                    main.ret[name] = reference
                    if not is_whole:
                        node = main.node_def.add(
                            name=name,
                            op="Shape",
                            input=[reference],
                            device=cluster.device,
                        )
                        set_attributes(node, {"T": dtype, "out_type": tf.int32})
                        main.ret[name] = f"{name}:output:0"
                place = places[reference, is_whole]
                own.append(_Argument(dtype, place, is_whole))
        self.number = len(types)
        self.written = written.variant([*plain.values(), main], types)

    def given(
        self, cluster: Cluster, recorded: Sequence[tf.Tensor]
    ) -> list[np.ndarray | tf.TensorSpec]:
        """Returns the arguments of a cluster, from what a step has recorded.

        Of those whose content doesn't matter, shape and type.
        """
        given: list[np.ndarray | tf.TensorSpec] = []
        for dtype, place, is_whole in self._arguments[cluster.call]:
            array = recorded[place].numpy()
            given.append(array if is_whole else tf.TensorSpec(array, dtype))
        return given

    def alone(self, cluster: Cluster) -> Written:
        """Returns a function of a cluster's arguments that only calls it."""
        function = function_pb2.FunctionDef()
        function.signature.name = f"kerasmgpu_alone_{next(_numbers)}"
        node = function.node_def.add()
        node.CopyFrom(self._calls[cluster.call])
        del node.input[:]
        for number, one in enumerate(self._arguments[cluster.call]):
            name = f"argument_{number}"
            node.input.append(name)
            function.signature.input_arg.append(argument(name, one.dtype))
        # TensorFlow prunes a call of which nothing is returned.
        dtype = tf.as_dtype(node.attr["Tout"].list.type[0])
        function.signature.output_arg.append(argument("output", dtype))
        function.ret["output"] = f"{node.name}:output:0"
        return Written([function], [], [dtype], [], [], True, self._lowered)


def _has_loops(
    function: function_pb2.FunctionDef,
    functions: Mapping[str, function_pb2.FunctionDef],
) -> bool:
    """Whether a function, or one that it calls, has a loop."""
    for node in function.node_def:
        called = [
            one.name for v in node.attr.values() for one in functions_in(v)
        ]
        if Trait.LOOP in record(node.op).traits or any(
            _has_loops(functions[name], functions)
            for name in called
            if name in functions
        ):
            return True
    return False
