"""The tables: what to write instead of each name, which names the stable ABI has and since when, and words."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources
import re

FIRST = "2.10"  # the oldest torch that a port may target; versions are compared as text


@dataclasses.dataclass(frozen=True)
class Row:
    """What to write instead of a name: ``to`` is code if the change is mechanical, else advice.

    In code, ``$1`` is an argument, ``$*`` all of them, ``$T1`` a template argument, ``$self`` the object of a method.
    The line of the table with the name ``*`` is for all other names of its kind.
    """

    kind: str
    what: str
    args: str  # how many arguments it is for: "2", "0-1", "1-"; with ":T" or ":3", template arguments too
    how: str
    to: str
    source: str = ""
    runs: str = ""  # the oldest torch that runs it
    builds: str = ""  # the oldest torch whose headers have it

    def fits(self, count: int | None, template: int) -> bool:
        """Tell whether it is for a call with these numbers of arguments and template arguments."""
        arity, _, wanted = self.args.partition(":")
        if wanted and (template == 0 if wanted == "T" else template != int(wanted)):
            return False
        low, dash, high = arity.partition("-")
        return not arity or (count is not None and int(low) <= count <= int(high or (99 if dash else low)))


class Table:
    """All tables, by name."""

    def __init__(self) -> None:
        names = _read("names.csv")
        self.aten = {name["name"] for name in names if name["kind"] == "aten"}
        self.names = {name["name"]: name for name in names if name["kind"] != "aten"}
        methods = (name for name in self.names if re.match(r"torch::stable::.*[A-Z]\w*::\w+$", name))
        self.methods = {name.rpartition("::")[2]: self.names[name] for name in methods}
        self.words: dict[str, dict[str, str]] = {}  # by kind, or by the type whose methods these are
        for row in _read("words.csv"):
            self.words.setdefault(row["kind"], {})[row["name"]] = row["word"]
        self.rows: dict[tuple[str, str], list[Row]] = {}
        for row in _read("replacements.csv"):
            self.rows.setdefault((row["kind"], row["what"]), []).append(self.row(**row))
        self.rare = (
            self.aten - self.words["common"].keys()
        )  # functions and methods whose names tell that they are torch's

    def row(self, kind: str, what: str, args: str, how: str, to: str, source: str) -> Row:
        """Return a line of the table, with the oldest torch that has everything that it uses."""
        used = [self.names[name] for name in re.findall(r"[A-Za-z_][\w:]*", to) if name in self.names]
        used += [self.methods[name] for name in re.findall(r"[.]([A-Za-z_]+)[(<]", to) if name in self.methods]
        runs, builds = (max((name[key] for name in used), default=FIRST) for key in ("runs", "builds"))
        return Row(kind, what, args, how, to, source, runs, max(runs, builds))

    def find(self, kind: str, what: str, count: int | None, template: int, target: str) -> Row | None:
        """Return the first row that fits and that the target has; else the first that fits."""
        fits = [row for row in self.rows.get((kind, what), ()) if row.fits(count, template)]
        return next((row for row in fits if row.runs <= target), fits[0] if fits else None)

    def same(self, name: str) -> Row | None:
        """Return a row for a type or a constant that has the same name in the stable ABI."""
        for full in (f"torch::headeronly::{name}", f"torch::stable::{name}"):
            if full in self.names and not self.names[full]["header"].endswith("stable/ops.h"):
                return self.row("name", name, "", "mechanical", full, self.names[full]["header"])
        return None


def _read(file: str) -> list[dict[str, str]]:
    text = (importlib.resources.files(__package__) / file).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def table() -> Table:
    """Return the tables, read once."""
    return Table()
