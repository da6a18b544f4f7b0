#!/usr/bin/env python3
"""Open every page of the built documentation in Chromium: wide and light, narrow and dark.

usage: check_site.py SITE [SCREENSHOTS]

Print a line for each fault, and exit with status 1 if there is one. Faults of a page: it reports an error on the
console, loads something from elsewhere, is wider than the window or has the wrong colours; it cuts off code or a
table, or puts two lines of code into one; on a desktop it breaks a name in a table or hides its table of contents; it
has no link to its source. Faults of the site: a link within it leads nowhere; a search does not find the right page
first; a public name is not in the index. With a second argument, save a picture of each page in that folder.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urldefrag, urlsplit

import torch
from playwright.sync_api import Browser, Page, sync_playwright

import muladd_nb

WIDTHS = {"desktop": 1280, "phone": 390}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLUMNS_OF_CODE = 92
NO_SOURCE = {"genindex.html", "py-modindex.html", "search.html"}  # Sphinx writes these

# Searches of readers, and the page that must come first. Its index entry for the search begins with "!".
SEARCHES = {
    "install": "start",
    "gpu": "start",
    "cuda version": "start",
    "windows": "start",
    "uninstall": "start",
    "faq": "faq",
    "functor": "glossary",
    "MULADD_NB_SIMD": "start",
    "mymuladd": "operators/index",
    "build_info": "operators/index",
    "broadcasting": "operators/contract",
    "rounding": "operators/contract",
    "strides": "operators/contract",
    "error": "operators/errors",
    "ImportError": "operators/errors",
    "conda": "operators/errors",
    "docker": "operators/errors",
    "undefined symbol": "operators/errors",
    "autocast": "composability",
    "ONNX": "composability",
    "torch.compile": "composability",
    "fusion": "composability",
    "vmap": "composability",
    "addcmul": "performance",
    "triad": "performance",
    "DTensor": "distributed",
    "torchrun": "distributed",
    "AOTInductor": "without_python",
    "ExecuTorch": "without_python",
    "hessian": "gallery/plot_derivatives",
    "muladd-nb new": "ship/index",
    "meson.build": "ship/project",
    "stream": "ship/kernels",
    "softmax": "ship/rows",
    "layer norm": "ship/rows",
    "layernorm": "ship/rows",
    "driver": "ship/cuda",
    "register_fake": "ship/registrations",
    "manylinux": "ship/release",
    "PyPI": "ship/publish",
    "gdb": "ship/debug",
    "opcheck": "ship/debug",
    "graph break": "ship/debug",
    "does not support running with fake tensors": "ship/debug",
    "sanitizers": "ship/debug",
    "TensorIterator": "ship/migrate",
    "setuptools": "ship/migrate",
    "pybind11": "coming_from",
    "abi3": "why/index",
    "nanobind": "why/index",
    "register_autograd": "why/autograd",
    "fuzz": "reliability",
    "nox": "contributing",
}

# Elements that end past the window's edge and are not in a box that scrolls, as code and tables may be. The document's
# width does not show them, because the theme lets the whole content scroll. Readers should not need that.
TOO_WIDE = """() => [...document.querySelectorAll('.content *')].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1 || !element.checkVisibility()) return false
  for (let box = element; !box.matches('.content'); box = box.parentElement)
    if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return false
  return true
}).map(element => element.tagName.toLowerCase() + ': ' + element.textContent.trim().slice(0, 60))"""

# Closed tabs and dropdowns are checked too.
OPEN_ALL = """() => {
  for (const tab of document.querySelectorAll('.sd-tab-content')) tab.style.display = 'block'
  for (const details of document.querySelectorAll('details')) details.open = true
}"""

# Code and tables that must be scrolled. On a phone that is allowed for code.
CUT_OFF = """selector => [...document.querySelectorAll(selector)].filter(
  box => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1
).map(box => box.textContent.trim().slice(0, 60))"""

# Code with two lines side by side.
NO_LINES = """() => [...document.querySelectorAll('.content pre')].filter(box => {
  const tops = [...box.querySelectorAll('.line')].flatMap(line => line.getClientRects()[0]?.top ?? [])
  return tops.some((top, line) => line && top <= tops[line - 1])
}).map(box => box.textContent.trim().slice(0, 60))"""

# Names in tables that wrap.
BROKEN = """() => [...document.querySelectorAll('.content table .pre')].filter(name => {
  const tops = [...name.getClientRects()].map(part => part.top)
  return tops.some(top => top !== tops[0])
}).map(name => name.textContent)"""

# How many columns of code fit into the page; longer lines wrap.
COLUMNS = """() => {
  const line = document.querySelector('.content .highlight pre .line')
  if (!line) return Infinity
  const style = getComputedStyle(line), context = document.createElement('canvas').getContext('2d')
  context.font = style.fontSize + ' ' + style.fontFamily
  const all = [...document.querySelectorAll('article > section > div:not(.sphx-glr-script-out) > .highlight > pre')]
  const boxes = all.filter(box => box.checkVisibility())
  const widths = boxes.map(box => {
    const { paddingLeft, paddingRight } = getComputedStyle(box)
    return box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)
  })
  return Math.min(...widths) / context.measureText('m').width
}"""

# Whether the page's own table of contents, if it has one, is visible in the window.
IN_SIGHT = """selector => [...document.querySelectorAll(selector)].every(element => {
  const { left, right } = element.getBoundingClientRect()
  return left >= 0 && right <= innerWidth && element.checkVisibility()
})"""

# How bright the page is, from 0 to 255.
BRIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)
  return (r + g + b) / 3
}"""


# The path of the site's address, as in docs/conf.py: the page 404 links from there.
FOLDER = urlsplit(os.environ.get("DOCS_URL", "")).path or "/"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site in its folder, without a log."""

    def translate_path(self, path: str) -> str:  # noqa: D102
        return super().translate_path("/" + path.removeprefix(FOLDER))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, D102
        pass


def serve(site: Path) -> str:
    """Serve the folder on a free port in the background, and return its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}{FOLDER}"


def check_looks(page: Page, device: str, scheme: str) -> Iterator[str]:
    """Yield the faults of the layout of a page."""
    if device == "desktop" and not page.evaluate(IN_SIGHT, ".toc-drawer:not(.no-toc) .toc-tree"):
        yield "its own contents are not to be seen"
    page.evaluate(OPEN_ALL)
    for text in page.evaluate(CUT_OFF, ".content .table-wrapper" + ", .content pre" * (device == "desktop")):
        yield f"cut off: {text}"
    for text in page.evaluate(NO_LINES):
        yield f"lines of code beside each other: {text}"
    for text in page.evaluate(BROKEN) if device == "desktop" else []:
        yield f"a name is broken: {text}"
    columns = page.evaluate(COLUMNS) if device == "desktop" else None
    if columns is not None and columns < COLUMNS_OF_CODE:
        yield f"{columns:.0f} columns of code fit, not {COLUMNS_OF_CODE}"
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if width > 0:
        yield f"{width} pixels wider than the window"
    for element in page.evaluate(TOO_WIDE):
        yield f"sticks out of the window: {element}"
    if (page.evaluate(BRIGHTNESS) > 127) != (scheme == "light"):
        yield f"not in the {scheme} colours"
    for image in page.eval_on_selector_all(
        "img:not([loading=lazy])", "images => images.filter(i => !i.naturalWidth).map(i => i.src)"
    ):
        yield f"no such image: {image}"


def check_search(browser: Browser, root: str) -> Iterator[str]:
    """Yield the searches that do not find the right page first."""
    page = browser.new_page()
    for term, about in SEARCHES.items():
        page.goto(f"{root}search.html?q={term}")
        page.wait_for_selector("#search-results p.search-summary")
        page.wait_for_function("!/^Searching/.test(document.querySelector('#search-results h2')?.textContent ?? '')")
        found = page.eval_on_selector_all("#search-results ul.search li > a", "all => all.map(a => a.pathname)")
        pages = list(dict.fromkeys(path.removeprefix(FOLDER).removesuffix(".html") for path in found))
        if pages[:1] != [about]:
            yield f"a search for {term} should find {about} first, and finds {', '.join(pages[:3]) or 'nothing'}"
    page.close()


def check_index(page: Page, root: str) -> Iterator[str]:
    """Yield the public functions and operators that are not in the index."""
    page.goto(root + "genindex.html")
    entries = " ".join(page.eval_on_selector_all(".genindextable", "all => all.map(table => table.textContent)"))
    operators = {
        name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("muladd_nb::")
    }
    public = operators.union(muladd_nb.__all__)
    for name in sorted(name for name in public if not name.startswith("_") or name == "__version__"):
        if not re.search(rf"(?<!\w){re.escape(name)}(?![\w.])", entries):
            yield f"{name} is not in the index"


def main(site: Path, screenshots: Path | None) -> int:
    """Check the site in the folder, and return the exit status."""
    root = serve(site)
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts)
    problems: list[str] = []
    said: list[str] = []  # the browser's messages about the open page
    links: dict[str, set[str]] = {}  # each address within the site: the pages that link to it
    anchors: dict[str, set[str]] = {}  # each page: the ids that links can lead to

    def note_request(address: str) -> None:
        if not address.startswith((root, "data:")):
            said.append(f"loads {address}")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        # Widths do not depend on colours, so one pass for each width, with one of the schemes, is enough.
        for (device, width), scheme in zip(WIDTHS.items(), SCHEMES, strict=True):
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: note_request(request.url))
            for name in names:
                said.clear()
                page.goto(root + name)
                anchors[name] = set(page.eval_on_selector_all("[id]", "all => all.map(element => element.id)"))
                for link in page.eval_on_selector_all("a[href]", "all => all.map(element => element.href)"):
                    if link.startswith(root):
                        links.setdefault(link.removeprefix(root), set()).add(name)
                if screenshots:
                    file = screenshots / f"{name.removesuffix('.html').replace('/', '-')}-{device}-{scheme}.png"
                    page.screenshot(path=file, full_page=True)
                problems += [
                    f"{name}, {device}, {scheme}: {text}" for text in [*said, *check_looks(page, device, scheme)]
                ]
                if name not in NO_SOURCE and not page.query_selector(".view-this-page a"):
                    problems.append(f"{name}: no link to its source")
            context.close()
        problems += [f"search.html: {problem}" for problem in check_search(browser, root)]
        problems += [f"genindex.html: {problem}" for problem in check_index(browser.new_page(), root)]
        browser.close()
    for link, pages in links.items():
        address, anchor = urldefrag(link)
        name = unquote(urlsplit(address).path) or "index.html"
        name += "index.html" * name.endswith("/")
        if not (site / name).is_file() or (anchor and unquote(anchor) not in anchors.get(name, set())):
            problems.append(f"{', '.join(sorted(pages))}: a link leads nowhere: {link}")
    print("\n".join(problems) or f"{len(names)} pages and {len(links)} links are as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else None))
