"""The tables: the replacement of each name; the stable ABI's names, and since when it has them; and sets of words."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

FIRST = "2.10"  # the oldest torch that a port may target; versions are compared as text


@dataclasses.dataclass(frozen=True)
class Row:
    """The replacement of a name: ``to`` is code if the change is mechanical, else advice.

    In code, ``$1`` is an argument, ``$*`` all of them, ``$T1`` a template argument, ``$self`` the object of a method.
    The line of the table with the name ``*`` is for all other names of its kind.
    """

    kind: str
    what: str
    args: str  # the number of arguments: "2", "0-1", "1-"; after ":", of template arguments: "3", or "T" for any
    how: str
    to: str
    source: str = ""
    runs: str = ""  # the oldest torch that runs the replacement
    builds: str = ""  # the oldest torch whose headers have the replacement

    def fits(self, count: int | None, template: int) -> bool:
        """Tell whether the row is for a call with these numbers of arguments and template arguments."""
        arity, _, wanted = self.args.partition(":")
        if wanted and (template == 0 if wanted == "T" else template != int(wanted)):
            return False
        low, dash, high = arity.partition("-")
        return not arity or (count is not None and int(low) <= count <= int(high or (99 if dash else low)))


def _read(file: str) -> list[dict[str, str]]:
    return list(csv.DictReader((importlib.resources.files(__package__) / file).read_text("utf-8").splitlines()))


_NAMES = _read("names.csv")
ATEN = {name["name"] for name in _NAMES if name["kind"] == "aten"}
NAMES = {name["name"]: name for name in _NAMES if name["kind"] != "aten"}
WORDS = defaultdict[str, dict[str, str]](dict)  # by kind; for methods, by the type of the object
for _word in _read("words.csv"):
    WORDS[_word["kind"]][_word["name"]] = _word["word"]
_METHOD = re.compile(r"torch::stable::.*[A-Z]\w*::(\w+)$")
_METHODS = {match[1]: NAMES[name] for name in NAMES if (match := _METHOD.match(name))}


def _row(kind: str, what: str, args: str, how: str, to: str, source: str) -> Row:
    """Return a line of the table, with the oldest torch that has everything that it uses."""
    used = [NAMES[name] for name in re.findall(r"[A-Za-z_][\w:]*", to) if name in NAMES]
    used += [_METHODS[name] for name in re.findall(r"[.]([A-Za-z_]+)[(<]", to) if name in _METHODS]
    runs, builds = (max((name[key] for name in used), default=FIRST) for key in ("runs", "builds"))
    return Row(kind, what, args, how, to, source, runs, max(runs, builds))


def _dispatches(line: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield the lines for AT_DISPATCH_X and its variants: AT_DISPATCH_X_AND2(a, b, ...) has two more dtypes."""
    what, to, line = line["what"], line["to"], line | {"kind": "macro"}
    for count in range(9):
        dtypes = "".join(f", ${i + 1}" for i in range(count))
        call = f"THO_DISPATCH_V2(${count + 1}, ${count + 2}, (${count + 3}), {to}{dtypes})"
        names = (what, f"{what}_AND {what}_AND1", f"{what}_AND{count}")[min(count, 2)]
        yield line | {"what": names, "args": str(count + 3), "to": call}
    half = f"THO_DISPATCH_V2($1, $2, ($3), {to}, torch::headeronly::ScalarType::Half)"
    yield line | {"what": f"{what}_AND_HALF", "args": "3", "to": half}


ROWS: dict[tuple[str, str], list[Row]] = {}
for _line in itertools.chain(*(_dispatches(x) if x["kind"] == "dispatch" else [x] for x in _read("replacements.csv"))):
    for _what in _line["what"].split():  # a line has all names that are replaced alike
        ROWS.setdefault((_line["kind"], _what), []).append(_row(**_line | {"what": _what}))
for _name, _line in NAMES.items():  # types and constants that have the same name in the stable ABI
    if (match := re.match("torch::(?:headeronly|stable)::(.*)", _name)) and "stable/ops.h" not in _line["header"]:
        ROWS.setdefault(("same", match[1]), [_row("name", match[1], "", "mechanical", _name, _line["header"])])
# Methods that tensors have, and few other classes.
RARE = {*ATEN, *(what for kind, what in ROWS if kind == "method")} - WORDS["common"].keys()


def operator_of(name: str) -> str:
    """Return the operator that a function in at:: calls, such as add for add_out, and elu_ itself; "" if none."""
    operator = name if name in ATEN else re.sub("_outf?$", "", name)
    return operator if {operator, operator.removesuffix("_")} & ATEN else ""


def known(name: str) -> str:
    """Return the longest part of a name that the stable ABI has, such as at::ScalarType, or ""."""
    while name and name not in NAMES:
        name = name.rpartition("::")[0]
    return name


def find(keys: list[tuple[str, str]], count: int | None, template: int, target: str) -> Row | None:
    """Return the first row of the first key with a row that fits: if possible, one that the target has."""
    for key in keys:
        if fits := [row for row in ROWS.get(key, ()) if row.fits(count, template)]:
            return next((row for row in fits if row.runs <= target), fits[0])
    return None


# The start of a namespace or a declaration. torch's headers are formatted so that these are at the start of a line.
_DECLARES = re.compile(
    r"""^(?:namespace\ ([\w:]+)\ {
    |(?:class|struct|union|enum(?:\ class)?)(?:\ [A-Z]\w*|\ /\*.*?\*/)?\ (?!final)(\w+)(?=\s+(?:[:{]|final))
    |using\ (\w+)\ =|using\ [\w:]+::(\w+);|constexpr\ [\w:]+\ (\w+)\ =|(?:[\w:<>,&*]+\ )+[&*]*(\w+)\()""",
    re.MULTILINE | re.VERBOSE,
)


@functools.cache
def torchs() -> dict[str, set[str]]:
    """Return the names that the installed torch's headers declare, by namespace, such as ``torch::jit``."""
    found, include = defaultdict[str, set[str]](set), Path(torch.__file__).parent / "include"
    for path in (path for top in ("ATen", "c10", "torch") for path in (include / top).rglob("*.h")):
        if path.parent.name != "ops":  # ATEN has these
            spaces = list[str]()
            for namespace, *names in _DECLARES.findall(path.read_text("utf-8")):
                spaces += [namespace] * bool(namespace)
                for space in spaces:
                    found[space].update(filter(None, names))
    found["at"] |= found["c10"]  # at and torch have using directives for these
    found["torch"] |= found["at"]
    return found
