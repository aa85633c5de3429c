"""Results of examples as a page, a line of progress and a sum."""

from tests.keras_io.comparison import VARIANTS

_HEAD = """# Programs after keras.io's examples

{count} programs in the manner of [keras.io's
examples](https://keras.io/examples/): the structure of their models, their
losses, own training steps, callbacks and optimizers, in few units and on
{rows} made-up rows. Each is run on one device, and again under
`tf.distribute.MirroredStrategy` ("stock") and `kerasmgpu.MirroredStrategy` on
2 and on 3 replicas, logical CPU devices, from the same seed (Keras {keras},
TensorFlow {tensorflow}). Batches have {batch} rows, the last one 2: on 2
replicas all divide evenly, on 3 all but the last.

    python -m tests.keras_io                      # all; writes this page
    python -m tests.keras_io --programs=nerf,gan  # parts of names or groups

The command goes on where an earlier one ended (`--results`); a program that
ends its process, or takes too long, is a row. pytest runs a few
(`tests/keras_io/test_examples.py`).

**In parity**: nothing differs by more than rounding: no weight (the
difference relative to that weight's own largest update), none of the logs of
an epoch, and no evaluation, prediction or loss that the program keeps
(relative to the largest entry). Rounding is 1e-7 in float64, in which
programs run unless float32 stands behind their name (1e-4 there). Replicas'
copies of a variable must have the same bits. Loops by hand are in the scope;
their step is run by `strategy.run` on shares of the rows (stock) or by
`kerasmgpu.partition`, that of actor and critic, an eager tape, as it is.

| on | {columns} |
|---{rules}|
| runs | {runs} |
| in parity | {parity} |

The largest difference, and of what if not of a weight; bold where it is not
in parity. Frequent causes under stock: `RuntimeError`: under a strategy Keras
calls a model before its first step, and one with only a `train_step` has no
`call`. `InvalidArgumentError`: mostly a batch to evaluate or predict that
doesn't divide evenly.
Weights: all replicas draw the same dropout masks, means that a program takes
itself are summed, and batches are normalised by each replica's rows
([case by case](parity.md)).

| program | {columns} |
|---{rules}|
"""


def verdict(result):
    """A cell of the table."""
    if "error" in result:
        return f"**{result['error']}**"
    text = f"{result['distance']:.0e}"
    if result["what"] != "weights" and not result["in_parity"]:
        text += f", {result['what']}"
    if result["copies_differ"]:
        text += ", copies differ"
    return text if result["in_parity"] else f"**{text}**"


def sums(results):
    """`{variant: (runs, in parity)}` of `{(name, variant): result}`."""
    return {
        variant: (
            sum(
                "error" not in r
                for (_, v), r in results.items()
                if v == variant
            ),
            sum(
                r.get("in_parity", False)
                for (_, v), r in results.items()
                if v == variant
            ),
        )
        for variant in VARIANTS
    }


def page(examples, results, **facts):
    """The page's Markdown."""
    counts = sums(results)
    text = _HEAD.format(
        count=len(examples),
        columns=" | ".join(f"{who}, {count}" for who, count in VARIANTS),
        rules="|---" * len(VARIANTS),
        runs=" | ".join(str(counts[v][0]) for v in VARIANTS),
        parity=" | ".join(str(counts[v][1]) for v in VARIANTS),
        **facts,
    )
    for name, example in examples.items():
        title = f"[{name}](https://keras.io/{example.page}/)"
        if example.precision != "float64":
            title += f" ({example.precision})"
        cells = [verdict(results[name, variant]) for variant in VARIANTS]
        text += f"| {example.group}: {title} | {' | '.join(cells)} |\n"
    return text
