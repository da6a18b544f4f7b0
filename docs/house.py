"""Draws which files of ``src/`` and ``muladd_nb/`` include or import which, on two floors: operators and the layer.

An arrow is left out if other arrows lead the same way. Files with the same arrows share a box. An arrow that leads up
is an error. On a phone the site shows a list instead of the picture.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC, PACKAGE = ROOT / "src", ROOT / "muladd_nb"
LAYER = {SRC / "elementwise", PACKAGE / "_layer"}
BACKENDS_AND_PARTS = ("cpu", "cuda", "executorch", "own_kernel", "python", "rows")
FOLDERS = {SRC / "elementwise" / name for name in BACKENDS_AND_PARTS}  # a room each
# rows/ includes these files of the backends, and the backends include rows/: so each of them is a room of its own.
LOOPS = {SRC / "elementwise" / name for name in ("cpu/bfloat16.h", "cpu/row_loops.h", "cpu/work.h", "cuda/team.h")}
MODULE = PACKAGE / "_C.pyi"  # all of the C++, compiled: what the Python stands on
FLOORS = ["operators", "layer", "compiled"]
Arrows = set[tuple[Path, Path]]


def level(path: Path) -> int:
    """Return the floor of a file, counted downwards."""
    return FLOORS.index("compiled") if path == MODULE else int(not LAYER.isdisjoint([path, *path.parents]))


def includes() -> Arrows:
    """Return which file in C++ includes which, but for the tests, which include the operators that they test."""
    return {
        (path, _included(path, name))
        for path in SRC.rglob("*.[chu]*")
        if "tests" not in path.relative_to(SRC).parts
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
    }


def _included(path: Path, name: str) -> Path:
    (file,) = {file for folder in (path.parent, SRC) if (file := (folder / name).resolve()).is_file()}
    return file


def imports() -> Arrows:
    """Return which file in Python imports which."""
    files = {path for path in PACKAGE.rglob("*.py") if not {"copied", "kernel", "project"} & set(path.parts)}
    arrows = {(path, _file(name)) for path in files for name in _imported(path) if name[0] == PACKAGE.name}
    return arrows | {(path, path) for path in files}  # one that imports none of the others is there, too


def _imported(path: Path) -> Iterator[list[str]]:
    """Yield the full names that a file imports, of modules or of what is in them."""
    package = list(path.parent.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            yield from ([*start, *(node.module or "").split("."), alias.name] for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "import_module":
            yield from (argument.value.split(".") for argument in node.args if isinstance(argument, ast.Constant))


def _file(name: list[str]) -> Path:
    """Return the file that a full name is, or is defined in."""
    stem = ROOT.joinpath(*name)
    for file in (stem.with_suffix(".py"), stem.with_suffix(".pyi"), stem / "__init__.py"):
        if file.is_file():
            return file
    return _file(name[:-1])


def arrows_up() -> list[tuple[Path, Path]]:
    """Return what a floor knows of one above it: there must be nothing."""
    return [(x, y) for x, y in sorted(includes() | imports()) if level(x) > level(y)]


# ---- What is drawn: rooms in rows. A room is the names of its files, each in a line.

CHARACTER, LINE, PADDING, GAP, BETWEEN, WIDEST = 6.9, 16, 8, 12, 30, 460  # pixels


def _name(path: Path) -> str:
    if (folders := FOLDERS.intersection(path.parents)) and path not in LOOPS:
        return f"{folders.pop().name}/"
    if path.name == "__init__.py":
        return f"{path.parent.name}/"
    if path.parent == PACKAGE and (PACKAGE / "_layer" / path.name).is_file():
        return f"{PACKAGE.name}.{path.stem}"
    return path.name if path.is_relative_to(SRC) else path.stem


def _rooms(arrows: Arrows) -> tuple[dict[str, set[str]], list[list[list[str]]]]:
    """Return where the arrows of each room lead, and the rows of each floor, a room under all that lead to it."""
    levels = {_name(path): level(path) for arrow in sorted(arrows) for path in arrow}
    to = {name: {_name(y) for x, y in arrows if _name(x) == name} - {name} for name in levels}

    @cache
    def reached(name: str) -> set[str]:
        return to[name].union(*map(reached, to[name]))

    direct = {name: to[name].difference(*map(reached, to[name])) for name in to}
    alike: dict[object, list[str]] = {}
    for name in sorted(to):
        sources = frozenset(x for x in to if name in direct[x])
        alike.setdefault((levels[name], frozenset(direct[name]), sources), []).append(name)
    room = {name: "\n".join(names) for names in alike.values() for name in names}
    leads = {room[name]: {room[y] for y in direct[name]} for name in to}

    def rows(names: list[str]) -> list[list[str]]:
        @cache
        def depth(name: str) -> int:
            return max((depth(x) + 1 for x in names if name in leads[x]), default=0)

        levels = ([name for name in names if depth(name) == at] for at in range(max(map(depth, names)) + 1))
        return [part for level in levels for part in _fitting(level)]

    floors = range(max(levels.values()) + 1)
    return leads, [rows(sorted({room[name] for name in to if levels[name] == floor})) for floor in floors]


def _width(room: str) -> float:
    return CHARACTER * max(map(len, room.split("\n"))) + 2 * PADDING


def _fitting(rooms: list[str]) -> list[list[str]]:
    """Return rooms in as many rows of the same length as it takes for the picture to fit onto a page."""
    rows = ceil(sum(map(_width, rooms)) / WIDEST)
    return [rooms[row::rows] for row in range(rows)]


def _places(rows: list[list[str]], ways: list[list[str]], width: Mapping[str, float]) -> dict[str, float]:
    """Return where in its row everything stands: near what its arrows join it with."""
    near: dict[str, list[str]] = {name: [] for row in rows for name in row}
    for x, y in (step for way in ways for step in pairwise(way)):
        pull = 1 if width[x] or width[y] else 4  # an arrow that passes many rows is straight
        near[x] += [y] * pull
        near[y] += [x] * pull
    places = {name: 100.0 * place for row in rows for place, name in enumerate(row)}
    for turn in range(80):
        for row in rows:
            wish = {name: sum(places[x] for x in near[name] or [name]) / len(near[name] or [name]) for name in row}
            if turn < 40:
                row.sort(key=wish.__getitem__)
            # Pushed apart to the right and to the left; the mean of both does not overlap either.
            for sign in (1, -1):
                edge = float("-inf")
                for name in row[::sign]:
                    at = max(sign * wish[name], edge + width[name] / 2)
                    edge = at + width[name] / 2 + GAP
                    places[name] = sign * at if sign == 1 else (places[name] - at) / 2
    return places


def draw(arrows: Arrows, title: str) -> str:
    """Return the picture as an SVG element, in the colours of the page that it stands on."""
    leads, floors = _rooms(arrows)
    names = [f"<dt>{name}</dt>" + "".join(map(_line, floor)) for name, floor in zip(FLOORS, floors, strict=False)]
    rows = [row for floor in floors for row in floor]
    row_of = {name: row for row, names in enumerate(rows) for name in names}
    # An arrow that passes rows has a point in each, which has a place there as rooms have.
    ways = [
        [x, *(f"{x} to {y} in {row}" for row in range(row_of[x] + 1, row_of[y])), y]
        for x in leads
        for y in sorted(leads[x])
    ]
    for way in sorted(ways):
        for row, point in enumerate(way[1:-1], row_of[way[0]] + 1):
            rows[row].append(point)
    width = {name: 0.0 for row in rows for name in row}
    width |= {name: _width(name) for name in leads}
    places = _places(rows, ways, width)
    left = min(places[name] - width[name] / 2 for name in places) - GAP
    right = max(places[name] + width[name] / 2 for name in places) + GAP

    y, tops, bottoms, ends, svg = 0, {}, {}, {}, []
    for name, floor in zip(FLOORS, floors, strict=False):
        top = y
        y += LINE + PADDING
        for row in floor:
            height = {at: LINE * (1 + at.count("\n")) + PADDING for at in row if at in leads}
            highest = max(height.values())
            for at in row:
                tops[at], bottoms[at], ends[at] = y, y + height.get(at, highest), y + highest
            y += highest + BETWEEN
        y -= BETWEEN - 2 * PADDING
        svg += [
            f'<rect class="floor" x="{left:.0f}" y="{top}" width="{right - left:.0f}" height="{y - top - PADDING}"/>',
            f'<text class="floor" x="{left + GAP:.0f}" y="{top + LINE}">{name}</text>',
        ]
    for way in ways:
        line = f"M{places[way[0]]:.0f} {bottoms[way[0]]}"
        for a, b in pairwise(way):
            middle = (ends[a] + tops[b]) / 2
            line += f"V{ends[a]}C{places[a]:.0f} {middle} {places[b]:.0f} {middle} {places[b]:.0f} {tops[b]}"
        svg.append(f'<path d="{line}m-3 -6l3 6l3 -6"/>')
    for name in leads:
        x, half = places[name], width[name] / 2
        box = f'x="{x - half:.0f}" y="{tops[name]}" width="{2 * half:.0f}" height="{bottoms[name] - tops[name]}"'
        svg.append(f'<rect class="room" {box}/>')
        for place, text in enumerate(name.split("\n")):
            svg.append(f'<text x="{x:.0f}" y="{tops[name] + LINE * (place + 1)}">{text}</text>')
    size = f'width="{right - left:.0f}" height="{y}" viewBox="{left:.0f} 0 {right - left:.0f} {y}"'
    listed = f"<dl>{''.join(names)}</dl>"
    return "\n".join(
        [f'<div class="house"><svg role="img" aria-label="{title}" {size}>', *svg, f"</svg>{listed}</div>"]
    )


def _line(row: list[str]) -> str:
    return f"<dd>{', '.join(row)}</dd>".replace("\n", ", ")


def main(folder: Path) -> None:
    """Write the pictures into a folder."""
    if up := arrows_up():
        sys.exit("\n".join(f"an arrow leads up: {x.relative_to(ROOT)} to {y.relative_to(ROOT)}" for x, y in up))
    folder.mkdir(exist_ok=True)
    (folder / "house_cpp.html").write_text(draw(includes(), "What includes what in src/"))
    (folder / "house_python.html").write_text(draw(imports(), "What imports what in muladd_nb/"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
