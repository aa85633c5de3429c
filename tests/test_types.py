"""Types of what is public: all there, true, and seen by a type checker."""

import ast
import functools
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import kerasmgpu
import kerasmgpu.errors

PACKAGE = pathlib.Path(kerasmgpu.__file__).parent


def test_the_stub_has_the_names_that_are_loaded_from_where_they_are():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text("utf-8"))
    seen = {}
    for node in ast.walk(stub):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                # Without "as", a name is not seen from outside.
                assert alias.name == alias.asname
                full = f"{node.module}.{alias.name}"
                home = full if is_module(full) else node.module
                seen[alias.name] = home
    assert seen == {**kerasmgpu._HOMES, **kerasmgpu._MODULES}


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # What it would be in is no package.
        return False


def public_objects():
    """What users may name, without doubles: `{full name: object}`."""
    modules = [getattr(kerasmgpu, name) for name in kerasmgpu._MODULES]
    found = {name: getattr(kerasmgpu, name) for name in kerasmgpu._HOMES}
    for module in (*modules, kerasmgpu.errors):
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            where = getattr(value, "__module__", "")
            if not name.startswith("_") and where.startswith("kerasmgpu"):
                found[f"{module.__name__}.{name}"] = value
    return found


def functions_of(name, value):
    """The functions that an object is called by: `(name, function)` pairs."""
    if inspect.isfunction(value):
        yield name, value
        return
    for member in dir(value):
        if member.startswith("_") and member not in ("__init__", "__call__"):
            continue
        function = inspect.getattr_static(value, member)
        if isinstance(function, (classmethod, staticmethod)):
            function = function.__func__
        elif isinstance(function, property):
            function = function.fget
        elif isinstance(function, functools.cached_property):
            function = function.func
        if inspect.isfunction(function):
            if function.__module__.startswith("kerasmgpu"):
                yield f"{name}.{member}", function


def untyped(function):
    """Names of the parameters without a type, `return` among them."""
    # Evaluated, so a type that isn't there is a `NameError`.
    signature = inspect.signature(function, eval_str=True)
    nothing = inspect.Signature.empty
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is nothing
        and parameter.name not in ("self", "cls")
    ]
    if signature.return_annotation is nothing:
        names.append("return")
    return names


def test_what_is_public_says_what_it_takes_and_gives():
    functions = [
        pair
        for name, value in public_objects().items()
        for pair in functions_of(name, value)
    ]
    names = {name for name, _ in functions}
    assert {
        "partition",
        "strategy",
        "kerasmgpu.callbacks.Checkpoint.__init__",
        "kerasmgpu.job.cluster.Worker.tf_config",
        "kerasmgpu.errors.checked_integer",
        "kerasmgpu.placement.OnDevice.from_config",
        "kerasmgpu.replica_arithmetic.efficiency",
        "kerasmgpu.schedules.WarmUp.__call__",
        "kerasmgpu.verify.verify",
        "MultiWorkerMirroredStrategy.num_workers",
    } <= names
    assert {
        name: missing
        for name, function in functions
        if (missing := untyped(function))
    } == {}


PROGRAM = """
import kerasmgpu
from kerasmgpu.callbacks import Checkpoint, ThroughputLogger

rows: int = kerasmgpu.global_batch_size(64, num_replicas=4)
rate: str = kerasmgpu.scale_learning_rate(0.1, 4)  # wrong
strategy = kerasmgpu.strategy(virtual_devices=2)
kerasmgpu.strategy(num_replicas="2")  # wrong
kerasmgpu.strategi()  # wrong
kerasmgpu.MirroredStrategy(["GPU:0"], batch_norm="global")
kerasmgpu.MirroredStrategy(batch_normalisation="global")  # wrong
Checkpoint("run", every_seconds=600, best=None)
Checkpoint("run", every_second=600)  # wrong
Checkpoint(every_steps=10)  # wrong
ThroughputLogger(path=None)
kerasmgpu.callbacks.ChooseXla("20")  # wrong
kerasmgpu.schedules.WarmUp(0.1, warmup_steps=10)
report = kerasmgpu.verify("my_module:build", steps=3)
print(report["in_parity"])
kerasmgpu.verify("my_module:build", step=3)  # wrong
worker = kerasmgpu.cluster.from_environment()
worker.index  # wrong


@kerasmgpu.partition(num_replicas=2)
def total(x: list[float]) -> float:
    return sum(x)


@kerasmgpu.partition
def largest(x: list[float]) -> float:
    return max(x)


total([1.0]) + largest([1.0])
total([1.0], [2.0])  # wrong
largest("abc")  # wrong
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None, reason="mypy is not installed"
)
def test_a_users_wrong_calls_are_found_and_only_these(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file="),
            *("--follow-imports=silent", "--ignore-missing-imports"),
            *("--no-site-packages", f"--cache-dir={tmp_path / 'cache'}"),
            program.name,
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^program\.py:(\d+): error", done.stdout, re.MULTILINE)
    wrong = [
        number
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if line.endswith("# wrong")
    ]
    assert [int(number) for number in found] == wrong, done.stdout
