"""Results of examples as a page's sections, a line of progress and a sum."""

import re

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
    python -m tests.keras_io --as_gpus            # as GPUs run them; no page

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

_REPORTS = """## Public bug reports

{count} reports of failures with several GPUs, each in a small program of our
own, run and compared as above; behind its name what was reported. Many are of
older versions, or of GPUs: what works under stock may have been fixed since.
Jobs are processes with a CPU device each, which `TF_CONFIG` and
`MultiWorkerMirroredStrategy` (stock) or `kerasmgpu launch` join; what their
first worker prints is compared.

    python -m tests.keras_io --programs=reports

| on | {columns} |
|---{rules}|
| runs | {runs} |
| in parity | {parity} |

| report | {columns} |
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


def rewritten(text, examples, results, **facts):
    """The page with its sections written anew that have all results.

    Args:
        text: The page as it is.
        examples: All examples and reports by name.
        results: `{(name, variant): result}`, of some of them.
        **facts: What the first section says of versions and sizes.
    """
    sections = re.split(r"^(?=## Public bug reports$)", text, flags=re.M)
    sections = (sections + ["", ""])[:2]
    for number, head in enumerate((_HEAD, _REPORTS)):
        own = {
            name: example
            for name, example in examples.items()
            if example.is_report == bool(number)
        }
        found = {key: r for key, r in results.items() if key[0] in own}
        if len(found) == len(own) * len(VARIANTS):
            sections[number] = _section(head, own, found, **facts)
    return "\n".join(section.strip() + "\n" for section in sections if section)


def _section(head, examples, results, **facts):
    counts = sums(results)
    text = head.format(
        count=len(examples),
        columns=" | ".join(f"{who}, {count}" for who, count in VARIANTS),
        rules="|---" * len(VARIANTS),
        runs=" | ".join(str(counts[v][0]) for v in VARIANTS),
        parity=" | ".join(str(counts[v][1]) for v in VARIANTS),
        **facts,
    )
    for name, example in examples.items():
        cells = [verdict(results[name, variant]) for variant in VARIANTS]
        text += f"| {example.title} | {' | '.join(cells)} |\n"
    return text
