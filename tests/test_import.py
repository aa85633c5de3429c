"""What `import kerasmgpu` costs, and who may import whom."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

import kerasmgpu

PACKAGE = pathlib.Path(kerasmgpu.__file__).parent


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_reads_only_the_standard_library():
    """So it takes a few hundredths of a second, and starts no TensorFlow."""
    foreign = run(
        "import sys; before = set(sys.modules); import kerasmgpu;"
        "found = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(*found - set(sys.stdlib_module_names) - {'kerasmgpu'})"
    )
    assert foreign.split() == []


LIGHT = """
    division replica_arithmetic errors __main__ commands.scaling_report finders
    finders.batch_size_command finders.learning_rate_command check.__main__
    commands.evidence_command compile.__main__ doctor.__main__ job.cluster
    job.rendezvous job.watch
    plan.__main__ plan.step_time launch.__main__ launch.notebook
    memory.__main__ memory.state_bytes report.__main__ recipes.alexnet
    recipes.autoencoder recipes.convnet recipes.deepconn
    recipes.datasets.movielens recipes.datasets.ratings
    recipes.datasets.reviews recipes.datasets.sparse_rows recipes.polynomial
    strategy_settings verify.__main__
""".split()


def test_light_modules_stay_light():
    output = run(
        f"import importlib, sys\nfor name in {LIGHT}:\n"
        "    importlib.import_module(f'kerasmgpu.{name}')\n"
        "    heavy = {'tensorflow', 'keras', 'jax'} & set(sys.modules)\n"
        "    if heavy: print(name, 'imports', heavy)"
    )
    assert output == ""


def test_replica_arithmetic_is_of_the_standard_library():
    output = run(
        "import sys, kerasmgpu.replica_arithmetic;print('numpy' in sys.modules)"
    )
    assert output.strip() == "False"


def test_every_public_name_is_there():
    for name in kerasmgpu.__all__:
        assert getattr(kerasmgpu, name) is not None


@pytest.mark.parametrize(
    "former, name",
    [
        ("scaling", "efficiency"),
        ("scaling", "scale_learning_rate"),
        ("schedules", "WarmUp"),
        ("cluster", "from_tf_config"),
        ("rendezvous", "meet"),
        ("job_watch", "Link"),
    ],
)
def test_former_modules_are_found_by_attribute(former, name):
    assert callable(getattr(getattr(kerasmgpu, former), name))


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'strategi'"):
        _ = kerasmgpu.strategi


ROOMS = [
    "distances",
    "errors",
    "import_hooks",
    "signals",
    "stderr_filter",
    "user_lines",
    "_keras_hook",
    "_tensorflow_hook",
    "hardware",
    "replica_arithmetic",
    "schedules",
    "stores",
    "atomic_files",
    "division",
    "partitioner",
    "strategy_settings",
    "engine",
    "flops",
    "job",
    "placement",
    "_keras",
    "callbacks",
    "strategies",
    "commands",
    "finders",
    "launch",
    "memory",
    "report",
    "verify",
    "check",
    "compile",
    "doctor",
    "plan",
    "prove",
    "recipes",
]
"""Rooms of the package, each behind those that it may import."""


def test_a_room_imports_those_before_it():
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        before = {*ROOMS[: ROOMS.index(room)], room}
        assert set(rooms_imported_by(path)) <= before, path


PARTITIONER = [
    "step",
    "rules",
    "mesh",
    "planning",
    "ir",
    "passes",
    "lowering",
    "runtime",
]
"""Rooms of the partitioner, each behind those that it may import."""


def test_a_room_of_the_partitioner_imports_those_before_it():
    level = {room: number for number, room in enumerate(PARTITIONER)}
    for path in (PACKAGE / "partitioner").rglob("*.py"):
        parts = path.relative_to(PACKAGE / "partitioner").parts
        room = parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for module in modules_imported_by(path):
            names = module.split(".")
            if names[:2] == ["kerasmgpu", "partitioner"] and len(names) > 2:
                assert level[names[2]] <= level[room], f"{path}: {module}"


def arrows():
    """`{module: modules of the package that it imports}`, also for types."""
    files = {
        ".".join(
            path.relative_to(PACKAGE.parent).with_suffix("").parts
        ).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    found = {}
    for module, path in files.items():
        names = set()
        for node in imports(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    names.add(full if full in files else node.module)
            elif isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
        found[module] = (names & files.keys()) - {module}
    return found


def test_no_circle_of_files():
    """Imports for type checking count: who may know whom is the question."""
    waiting = arrows()
    while free := [m for m, names in waiting.items() if not names]:
        for module in free:
            del waiting[module]
        for names in waiting.values():
            names.difference_update(free)
    # What is left is in a circle, or imports one: follow it until it repeats.
    trail = sorted(waiting)[:1]
    while trail and trail[-1] not in trail[:-1]:
        trail.append(min(waiting[trail[-1]]))
    circle = trail[trail.index(trail[-1]) :] if trail else []
    assert not circle, " imports ".join(circle)


def test_a_room_that_lists_its_files_lists_all():
    for path in PACKAGE.rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        files = {file.name for file in path.parent.glob("*.py")} - {path.name}
        left_out = {file for file in files if file not in text}
        assert len(files - left_out) < 3 or not left_out, (path, left_out)


def test_keras_is_imported_where_it_is_entered():
    for room in ("partitioner", "engine", "job"):
        for path in (PACKAGE / room).rglob("*.py"):
            assert "keras" not in set(packages_imported_by(path)), path


@pytest.mark.parametrize(
    "private, homes",
    [
        ("tensorflow.python", ("partitioner/", "engine/private_names.py")),
        ("tensorflow.core", ("partitioner/",)),
        ("keras.src", ("_keras/",)),
    ],
)
def test_private_names_have_one_home(private, homes):
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(homes):
            for module in modules_imported_by(path):
                assert not f"{module}.".startswith(f"{private}."), path


def test_nothing_imports_what_is_not_in_the_wheel():
    beside = {
        path.name
        for path in PACKAGE.parent.iterdir()
        if (path / "__init__.py").exists() and path != PACKAGE
    }
    assert {"benchmarks", "tests"} <= beside
    for path in PACKAGE.rglob("*.py"):
        assert not beside & set(packages_imported_by(path)), path


@functools.cache
def imports(path):
    """Nodes of a file's import statements."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom))]


def packages_imported_by(path):
    for module in modules_imported_by(path):
        yield module.partition(".")[0]


def modules_imported_by(path):
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name


def rooms_imported_by(path):
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "kerasmgpu":
                names = [alias.name for alias in node.names]
                yield from parts[1:2] or [n for n in names if is_room(n)]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("kerasmgpu."):
                    yield alias.name.split(".")[1]


def is_room(name):
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()
