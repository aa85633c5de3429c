"""The report's bytes are those that one counts by hand, and the program's."""

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.costs import Costs
from tests.devices import device_names

distribution = keras.distribution
ROWS, FLOAT = 10, 4
X = np.ones((ROWS, 7), "float32")
Y = np.ones((ROWS, 3), "float32")


def built():
    """A layer, and Megatron-LM's pair of layers."""
    inputs = keras.Input((7,))
    x = keras.layers.Dense(6, name="first")(inputs)
    x = keras.layers.Dense(9, "gelu", name="up")(x)
    outputs = keras.layers.Dense(3, name="down")(x)
    model = keras.Model(inputs, outputs, name="pair")
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def devices(count):
    return [name.lower() for name in device_names(count)]


def megatron(count, of_rows=1):
    mesh = distribution.DeviceMesh(
        (of_rows, count), ("rows", "units"), devices(of_rows * count)
    )
    layouts = distribution.LayoutMap(mesh)
    layouts["up/kernel"] = (None, "units")
    layouts["up/bias"] = ("units",)
    layouts["down/kernel"] = ("units", None)
    return distribution.ModelParallel(layout_map=layouts)


def reported(given):
    distribution.set_distribution(given)
    model = built()
    report = kerasmgpu.layout_report(model, (X, Y))
    return model, report, {layer.name: layer for layer in report.layers}


def test_on_two_axes_rows_and_units_are_counted_along_their_own():
    """A ring of two sends as many bytes as the tensor that it sums has."""
    _, report, layers = reported(megatron(2, of_rows=2))
    half = ROWS // 2
    assert layers["up"].weights == FLOAT * (6 * 5 + 5)
    sent = {name: layer.sent["all_reduce"] for name, layer in layers.items()}
    assert sent["first"] == FLOAT * (7 * 6 + 6)
    assert sent["up"] == FLOAT * (half * 6 + (6 * 9 + 9) / 2)
    assert sent["down"] == FLOAT * (half * 3 + 9 * 3 / 2 + 3)
    along = [
        sum(one.along[axes] for one in report.layers[:-1])
        for axes in ((0,), (1,))
    ]
    assert along[1] == FLOAT * half * (6 + 3)
    assert along[0] == sum(sent.values()) - sent["outside of layers"] - along[1]
    rows, units = report.along["rows"], report.along["units"]
    assert rows + units == report.sent and units >= along[1]
    assert f"\nsent: {rows:,} along rows, {units:,} along units" in str(report)


def test_micro_batches_hold_the_same_and_send_each_weight_in_turns():
    reports = []
    for micro_batches in (1, 2):
        strategy = kerasmgpu.MirroredStrategy(
            device_names(2),
            shard="weights",
            min_shard_bytes=0,
            micro_batches=micro_batches,
        )
        with strategy.scope():
            model = built()
        reports.append(kerasmgpu.layout_report(model, (X, Y)))
    one, two = reports
    assert one.held == two.held
    sent = [
        sum(layer.sent.total() for layer in report.layers[:-1])
        for report in reports
    ]
    assert sent[1] == 2 * sent[0]


def test_a_pair_of_layers_sends_two_sums():
    model, report, layers = reported(megatron(2))
    units = 5  # Of 9, on the device that holds most.
    held = {
        "first": 7 * 6 + 6,
        "up": 6 * units + units,
        "down": units * 3 + 3,
    }
    for name, elements in held.items():
        assert layers[name].weights == layers[name].slots == elements * FLOAT
    assert layers["up"].whole == 2 * (6 * 9 + 9) * FLOAT
    # The output of `down`, and the gradient of what `up` reads. With two
    # devices, each sends as much as the tensor has.
    assert not layers["first"].sent
    assert layers["down"].sent == {"all_reduce": ROWS * 3 * FLOAT}
    assert layers["up"].sent == {"all_reduce": ROWS * 6 * FLOAT}
    loss = 2  # The metric's sum and its count.
    assert report.sent == (ROWS * 9 + loss) * FLOAT
    sums = [layer.weights + layer.slots for layer in report.layers]
    assert report.held == sum(sums) < report.whole


def test_copies_send_each_gradient():
    _, report, layers = reported(distribution.DataParallel(devices=devices(4)))
    for layer in (layers[name] for name in ("first", "up", "down")):
        assert layer.weights == layer.slots == layer.whole / 2
        assert layer.combined == {"all_reduce": layer.weights}
        # A ring of 4: twice 3 of 4 parts, rounded up per tensor.
        assert layer.sent["all_reduce"] == pytest.approx(
            1.5 * layer.weights, abs=2
        )


@pytest.mark.parametrize("shard", [None, "weights"])
def test_all_that_the_program_sends_is_counted(shard):
    strategy = kerasmgpu.MirroredStrategy(
        device_names(3), shard=shard, min_shard_bytes=0
    )
    with strategy.scope():
        model = built()
    report = kerasmgpu.layout_report(model, (X, Y))
    (program,) = model.train_function.programs
    found = {}
    for layer in report.layers:
        for kind, count in layer.combined.items():
            found[kind] = found.get(kind, 0) + count
    expected = {}
    for one in Costs(program.written().lowered, ROWS).by_purpose():
        expected[one["kind"]] = expected.get(one["kind"], 0) + one["bytes"]
    assert found == expected
    assert ("all_gather" in found) == (shard == "weights")


def test_the_step_that_was_counted_is_the_one_that_trains():
    keras.utils.set_random_seed(1)
    model, _, _ = reported(megatron(2))
    model.fit(X, Y, batch_size=ROWS, verbose=0)
    assert len(model.train_function.programs) == 1
    weights = model.get_weights()
    distribution.set_distribution(None)
    keras.utils.set_random_seed(1)
    alone = built()
    alone.fit(X, Y, batch_size=ROWS, verbose=0)
    for one, other in zip(weights, alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_shared_layer_is_counted_once():
    distribution.set_distribution(megatron(2))
    dense = keras.layers.Dense(7, name="shared")
    first, inputs = keras.Input((7,)), keras.Input((7,))
    inner = keras.Model(first, dense(first), name="inner")
    model = keras.Model(inputs, dense(inner(inputs)))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    report = kerasmgpu.layout_report(model, (X, X))
    shared, _ = report.layers
    assert shared.name == "inner/shared"
    assert shared.weights == shared.slots == (7 * 7 + 7) * FLOAT
    assert report.held == report.whole


def test_the_table_has_a_line_per_layer_and_the_sums():
    _, report, _ = reported(megatron(2))
    head, *lines = str(report).splitlines()
    assert head.startswith("pair: bytes that each of 2 devices holds")
    assert lines[2].split() == [
        *("up", "140", "140", "504", "50.0%", "240", "all-reduce")
    ]
    assert lines[-1].split()[:1] == ["all"]
    assert lines[-1].split()[-1] == f"{report.sent:,}"


def test_what_can_not_be_counted_is_refused():
    with pytest.raises(InputError, match="'pair', which was not"):
        kerasmgpu.layout_report(built(), (X, Y))
    distribution.set_distribution(megatron(2))
    model = built()
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(InputError, match="run_eagerly=True"):
        kerasmgpu.layout_report(model, (X, Y))


@pytest.mark.parametrize(
    "policy, bytes_each", [("float32", 4), ("mixed_bfloat16", 2)]
)
def test_weights_are_gathered_in_the_type_that_the_step_computes_in(
    policy, bytes_each
):
    """Of two layers, both weights are whole at a time: one gather each."""
    units, rows = 40, 1000
    strategy = kerasmgpu.strategy(
        num_replicas=4, shard="weights", min_shard_bytes=999
    )
    with strategy.scope():
        inputs = keras.Input((units,))
        x = keras.layers.Dense(units, "relu", dtype=policy, name="one")(inputs)
        x = keras.layers.Dense(units, dtype=policy, name="two")(x)
        model = keras.Model(inputs, x)
        model.compile("adam", "mse")
    x = np.ones((rows, units), "float32")
    report = kerasmgpu.layout_report(model, (x, x))
    layers = {layer.name: layer for layer in report.layers}
    kernel = units * units
    for name in ("one", "two"):
        combined = layers[name].combined
        assert combined["all_gather"] == kernel * bytes_each
        assert combined["reduce_scatter"] == kernel * 4


@pytest.mark.parametrize("mode, elements_each", [("int8", 1), ("int4", 2)])
def test_quantized_weights_are_gathered_as_they_are_stored(mode, elements_each):
    """In both passes; the gradient of the first layer's input isn't needed."""
    units, rows = 64, 1000
    strategy = kerasmgpu.strategy(
        num_replicas=4, shard="weights", min_shard_bytes=999
    )
    with strategy.scope():
        inputs = keras.Input((units,))
        x = keras.layers.Dense(units, "relu", name="one")(inputs)
        x = keras.layers.Dense(units, name="two")(x)
        model = keras.Model(inputs, x)
        for name in ("one", "two"):
            model.get_layer(name).quantize(mode)
        model.compile("adam", "mse")
    x = np.ones((rows, units), "float32")
    report = kerasmgpu.layout_report(model, (x, x))
    layers = {layer.name: layer for layer in report.layers}
    stored = units * units // elements_each
    assert layers["one"].combined["all_gather"] == stored
    assert layers["two"].combined["all_gather"] == 2 * stored
    assert "all_gather" not in layers["outside of layers"].combined
