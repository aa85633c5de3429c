"""Layouts that are found: Megatron-LM's, counted as the programs count."""

import collections
import dataclasses
import itertools

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.lowered import Form
from kerasmgpu.partitioner.planning.planner import PlanCache
from kerasmgpu.partitioner.rules.kinds import ListOf
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.strategies.divisible_variables import DivisibleVariables
from kerasmgpu.strategies.imagined_steps import ImaginedSteps
from kerasmgpu.strategies.layout_report import prepared_step
from kerasmgpu.strategies.layout_search import Cost, _can_divide
from tests.devices import device_names

distribution = keras.distribution
ROWS, TOKENS, WORDS, UNITS = 8, 6, 40, 32
X = np.arange(ROWS * TOKENS).reshape(ROWS, TOKENS) % WORDS


def built(attends=True):
    keras.utils.set_random_seed(1)
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = keras.layers.Embedding(WORDS, UNITS, name="table")(tokens)
    if attends:
        x = x + keras.layers.MultiHeadAttention(4, 8, name="attend")(x, x)
    wide = keras.layers.Dense(130, "gelu", name="up")(x)
    x = x + keras.layers.Dense(UNITS, name="down")(wide)
    model = keras.Model(tokens, keras.layers.Dense(WORDS, name="head")(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def model():
    with kerasmgpu.strategy(num_replicas=1).scope():
        return built()


@pytest.fixture(scope="module")
def found(model):
    return kerasmgpu.find_layout(model, (X, X), (2, 2))


@pytest.fixture(scope="module")
def blocks():
    """A model whose search is short."""
    with kerasmgpu.strategy(num_replicas=1).scope():
        return built(attends=False)


@pytest.fixture(scope="module")
def found_blocks(blocks):
    return kerasmgpu.find_layout(blocks, (X, X), (2, 2))


@pytest.fixture(scope="module")
def recurrent():
    with kerasmgpu.strategy(num_replicas=1).scope():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.LSTM(8, name="cell"), keras.layers.Dense(6)]
        model = keras.Sequential([keras.Input((TOKENS, UNITS)), *layers])
        model.compile(keras.optimizers.Adafactor(), "mse")
    return model


def model_and_data(request, of):
    if of == "recurrent":
        x, y = np.ones((ROWS, TOKENS, UNITS), "f"), np.ones((ROWS, 6), "f")
    else:
        x, y = X, X
    return request.getfixturevalue(of), x, y


def steps_of(model, x, y, axes):
    program, rows = prepared_step(model, (x, y))
    variables = DivisibleVariables(model)
    slowness = dict.fromkeys(axes, 1.0)
    first = next(iter(axes))
    steps = ImaginedSteps(program, variables, axes, first, rows, slowness)
    return variables, steps


def random_layout(random, variables, sizes):
    """Divides variables as it happens."""
    layout = []
    for one in variables.variables:
        options = itertools.product(
            (None, *range(len(one.shape))), repeat=len(sizes)
        )
        options = [o for o in options if _can_divide(o, one.shape, sizes)]
        layout.append(options[random.integers(len(options))])
    return tuple(layout)


@pytest.mark.parametrize(
    "of, axes",
    [
        ("model", {"a": 2, "b": 2}),
        ("recurrent", {"a": 4}),
        pytest.param("model", {"a": 4}, marks=pytest.mark.nightly),
        pytest.param("model", {"b": 3}, marks=pytest.mark.nightly),
        pytest.param("recurrent", {"a": 2, "b": 2}, marks=pytest.mark.nightly),
    ],
)
def test_layouts_are_counted_as_they_are_lowered(request, of, axes):
    """Whatever was planned before, and although most isn't lowered."""
    model, x, y = model_and_data(request, of)
    variables, steps = steps_of(model, x, y, axes)
    random = np.random.default_rng(0)
    for _ in range(4):
        sizes = tuple(axes.values())
        layout = random_layout(random, variables, sizes)
        laid_out = steps._laid_out(layout)
        alone = steps_of(model, x, y, axes)[1]._laid_out(layout)
        sent = [
            counted(costs)
            for costs in (
                laid_out.costs(ROWS),
                Costs(alone.lowered(Form()), ROWS),
            )
        ]
        assert sent[0] == sent[1] and sent[0]
        assert steps.cost(layout).flops > 0


@pytest.mark.parametrize(
    "of, axes",
    [
        ("model", {"a": 2, "b": 2}),
        pytest.param("model", {"a": 4}, marks=pytest.mark.slow),
        pytest.param("recurrent", {"a": 2, "b": 2}, marks=pytest.mark.slow),
    ],
)
def test_stretches_that_are_kept_are_planned_as_from_nothing(request, of, axes):
    model, x, y = model_and_data(request, of)
    variables, steps = steps_of(model, x, y, axes)
    random = np.random.default_rng(0)
    layout = list(variables.whole(len(axes)))
    for _ in range(20):
        other = random_layout(random, variables, tuple(axes.values()))
        number = random.integers(len(layout))
        if random.random() < 0.5:  # Back and forth, as a search goes.
            other = variables.whole(len(axes))
        layout[number] = other[number]
        kept = steps._laid_out(tuple(layout))
        axes_of = {
            tensor: layout[number] for tensor, number in steps._numbers.items()
        }
        anew = steps._planned.laid_out(axes_of, (), PlanCache())
        assert list(map(told, kept.plans)) == list(map(told, anew.plans))


def told(plans):
    """Returns what plans say, also those of bodies."""

    def of(kind):
        return str(kind) if isinstance(kind, ListOf) else kind

    nodes = {
        node: dataclasses.replace(
            plan,
            wants=list(map(of, plan.wants)),
            gives=list(map(of, plan.gives)),
            details=list(map(told, plan.details or ())),
        )
        for node, plan in plans.nodes.items()
    }
    kinds = {tensor: of(kind) for tensor, kind in plans.kinds.items()}
    return nodes, kinds, plans.free, plans.stored


def counted(costs):
    """Counts what is sent of each tensor, by name."""
    return collections.Counter(
        (one.kind, one.axes, str(one.tensor).replace("/again", ""), one.sent)
        for one in costs.sendings()
    )


def mesh_of(shape, names=("batch", "model")):
    devices = [name.lower() for name in device_names(int(np.prod(shape)))]
    return distribution.DeviceMesh(shape, names, devices)


def spec(found, path):
    layout = found.layout_map(mesh_of((2, 2)))[path]
    return None if layout is None else tuple(layout.axes)


@pytest.mark.nightly
def test_it_is_megatrons_for_attention_and_wide_layers(found):
    for name in ("query", "key", "value"):
        assert spec(found, f"attend/{name}/kernel") == (None, "model", None)
    output = spec(found, "attend/attention_output/kernel")
    assert output == ("model", None, None)
    assert spec(found, "up/kernel") == (None, "model")
    assert spec(found, "up/bias") == ("model",)
    assert spec(found, "down/kernel") == ("model", None)


@pytest.mark.nightly
def test_a_model_with_it_sends_and_holds_what_was_counted(found):
    layouts = found.layout_map(mesh_of((2, 2)))
    distribution.set_distribution(
        distribution.ModelParallel(layout_map=layouts)
    )
    report = kerasmgpu.layout_report(built(), (X, X))
    assert report.sent == sum(found.sent.values())
    metrics = 2 * 2 * 4  # Sums and counts of the loss and the accuracy.
    assert report.held == found.held + metrics


def test_what_is_printed_makes_the_map(found_blocks):
    found = found_blocks
    text = str(found)
    compile(text, "program", "exec")  # All lines of a program.
    assert "keras.distribution.set_distribution(" in text
    assert f"{found.held:,} of {found.whole:,} bytes" in text
    mesh = mesh_of((2, 2))
    lines = [line for line in text.splitlines() if "layouts[" in line]
    layouts = distribution.LayoutMap(mesh)
    exec("\n".join(lines), {"layouts": layouts})
    assert {key: tuple(layouts[key].axes) for key in layouts.keys()} == (
        found.layouts
    )


@pytest.mark.slow
def test_a_bound_is_kept_by_the_axis_of_the_rows(blocks, found_blocks):
    bound = found_blocks.held * 6 // 10
    bounded = kerasmgpu.find_layout(blocks, (X, X), (2, 2), memory=bound)
    assert bounded.held <= bound
    assert bounded.held < found_blocks.held <= found_blocks.whole

    def divided_by_rows(one):
        return sum("batch" in axes for axes in one.layouts.values())

    assert divided_by_rows(bounded) > divided_by_rows(found_blocks)


def test_a_start_is_never_made_worse(blocks, found_blocks):
    start = found_blocks.layout_map(mesh_of((2, 2)))
    again = kerasmgpu.find_layout(blocks, (X, X), (2, 2), start=start)

    def total(one):
        share = found_blocks.flops
        return Cost(one.flops, share, sum(one.sent.values()), one.held).total()

    assert total(again) <= total(found_blocks)


def test_slow_links_are_spared(blocks, found_blocks):
    """Bytes along the axis of the variables count a thousand times."""
    slow = kerasmgpu.find_layout(blocks, (X, X), (2, 2), links=(1000, 1))
    assert slow.sent["model"] < found_blocks.sent["model"] / 10


def test_a_mesh_of_one_device_needs_no_search(model):
    found = kerasmgpu.find_layout(model, (X, X), (1, 1))
    assert found.layouts == {} and found.held == found.whole


def test_tables_are_divided_by_rows_where_few_are_looked_up():
    with kerasmgpu.strategy(num_replicas=1).scope():
        user = keras.Input((1,), dtype="int32")
        table = keras.layers.Embedding(3000, 16, name="users")
        x = keras.layers.Flatten()(table(user))
        model = keras.Model(user, keras.layers.Dense(8, name="last")(x))
        model.compile("adam", "mse")
    batch = np.ones((12, 1), "int32"), np.ones((12, 8), "float32")
    found = kerasmgpu.find_layout(model, batch, (4, 1))
    assert found.layouts == {"users/embeddings": ("batch", None)}


def test_axes_have_the_names_of_a_mesh(blocks):
    mesh = mesh_of((1, 2), ("rows", "units"))
    found = kerasmgpu.find_layout(blocks, (X, X), mesh)
    assert found.axes == {"rows": 1, "units": 2}
    assert {axis for axes in found.layouts.values() for axis in axes} <= {
        "units",
        None,
    }


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(mesh=()), "sizes of its axes"),
        (dict(mesh=(0, 2)), "each size of mesh"),
        (dict(mesh=8), "sizes of its axes"),
        (dict(mesh=(2, 2), start={"a": ("batch",)}), "start is a"),
        (dict(mesh=(2, 2), memory=0), "memory"),
        (dict(mesh=(2, 2), memory=1000), "would hold at least"),
        (dict(mesh=(2, 2), links=(1,)), "for each mesh axis"),
        (dict(mesh=(2, 2), links=(1, 0)), "above 0"),
        (dict(mesh=(2, 2), links=("1", 1)), "above 0"),
    ],
)
def test_bad_arguments_are_named(model, settings, message):
    with pytest.raises(InputError, match=message):
        kerasmgpu.find_layout(model, (X, X), **settings)


def test_a_model_of_no_strategy_is_refused():
    with pytest.raises(InputError, match="find_layout is for a model"):
        kerasmgpu.find_layout(built(), (X, X), (2, 2))
