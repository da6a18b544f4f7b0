"""Draw results/*.json as plots and tables, for reading here and for the page Performance of the documentation.

Each plot is an SVG for light pages and one for dark pages. report.md, in MyST Markdown, shows them; model.md, pages.md
and shipped.md hold the sections that stand elsewhere, and sides.md explains the lines. --readme draws the README's
picture into docs/_static, and renews the numbers that a comment marks in Markdown (records.py).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from records import RESULTS, Rows, fill, pictured, ratios

ROOT = Path(__file__).parent.parent
# Each side has a color, and an entry in the table of sides, in this order.
SIDES = {
    "eager": "`a * b + c`: two passes over memory, and a temporary",
    "mul + add": "the same, with the functions `torch.mul` and `torch.add`",
    "addcmul": "`torch.addcmul` with a broadcast constant: one pass, the best of eager PyTorch",
    "compile": "`torch.compile` of the same, with dynamic shapes",
    "naive kernel": "the scalar loop on one thread that a first tutorial writes",
    "torch.ops": "`torch.ops.muladd_nb.mymuladd` in place of the public function",
    "streaming triad": "two loads, one addition and one store past the cache, on all threads: the limit of the machine "
    "for tensors in memory, and slow for tensors in a cache",
    "triad": "the same with stores through the cache: the limit for tensors in a cache",
    "copy": "a copy on the device. It moves two arrays and we move three, so 1.5 copies are the limit",
    "Triton": "a Triton kernel",
    "operator, eager": "a chain of operators that contains ours, not compiled",
    "calls, compiled": "the same chain, compiled so that the operators stay calls of their kernels",
    "a * b + c, compiled": "the same chain with PyTorch's operators in place of ours: products are rounded",
    "its formula, compiled": "the same program with the formula in place of the operator",
    "public function, compiled": "the same program with the public function, whose Python code Dynamo guards too",
    "by hand": "a `torch.autograd.Function` written by hand that calls the same kernels",
    "softclip, eager": "the operator's kernels, forward and backward",
    "its formula, eager": "PyTorch's operators, one after the other",
    "median call": "ours with `MULADD_NB_HUGEPAGES=0`: the median of the first eleven calls of a process",
    "first call": "the same: the first of these calls",
    "all calls": "the same: all of these calls together",
}
# Colors that readers with any colour vision can tell apart, for each background.
THEMES = {
    "light": ("#1f2328", ("#0072b2", "#c2410c", "#00795a", "#a3437f", "#6b5900", "#5b4bb5", "#0e8aa8", "#777777")),
    "dark": ("#d0d4da", ("#56b4e9", "#ff9d5c", "#2fd6a3", "#f0a6cf", "#f0e442", "#b3a6ff", "#7fdfff", "#aaaaaa")),
}
RESULT = {"fresh": "a fresh result", "out=": "into out="}


def lines(axes: Axes, rows: Rows, colors: dict[str, str]) -> None:
    rows = [row for row in rows if not row.get("busy")] or rows  # the table of numbers has the busy ones too
    sizes = [row["numel"] for row in rows]
    for side in sorted(ratios(rows[0]), key=lambda side: -ratios(rows[-1])[side][1]):  # sorted by the right end
        low, median, high = zip(*(ratios(row)[side] for row in rows), strict=True)
        axes.plot(sizes, median, "o-", ms=4, color=colors[side], label=side)
        axes.fill_between(sizes, low, high, color=colors[side], alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes[:: 1 + len(sizes) // 10])
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5)))  # an axis may be shorter than an octave
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.axhline(1, color="gray", linewidth=1)
    axes.set(xlabel="elements", ylabel="times faster than")
    legend(axes, *axes.get_legend_handles_labels())


def legend(axes: Axes, handles: list[Any], sides: list[str]) -> None:
    """Put the legend above the axes, in as many columns as fit, ordered line by line."""
    columns = 3 if max(map(len, sides)) <= len("streaming triad") else 2
    by_rows = [i for column in range(columns) for i in range(column, len(sides), columns)]  # matplotlib fills columns
    axes.legend(
        [handles[i] for i in by_rows],
        [sides[i] for i in by_rows],
        fontsize=9,
        frameon=False,
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=columns,
    )


def bars(axes: Axes, rows: Rows, colors: dict[str, str]) -> None:
    sides = list(dict.fromkeys(side for row in rows for side in ratios(row)))
    thickness = 0.8 / len(sides)
    for position, row in enumerate(rows):
        for side, (low, ratio, high) in ratios(row).items():
            y = position + thickness * (sides.index(side) - (len(sides) - 1) / 2)
            axes.barh(y, ratio, thickness, color=colors[side])
            axes.plot([low, high], [y, y], color="gray", linewidth=1.5)
            end = max(ratio, high, 1)  # labels must not cross the line at 1
            axes.annotate(f"{ratio:.1f}x", (end, y), (3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.margins(x=0.1)
    axes.axvline(1, color="gray", linewidth=1)
    axes.set_yticks(range(len(rows)), [case(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("times faster than")
    legend(axes, [plt.Rectangle((0, 0), 1, 1, color=colors[side]) for side in sides], sides)


def case(row: dict[str, Any]) -> str:
    """Return the name of the case in `row`, without the words that its plot shows already."""
    name = str(row.get("layout") or row.get("mode") or row.get("function"))
    return f"{name}\n{row['numel']:,} elements" if "mode" in row else name


def draw(
    path: Path, draw_on: Any, rows: Rows, description: str, width: float, height: float = 0, title: str = ""
) -> str:
    """Draw `rows` for each background; return the Markdown that shows the right one."""
    shown = []
    height = height or 1.2 + 0.2 * len(rows) * max(len(ratios(row)) for row in rows)  # a bar is as high as its label
    for theme, (ink, palette) in THEMES.items():
        inks = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink)
        with mpl.rc_context({"svg.hashsalt": path.stem, "savefig.transparent": True, **inks}):
            figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
            draw_on(axes, rows, {side: palette[i % len(palette)] for i, side in enumerate(SIDES)})
            axes.spines[["top", "right"]].set_visible(False)
            figure.suptitle(title, color=ink, fontsize=11)
            file = path.with_name(f"{path.stem}-{theme}.svg")
            figure.savefig(file, metadata={"Date": None, "Description": description})
            plt.close(figure)
        shown.append(f"```{{image}} /_generated/{file.name}\n:class: only-{theme}\n:alt: {description}\n```\n")
    return "\n".join(shown)


def table(rows: Rows) -> str:
    """Return a Markdown table of times, and ratios with their quartiles."""
    keys = [key for key in rows[0] if key not in ("seconds", "ratios", "busy")]
    sides = list(dict.fromkeys(side for row in rows for side in ratios(row)))
    head = ["elements" if key == "numel" else key for key in keys]
    text = [[*head, "µs", *sides], ["---"] * len(keys) + ["--:"] * (1 + len(sides))]
    for row in rows:
        cells = {
            side: f"{ratio:.2f}x" + (f"<br>{low:.2f} to {high:.2f}" if low < high else "")
            for side, (low, ratio, high) in ratios(row).items()
        }
        text.append(
            [f"{row[key]:,}" if key == "numel" else str(row[key]) for key in keys]
            + [f"{next(iter(row['seconds'].values())) * 1e6:,.1f}" + "<br>too busy to tell" * row.get("busy", False)]
            + [cells.get(side, "") for side in sides]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in text) + "\n"


def numbers(rows: Rows) -> str:
    return f"::::{{dropdown}} The numbers\n{table(rows)}\n::::\n"


def machine(report: dict[str, Any]) -> str:
    words = {"processor": "{}", "threads": "{} threads", "simd": "{}", "python": "CPython {}", "torch": "torch {}"}
    known = report["machine"]
    return ", ".join(word.format(known[key]) for key, word in words.items()) + f", muladd_nb {known['muladd_nb']}."


def dtypes(rows: Rows) -> list[str]:
    """Return the dtypes, float32 first."""
    return sorted(dict.fromkeys(row["dtype"] for row in rows), key=lambda name: name != "float32")


def by_size(rows: Rows, stem: Path) -> Iterator[str]:
    yield "::::::{tab-set}\n"
    for dtype in dtypes(rows):
        yield f":::::{{tab-item}} {dtype}\n::::{{grid}} 1 1 2 2\n:gutter: 2\n"
        of_dtype = [row for row in rows if row["dtype"] == dtype]
        for result, words in RESULT.items():
            chosen = [row for row in of_dtype if row["result"] == result]
            path = stem.with_name(f"{stem.name}-{dtype}-{result.strip('=')}")
            what = f"How many times faster {dtype} is than each alternative, by the number of elements, {words}"
            yield f"\n:::{{grid-item}}\n**{words.capitalize()}**\n\n"
            yield draw(path, lines, chosen, what, 4.6, 3.6) + "\n:::\n"
        yield f"::::\n\n{numbers(of_dtype)}\n:::::\n"
    yield "::::::\n"


def by_result(rows: Rows, stem: Path) -> Iterator[str]:
    for result, words in RESULT.items():
        chosen = [row for row in rows if row["result"] == result]
        what = f"How many times faster than each alternative, by layout, {words}"
        yield f"**{words.capitalize()}**\n\n"
        yield draw(stem.with_name(f"{stem.name}-{result.strip('=')}"), bars, chosen, what, 5.6) + "\n"
    yield numbers(rows)


def by_mode(rows: Rows, stem: Path) -> Iterator[str]:
    what = "How many times faster one call is than each alternative, by mode"
    calls = [row for row in rows if row["mode"] != "questions"]
    yield draw(stem, bars, calls, what, 5.6) + "\n"
    yield numbers(calls)
    for row in rows[len(calls) :]:
        entries = [f"| `{name}` | {seconds * 1e9:.0f} |" for name, seconds in row["seconds"].items()]
        yield "How long each {ref}`question <the-fast-path>` to torch takes, asked from Python:\n"
        yield "\n".join(["| | ns |", "|---|--:|", *entries]) + "\n"


def by_chain(rows: Rows, stem: Path) -> Iterator[str]:
    yield "::::::{tab-set}\n"
    for dtype in dtypes(rows):
        yield f":::::{{tab-item}} {dtype}\n::::{{grid}} 1 1 2 2\n:gutter: 2\n"
        of_dtype = [row for row in rows if row["dtype"] == dtype]
        for place, chain in enumerate(dict.fromkeys(row["work"] for row in of_dtype)):
            chosen = [row for row in of_dtype if row["work"] == chain]
            what = f"How many times faster {chain} of {dtype} is with the operator fused than each alternative, by size"
            yield f"\n:::{{grid-item}}\n**{chain}**\n\n"
            yield draw(stem.with_name(f"{stem.name}-{dtype}-{place}"), lines, chosen, what, 4.6, 3.6) + "\n:::\n"
        yield f"::::\n\n{numbers(of_dtype)}\n:::::\n"
    yield "::::::\n"


def by_function(rows: Rows, stem: Path) -> Iterator[str]:
    yield "Functors that call `elementwise::exp` and similar functions ({doc}`ship/functions`), into a fresh result.\n"
    yield "::::::{tab-set}\n"
    for dtype in dtypes(rows):
        yield f":::::{{tab-item}} {dtype}\n::::{{grid}} 1 1 2 2\n:gutter: 2\n"
        of_dtype = [row for row in rows if row["dtype"] == dtype]
        for numel in (1 << 16, 1 << 24):
            chosen = [row for row in of_dtype if (row["numel"], row["result"]) == (numel, "fresh")]
            what = f"How many times faster {dtype} functors are than each alternative, {numel:,} elements"
            yield f"\n:::{{grid-item}}\n**{numel:,} elements**\n\n"
            yield draw(stem.with_name(f"{stem.name}-{dtype}-{numel}"), bars, chosen, what, 4.6) + "\n:::\n"
        yield f"::::\n\n{numbers(of_dtype)}\n:::::\n"
    yield "::::::\n"


def shipped(rows: Rows, stem: Path) -> Iterator[str]:
    yield "::::{grid} 1 1 2 2\n:gutter: 2\n"
    for numel in dict.fromkeys(row["numel"] for row in rows):
        for work in dict.fromkeys(row["work"] for row in rows):
            chosen = [row for row in rows if (row["numel"], row["work"]) == (numel, work)]
            what = f"How many times faster each functor is than each alternative, {work}, {numel:,} elements"
            path = stem.with_name(f"{stem.name}-{work.replace(' ', '-')}-{numel}")
            yield f"\n:::{{grid-item}}\n**{work.capitalize()}, {numel:,} elements**\n\n"
            yield draw(path, bars, chosen, what, 4.6) + "\n:::\n"
    yield f"::::\n\n{numbers(rows)}"


def generated(rows: Rows, stem: Path) -> Iterator[str]:
    yield "The operator of {doc}`ship/index`. Eager and compiled are `x / (1 + x.abs() / limit)`.\n"
    yield from by_size(rows, stem)


def over_rows(rows: Rows, stem: Path) -> Iterator[str]:
    yield "::::::{tab-set}\n"
    for dtype in dtypes(rows):
        yield f":::::{{tab-item}} {dtype}\n::::{{grid}} 1 1 2 2\n:gutter: 2\n"
        of_dtype = [row for row in rows if row["dtype"] == dtype]
        for shape in dict.fromkeys((row["rows"], row["columns"]) for row in of_dtype):
            for work in dict.fromkeys(row["work"] for row in of_dtype):
                chosen = [row for row in of_dtype if (row["rows"], row["columns"], row["work"]) == (*shape, work)]
                size = "{:,} x {:,}".format(*shape)
                what = (
                    f"How many times faster each operator over rows is than each alternative, {work}, {dtype}, {size}"
                )
                path = stem.with_name(f"{stem.name}-{dtype}-{work.replace(' ', '-')}-{shape[0]}")
                yield f"\n:::{{grid-item}}\n**{work.capitalize()}, {size}**\n\n"
                yield draw(path, bars, chosen, what, 4.6) + "\n:::\n"
        yield f"::::\n\n{numbers(of_dtype)}\n:::::\n"
    yield "::::::\n"


def as_table(rows: Rows, stem: Path) -> Iterator[str]:
    yield table(rows)


SECTIONS = {
    "throughput": ("Contiguous tensors, by size", by_size),
    "strided": ("Layouts: 2048 x 4096 float32 elements", by_result),
    "per_call": ("One call, with and without gradients, float32", by_mode),
    "first": ("Import, first calls and peak memory, in new processes", as_table),
    "fusion": ("Compiled chains, with our operators fused into them", by_chain),
    "model": ("A layer x * gamma + beta, and a training step, float32", as_table),
    "functions": ("Functors that call exp and similar functions", by_function),
    "generated": ("Softclip, the operator of the tour", generated),
    "shipped": ("Operators that projects ship, float32", shipped),
    "derivatives": ("Derivatives of functors, forward and backward, float32", as_table),
    "formula": ('Softclip with fused="formula"', as_table),
    "rows": ("Seven operators beside PyTorch's functions of the same name", over_rows),
    "fresh_pages": ("With and without the hint, in new processes", as_table),
    "fragmented": ("The same in fragmented memory", as_table),
}
ELSEWHERE = {
    "model": "model.md",
    "shipped": "shipped.md",
    "rows": "rows.md",
    "fresh_pages": "pages.md",
    "fragmented": "pages.md",
}
CLOSED = {"report.md", "pages.md"}  # the sections of these are closed until a reader opens them
DROPDOWN = ("\n:::::::{{dropdown}} {}\n", "\n:::::::\n")


def picture(output: Path) -> None:
    """Draw the README's picture: float32 on the CPU, by size."""
    rows, text = pictured()
    draw(
        output / "speed", lines, rows, text, 6.4, 3.6, "Speed-up of mymuladd (float32, two cores; bands are quartiles)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the folder to write to")
    parser.add_argument(
        "--readme", action="store_true", help="renew the README's picture, and numbers in Markdown files"
    )
    arguments = parser.parse_args()
    output = arguments.output
    output.mkdir(exist_ok=True)
    mpl.use("svg")
    pages: dict[str, list[str]] = {name: [] for name in ("report.md", *ELSEWHERE.values())}
    sides = set()
    for device in ("cpu", "cuda"):
        for name, (title, section) in SECTIONS.items():
            if not (path := RESULTS / f"{name}-{device}.json").exists():
                continue
            report = json.loads(path.read_text())
            page = ELSEWHERE.get(name, "report.md")
            title = title if device == "cpu" else f"CUDA: {title}"
            opened, closed = DROPDOWN if page in CLOSED else ("\n### {}\n", "")
            parts = [opened.format(title), f"Measured on {machine(report)}\n"]
            pages[page] += [*parts, *section(report["rows"], output / path.stem), closed]
            sides |= {side for row in report["rows"] for side in ratios(row)}
    for name, parts in pages.items():
        (output / name).write_text("\n".join(parts))
    legend = [f"| `{side}` | {words} |" for side, words in SIDES.items() if side in sides]
    (output / "sides.md").write_text("\n".join(["| line or bar | what it is |", "|---|---|", *legend]) + "\n")
    picture(output)
    if arguments.readme:
        picture(ROOT / "docs" / "_static")
        for file in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
            file.write_text(fill(file.read_text()))
    print(f"written to {output / 'report.md'}")


if __name__ == "__main__":
    main()
