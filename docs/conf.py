"""Sphinx builds this site with ``sphinx-build -W -b html docs out``; ``-b doctest`` runs the examples on its pages."""

import doctest
import os
import re
import runpy
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pygments.formatters import HtmlFormatter
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

import muladd_nb

HERE = Path(__file__).parent

# The plots and tables of the page Performance, from the committed records. Drawing them takes half a minute, so we draw
# them again only if a record or a script is newer.
GENERATED = HERE / "_generated"
BENCHMARKS = HERE.parent / "benchmarks"
sources = [*BENCHMARKS.glob("*.py"), *BENCHMARKS.glob("results/*.json")]
written = [path.stat().st_mtime for path in GENERATED.glob("report.md")]
if not written or max(path.stat().st_mtime for path in sources) > written[0]:
    subprocess.run([sys.executable, BENCHMARKS / "report.py", "--output", GENERATED], check=True)
fill = runpy.run_path(str(BENCHMARKS / "records.py"))["fill"]

# The diagrams of the page Why.
subprocess.run([sys.executable, HERE / "house.py", GENERATED], check=True)

# sphinx-gallery treats every folder with a README as a gallery, so it gets a copy of the scripts that draw.
(GENERATED / "examples").mkdir(exist_ok=True)
for file in [HERE / "examples" / "README.txt", *(HERE / "examples").glob("plot_*.py")]:
    shutil.copy2(file, GENERATED / "examples")

project = "muladd_nb"
author = "The muladd_nb developers"
copyright = "The muladd_nb developers"  # noqa: A001 (the name Sphinx asks for)
version = release = muladd_nb.__version__

extensions = [
    "myst_parser",
    "notfound.extension",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxext.opengraph",
]
exclude_patterns = ["_generated", "examples", "gpu", "traps"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
python_maximum_signature_line_length = 60
napoleon_google_docstring = False

doctest_global_setup = "import torch, muladd_nb; torch.manual_seed(0)"
doctest_default_flags = doctest.ELLIPSIS  # without Sphinx's default, which ignores what an exception says

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

sphinx_gallery_conf = {
    "examples_dirs": "_generated/examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e9,  # how long it took here says nothing about there
    "write_computation_times": False,
    "image_srcset": ["2x"],
}

html_theme = "furo"
html_title = "muladd_nb"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b83c08", "color-brand-content": "#b83c08"},
    "dark_css_variables": {"color-brand-primary": "#ff9d5c", "color-brand-content": "#ff9d5c"},
}
pygments_dark_style = "github-dark"
html_baseurl = os.environ.get("DOCS_URL", "")  # where the site will stand, if that is known
notfound_urls_prefix = urlsplit(html_baseurl).path or "/"


class Lines(HtmlFormatter):  # type: ignore[type-arg]
    """Puts each line of code into a box, so that a long line wraps under its own indentation (site.css).

    Drops empty lines at the end, such as those before the next function of a quoted file.
    """

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:  # noqa: D102
        lines = list(source)
        while lines and not self.code(lines[-1][1]).strip():
            lines.pop()
        yield from super().wrap((kind, self.line(html) if kind else html) for kind, html in lines)

    @staticmethod
    def code(html: str) -> str:  # noqa: D102
        return re.sub("<[^>]+>", "", html)

    def line(self, html: str) -> str:  # noqa: D102
        code = self.code(html)
        return f'<span class="line" style="--indent: {len(code) - len(code.lstrip(" "))}">{html}</span>'


PygmentsBridge.html_formatter = Lines

ogp_site_url = html_baseurl
ogp_enable_meta_description = True
ogp_social_cards = {"line_color": "#d9480f", "image": "_static/logo.png", "image_mini": "_static/logo.png"}


def with_inventory(projects: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return the intersphinx mapping of the projects whose inventory can be downloaded."""
    mapping = {}
    GENERATED.mkdir(exist_ok=True)
    for name, url in projects.items():
        inventory = GENERATED / f"{name}.inv"
        try:
            with urllib.request.urlopen(url + "objects.inv", timeout=5) as answer:
                inventory.write_bytes(answer.read())
        except OSError:
            continue
        mapping[name] = (url, str(inventory))
    return mapping


intersphinx_mapping = with_inventory(
    {"python": "https://docs.python.org/3/", "torch": "https://docs.pytorch.org/docs/stable/"}
)


def setup(app: Sphinx) -> None:
    """Put the numbers of the records into the pages (benchmarks/records.py)."""

    def replace(text: list[str]) -> None:
        text[0] = fill(text[0], keep_comments=False)

    app.connect("source-read", lambda app, name, text: replace(text))
    app.connect("include-read", lambda app, path, name, text: replace(text))
