"""Records of families, as a page and a line of progress."""

import re

from tests.keras_hub.settings import SETTINGS

_HEAD = """# KerasHub's and keras-rs's models

Families of [KerasHub](https://github.com/keras-team/keras-hub) {keras-hub} and
layers of [keras-rs](https://github.com/keras-team/keras-rs) {keras-rs}, in
programs as small as the settings of KerasHub's own tests, without its weights
(Keras {keras}, TensorFlow {tensorflow}). Each is trained on {rows} made-up rows
in batches of {batch}, on one device and on {replicas} replicas, logical CPU devices,
from the same seed; the last batch leaves a replica without rows.

    pip install keras-hub keras-rs
    python -m tests.keras_hub                            # all; writes this page
    python -m tests.keras_hub bert vision --settings=xla # parts of names, kinds

The command goes on where an earlier one ended (`--results`), with one process
per family and a time-out per setting. It is not part of the tests' run.

- **plain**: `MirroredStrategy()`.
- **weights**: `shard="weights"` for variables of any size, in two micro-batches.
- **XLA**: `jit_compile=True`.
- **generate**: the sharded, trained model continues three prompts with the
  tokens of one device, with and without XLA.
- **mesh**: `keras.distribution.ModelParallel` with KerasHub's map of layouts (of
  GPT-2, Megatron-LM's) on a mesh of (2, 2): training, and the tokens of
  `generate()`.
- **bfloat16**: under `mixed_bfloat16`, the distance of all weights from those
  that one device trained in float32, over their updates; in brackets the same
  distance for one device under `mixed_bfloat16`.

Differences are the largest of all weights (relative to that weight's own
largest update) and logs. In float64 1e-7 is rounding, and 1e-4 where † says
that parts compute in float32, or all does (‡). A second figure in brackets
is one device beside itself, whose first weights were moved by one unit in the
last place (of float32 behind † and ‡): a model that amplifies rounding parts
from itself by as much. Bold: not in parity; –: not run yet, or nothing to
generate. The table has the {families} families, of {all}, that were run:
in parity are {counts}.

| family | {columns} |
|---{rules}|
"""
_COLUMNS = {"xla": "XLA"}


def cell(result):
    """What the table shows of a record; bold where it is not in parity."""
    if "missing" in result:
        return "–"
    if "error" in result:
        return f"**{result['error']}**"
    if "same" in result:
        differ = [name for name, same in result["same"].items() if not same]
        text = f"differs ({', '.join(differ)})" if differ else "same"
    elif "one" in result:
        text = f"{result['many']:.0e} ({result['one']:.0e})"
    else:
        text = f"{result['distance']:.0e}"
        if "nudged" in result:
            text += f" ({result['nudged']:.0e})"
        if result["copies_differ"]:
            text += ", copies differ"
        if result.get("tokens_differ"):
            text += ", tokens differ"
    return text if result["in_parity"] else f"**{text}**"


def page(families, results, **facts):
    """The page's Markdown, with the families that have results."""
    counts = []
    for setting in SETTINGS:
        found = [r for (_, s), r in results.items() if s == setting]
        found = [r for r in found if "missing" not in r]
        good = sum(r.get("in_parity", False) for r in found)
        counts.append(f"{good} of {len(found)} {_title(setting)}")
    names_run = {name for name, _ in results}
    text = _HEAD.format(
        families=len(names_run),
        all=len(families),
        columns=" | ".join(map(_title, SETTINGS)),
        rules="|---" * len(SETTINGS),
        counts=", ".join(counts),
        **facts,
    )
    for name, family in families.items():
        own = [results.get((name, setting)) for setting in SETTINGS]
        if not any(own):
            continue
        mark = "" if not family.float32 else " †"
        if family.precision == "float32":
            mark = " ‡"
        cells = [cell(result) if result else "–" for result in own]
        text += f"| {family.kind}: {name}{mark} | {' | '.join(cells)} |\n"
    return text


def _title(setting):
    return _COLUMNS.get(setting, setting)


def names(text):
    """Names of the families in a page's table."""
    return set(re.findall(r"^\| [a-z ]+: (.*?)(?: [†‡])? \|", text, re.M))
