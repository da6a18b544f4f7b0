#!/usr/bin/env python3
"""Open every page of the built documentation in Chromium, as readers do: wide and narrow, light and dark.

usage: check_site.py SITE [SCREENSHOTS]

Exit status 1, and a line for each, if a page reports an error on the console, loads something from elsewhere,
is wider than the window or in the wrong colours; if a link within the site leads nowhere; or if a search for
mymuladd finds nothing. With a second argument, pictures of all pages are left in that folder.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = {"desktop": 1280, "phone": 390}
SCHEMES = ("light", "dark")

# What ends past the window's edge and is in no box of its own that scrolls, as code and tables may. The width of the
# document does not tell: the theme lets the whole content scroll, which is what must not be needed.
TOO_WIDE = """() => [...document.querySelectorAll('.content *')].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1 || !element.checkVisibility()) return false
  for (let box = element; !box.matches('.content'); box = box.parentElement)
    if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return false
  return true
}).map(element => element.tagName.toLowerCase() + ': ' + element.textContent.trim().slice(0, 60))"""

# Tabs and drop-downs that are closed are read too.
OPEN_ALL = """() => {
  for (const tab of document.querySelectorAll('.sd-tab-content')) tab.style.display = 'block'
  for (const details of document.querySelectorAll('details')) details.open = true
}"""

# How bright the page is, from 0 to 255.
BRIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)
  return (r + g + b) / 3
}"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a word."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, D102
        pass


def serve(site: Path) -> str:
    """Serve the folder on a free port, in the background, and return its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def check_looks(page: Page, scheme: str) -> Iterator[str]:
    """Yield what is wrong with how the page stands in its window."""
    page.evaluate(OPEN_ALL)
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
    """Yield what is wrong with the search."""
    page = browser.new_page()
    page.goto(root + "search.html?q=mymuladd")
    page.wait_for_selector("#search-results p.search-summary")
    page.wait_for_function("!/^Searching/.test(document.querySelector('#search-results h2')?.textContent ?? '')")
    if not page.query_selector_all("#search-results ul.search li"):
        yield "a search for mymuladd finds nothing"
    page.close()


def main(site: Path, screenshots: Path | None) -> int:
    """Check the site in the folder, and return the exit status."""
    root = serve(site)
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts)
    problems: list[str] = []
    said: list[str] = []  # by the browser, of the page that is open
    links: dict[str, set[str]] = {}  # each address within the site, and the pages that link to it
    anchors: dict[str, set[str]] = {}  # each page, and what in it can be linked to

    def note_request(address: str) -> None:
        if not address.startswith((root, "data:")):
            said.append(f"loads {address}")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        for device, width in WIDTHS.items():
            for scheme in SCHEMES:
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
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
                    problems += [f"{name}, {device}, {scheme}: {text}" for text in [*said, *check_looks(page, scheme)]]
                context.close()
        problems += [f"search.html: {problem}" for problem in check_search(browser, root)]
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
