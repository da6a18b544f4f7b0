"""Write results/*.json as plots and tables, for reading here and for the page Performance of the documentation.

A plot is an SVG for light pages and one for dark ones; report.md, in MyST Markdown, shows them, model.md and pages.md
have what stands elsewhere on that page, and sides.md says what the lines are. speed-light.svg and speed-dark.svg are
the picture of the README, into which --readme writes them.
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

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent.parent / "docs" / "_static"
# What we are compared with: a color each, and a row each of the table of sides, in this order.
SIDES = {
    "eager": "`a * b + c`: two passes over memory, and a temporary",
    "mul + add": "eager, written with functions",
    "addcmul": "`torch.addcmul` with a broadcast constant: one pass, the best of eager PyTorch",
    "compile": "`torch.compile` of the same, with dynamic shapes",
    "naive kernel": "the scalar loop on one thread that a first tutorial writes",
    "torch.ops": "`torch.ops.muladd_nb.mymuladd` in place of the public function",
    "streaming triad": "two loads, one addition and one store past the cache, on all threads, and nothing else: the "
    "limit of the machine where the tensors are in memory, and slow where they are in a cache",
    "triad": "the same with stores through the cache: the limit where the tensors are in it",
    "copy": "a copy on the device: it moves two arrays where we move three, so that 1.5 copies are the limit",
    "Triton": "a Triton kernel",
    "operator, eager": "a chain of operators with ours among them, not compiled",
    "calls, compiled": "the same chain, compiled so that the operators stay calls of their kernels",
    "a * b + c, compiled": "the same chain with PyTorch's operators in place of ours: products are rounded",
    "its formula, compiled": "the same program with the formula in place of the operator",
    "public function, compiled": "the same program with the public function, whose Python is guarded, too",
    "by hand": "a `torch.autograd.Function` written by hand that calls the same kernels",
    "softclip, eager": "the operator's kernels, also in the backward pass",
    "its formula, eager": "PyTorch's operators, one after the other",
    "median call": "ours with `MULADD_NB_HUGEPAGES=0`: the median of the first eleven calls of a process",
    "first call": "the same: the first of them",
    "all calls": "the same: all of them together",
}
# Tell the sides apart on each background, with every colour vision.
THEMES = {
    "light": ("#1f2328", ("#0072b2", "#c2410c", "#00795a", "#a3437f", "#6b5900", "#5b4bb5", "#0e8aa8", "#777777")),
    "dark": ("#d0d4da", ("#56b4e9", "#ff9d5c", "#2fd6a3", "#f0a6cf", "#f0e442", "#b3a6ff", "#7fdfff", "#aaaaaa")),
}
RESULT = {"fresh": "a fresh result", "out=": "into out="}

Rows = list[dict[str, Any]]


def ratios(row: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return how many times faster the first side is than each other one: lower quartile, median, upper quartile."""
    if "ratios" in row:
        return {side: (of["low"], of["median"], of["high"]) for side, of in row["ratios"].items()}
    mine, *others = row["seconds"]  # as they were written before there were ratios
    return {side: (row["seconds"][side] / row["seconds"][mine],) * 3 for side in others}


def lines(axes: Axes, rows: Rows, colors: dict[str, str]) -> None:
    rows = [row for row in rows if not row.get("busy")] or rows  # what cannot be told is in the numbers alone
    sizes = [row["numel"] for row in rows]
    for side in sorted(ratios(rows[0]), key=lambda side: -ratios(rows[-1])[side][1]):  # as they end on the right
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
    """Put the legend over the axes, in as many columns as fit, and in an order that is read by rows."""
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
            end = max(ratio, high, 1)  # no label stands on the line at 1
            axes.annotate(f"{ratio:.1f}x", (end, y), (3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.margins(x=0.1)
    axes.axvline(1, color="gray", linewidth=1)
    axes.set_yticks(range(len(rows)), [case(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("times faster than")
    legend(axes, [plt.Rectangle((0, 0), 1, 1, color=colors[side]) for side in sides], sides)


def case(row: dict[str, Any]) -> str:
    """Return what the case of `row` is called, without what its plot says already."""
    name = str(row.get("layout") or row.get("mode") or row.get("function"))
    return f"{name}\n{row['numel']:,} elements" if "mode" in row else name


def draw(
    path: Path, draw_on: Any, rows: Rows, description: str, width: float, height: float = 0, title: str = ""
) -> str:
    """Draw `rows` for each background; return the Markdown that shows the one that fits."""
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
            figure.savefig(file, metadata={"Date": None})
            plt.close(figure)
        shown.append(f"```{{image}} /_generated/{file.name}\n:class: only-{theme}\n:alt: {description}\n```\n")
    return "\n".join(shown)


def table(rows: Rows) -> str:
    """Return a Markdown table of times, and of ratios with their quartiles."""
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
        yield "\nWhat each {ref}`question <the-fast-path>` of such a call takes, from Python:\n\n| | ns |\n|---|--:|\n"
        yield from (f"| `{name}` | {seconds * 1e9:.0f} |\n" for name, seconds in row["seconds"].items())


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
    yield "Operators whose functors call `elementwise::exp` and its like: {doc}`ship/functions`. Into a fresh result.\n"
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
    yield "The operator of {doc}`ship/index`. Eager is `x / (1 + x.abs() / limit)`, and what is compiled, too.\n"
    yield from by_size(rows, stem)


def rows(rows: Rows, stem: Path) -> Iterator[str]:
    yield "Of {doc}`ship/kernels`. Eager is `torch.nn.functional.rms_norm`, and what is compiled, too.\n\n"
    yield table(rows)


def as_table(rows: Rows, stem: Path) -> Iterator[str]:
    yield table(rows)


SECTIONS = {
    "throughput": ("By size", by_size),
    "strided": ("By layout: 2048 x 4096 float32 elements", by_result),
    "per_call": ("One call, with and without gradients, float32", by_mode),
    "fusion": ("Compiled chains with our operators fused into them", by_chain),
    "model": ("A layer x * gamma + beta, and a training step, float32", as_table),
    "functions": ("Functions in a functor", by_function),
    "generated": ("Softclip, which muladd-nb new and an author wrote", generated),
    "shipped": ("Operators that projects ship, float32", shipped),
    "derivatives": ("Derivatives of functors, forward and backward, float32", as_table),
    "formula": ("Softclip, in whose place Inductor compiles its formula", as_table),
    "rows": ("Rows: rms_norm, a kernel of an author's own, and its derivative", rows),
    "fresh_pages": ("In new processes: the median one, and the 10th and 90th percentile", as_table),
    "fragmented": ("The same in fragmented memory", as_table),
}
ELSEWHERE = {"model": "model.md", "shipped": "shipped.md", "fresh_pages": "pages.md", "fragmented": "pages.md"}


def picture(output: Path) -> None:
    """Draw the one picture: float32 on the CPU, by size."""
    rows = json.loads((RESULTS / "throughput-cpu.json").read_text())["rows"]
    chosen = [row for row in rows if (row["dtype"], row["result"]) == ("float32", "fresh")]
    for row in chosen:
        row["ratios"] = {side: row["ratios"][side] for side in ("eager", "addcmul", "compile")}
    draw(output / "speed", lines, chosen, "", 6.4, 3.6, "a * b + c on two cores: how many times faster mymuladd is")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--readme", action="store_true", help=f"write the picture of the README into {README} too")
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
            parts = pages[ELSEWHERE.get(name, "report.md")]
            parts.append(f"\n### {'CPU' if device == 'cpu' else 'CUDA'}: {title[0].lower()}{title[1:]}\n")
            parts.append(f"Measured on {machine(report)}\n")
            parts.extend(section(report["rows"], output / path.stem))
            sides |= {side for row in report["rows"] for side in ratios(row)}
    for name, parts in pages.items():
        (output / name).write_text("\n".join(parts))
    legend = [f"| `{side}` | {words} |" for side, words in SIDES.items() if side in sides]
    (output / "sides.md").write_text("\n".join(["| line or bar | what it is |", "|---|---|", *legend]) + "\n")
    for folder in (output, *[README] * arguments.readme):
        picture(folder)
    print(f"written to {output / 'report.md'}")


if __name__ == "__main__":
    main()
