"""Generated lines as the formatters of a project leave them: ``ruff format`` and ``clang-format``, both 120 wide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

WIDTH = 120


def python(head: str, items: Sequence[str], tail: str) -> str:
    """Return a list of parameters or arguments: on one line, on one of its own, or on one each."""
    line = f"{head}{', '.join(items)}{tail}"
    margin = " " * (len(head) - len(head.lstrip()))
    if len(line) <= WIDTH:
        return line
    inside = f"{margin}    {', '.join(items)}"
    if len(inside) > WIDTH:
        inside = "".join(f"{margin}    {item},\n" for item in items).rstrip("\n")
    return f"{head}\n{inside}\n{margin}{tail}"


def python_tuple(head: str, items: Sequence[str]) -> str:
    """Return an item that ends in a tuple: on one line, or with an element on each, which may be a product."""
    line = f"{head}({', '.join(items)}{',' * (len(items) == 1)}),"
    if len(line) <= WIDTH:
        return line
    margin = " " * (len(head) - len(head.lstrip()))
    lines = [f"{margin}    {item}," for item in items]
    lines = [x if len(x) <= WIDTH else x.replace(" * ", f"\n{margin}    * ") for x in lines]
    return "\n".join([f"{head}(", *lines, f"{margin}),"])


def python_product(head: str, product: str) -> str:
    """Return an item that ends in a product: on one line, in parentheses on the next, or with a factor on each."""
    if product.startswith("(") and product.index(")") == len(product) - 1:  # it is its only factor
        product = product[1:-1]
    line = f"{head}{product},"
    if len(line) <= WIDTH:
        return line
    margin = " " * (len(head) - len(head.lstrip()))
    inside = f"{margin}    {product}"
    if len(inside) > WIDTH:
        inside = inside.replace(" * ", f"\n{margin}    * ")
    return f"{head}(\n{inside}\n{margin}),"


def cpp(text: str) -> str:
    """Return C++ with the lines broken that are too long: after what controls a statement, or inside parentheses."""
    lines = (part for line in text.split("\n") for part in _broken(line))
    return "\n".join(part for line in lines for part in _literals(line))


def _literals(line: str) -> Iterator[str]:
    """Yield a string that is too long as several, each of which ends behind a space."""
    margin = line[: len(line) - len(line.lstrip())]
    while len(line) > WIDTH and line.lstrip().startswith('"'):
        at = line.rindex(" ", 0, WIDTH - 1) + 1
        yield f'{line[:at]}"'
        line = f'{margin}"{line[at:]}'
    yield line


def _broken(line: str) -> Iterator[str]:
    if len(line) <= WIDTH or line.lstrip().startswith("//"):
        yield line
        return
    margin = " " * (len(line) - len(line.lstrip()))
    if controlled := re.match(r" *(?:for|if) \(.*?\) (?=library\.)", line):
        yield controlled[0].rstrip()
        yield from _broken(f"{margin}  {line[controlled.end() :]}")
        return
    result, operator, parameters = line.partition(" operator()(")
    if result.endswith(" C") and len(margin + operator + parameters) <= WIDTH + 1:
        yield result
        yield margin + operator.lstrip() + parameters
        return
    if results := re.match(r" *return \{", line):
        yield results[0]
        yield from _filled(f"{margin}    ", line[results.end() :], f"{margin}    ", ends=(",",))
        return
    if product := re.match(r" *(?:return|const C product_ =|C value =) (?=\w.* \* )", line):
        factors = line[product.end() :]
        if "=" in product[0] and len(f"{margin}    {factors}") <= WIDTH:
            yield product[0].rstrip()
            yield f"{margin}    {factors}"
        else:
            yield from _filled(product[0], factors, " " * product.end())
        return
    depth, at = 0, line.rindex(")")
    while depth := depth + {")": 1, "(": -1}.get(line[at], 0):
        at -= 1
    yield line[: at + 1]
    yield from _filled(f"{margin}    ", line[at + 1 :], f"{margin}    ")


def _filled(first: str, text: str, indentation: str, ends: tuple[str, ...] = (",", " *")) -> Iterator[str]:
    line = first
    for piece in _pieces(text, ends):
        if line != first and len(line) + len(piece.rstrip()) > WIDTH:
            yield line.rstrip()
            line = indentation
        line += piece
    yield line.rstrip()


def _pieces(text: str, ends: tuple[str, ...]) -> Iterator[str]:
    """Yield the arguments, or the factors, that a text is made of, up to the space behind each."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == " " and depth <= 0 and text[:at].endswith(ends):
            yield text[begin : at + 1]
            begin = at + 1
    yield text[begin:]
