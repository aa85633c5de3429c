"""Draws the rooms of the package, and who imports whom, from the imports.

    python docs/images/draw_rooms.py

writes `rooms.svg`. A test compares it with today's imports, those for types
included. Arrows that follow from others are left out.
"""

import ast
import functools
import pathlib

HERE = pathlib.Path(__file__).parent
PACKAGE = HERE.parents[1] / "kerasmgpu"

_WIDTH, _HEIGHT, _GAP, _LEFT, _STEP = 150, 30, 14, 12, 13
_COLUMN = 420
_STYLE = (
    "text{font:13px sans-serif;fill:#222}rect{fill:#eef3fb;stroke:#4a6fa5}"
    "path{fill:none;stroke:#8899aa}.title{font-weight:bold}"
)


@functools.cache
def arrows(folder: pathlib.Path, prefix: str) -> dict[str, set[str]]:
    """Returns `{room: rooms that it imports}` of a folder's files and folders."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        if room.startswith("__"):
            continue
        names = found.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [f"{node.module}.{a.name}" for a in node.names]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                if module.startswith(f"{prefix}."):
                    names.add(module.removeprefix(f"{prefix}.").split(".")[0])
        names.discard(room)
    return {room: names & found.keys() for room, names in found.items()}


def ranked(graph: dict[str, set[str]]) -> list[str]:
    """Returns the rooms, each behind those that it imports."""
    order: list[str] = []
    waiting = {room: set(names) for room, names in graph.items()}
    while waiting:
        free = sorted(room for room, names in waiting.items() if not names)
        if not free:
            raise ValueError(f"Rooms import each other: {sorted(waiting)}")
        order += free
        for room in free:
            del waiting[room]
        for names in waiting.values():
            names.difference_update(free)
    return order


def direct(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the arrows that don't follow from others."""
    reached: dict[str, set[str]] = {}
    for room in ranked(graph):
        reached[room] = graph[room].union(*(reached[n] for n in graph[room]))
    return {
        room: {
            name
            for name in names
            if not any(name in reached[o] for o in names - {name})
        }
        for room, names in graph.items()
    }


def column(title: str, graph: dict[str, set[str]], left: int) -> list[str]:
    """Returns the elements of one column: boxes, and arcs beside them."""
    order = ranked(graph)
    top = {n: 34 + k * (_HEIGHT + _GAP) for k, n in enumerate(order)}
    parts = [f'<text class="title" x="{left}" y="20">{title}</text>']
    for name in order:
        parts += [
            f'<rect x="{left}" y="{top[name]}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" rx="4"/>',
            f'<text x="{left + 10}" y="{top[name] + 20}">{name}</text>',
        ]
    right = left + _WIDTH
    for name, imported in sorted(direct(graph).items()):
        for other in sorted(imported, key=order.index):
            distance = order.index(name) - order.index(other)
            y, end = top[name] + 11, top[other] + 19
            bend = right + 12 + _STEP * distance
            parts.append(
                f'<path marker-end="url(#arrow)" d="M{right} {y} '
                f'C{bend} {y} {bend} {end} {right + 5} {end}"/>'
            )
    return parts


def picture() -> str:
    """Returns the picture as SVG."""
    package = arrows(PACKAGE, "kerasmgpu")
    partitioner = arrows(PACKAGE / "partitioner", "kerasmgpu.partitioner")
    rows = max(len(package), len(partitioner))
    height = 44 + rows * (_HEIGHT + _GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _COLUMN}" '
            f'height="{height}">',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="6" '
            'refY="3" orient="auto"><path d="M0 0 L6 3 L0 6"/></marker></defs>',
            *column("kerasmgpu/", package, _LEFT),
            *column("kerasmgpu/partitioner/", partitioner, _LEFT + _COLUMN),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    (HERE / "rooms.svg").write_text(picture(), "utf-8")
