"""Sphinx builds this site: ``sphinx-build -W -b html docs out``, ``-b doctest`` runs what its pages show."""

import doctest
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pygments.formatters import HtmlFormatter
from sphinx.highlighting import PygmentsBridge

import muladd_nb

HERE = Path(__file__).parent

# The plots and tables of the page Performance, from the committed results.
GENERATED = HERE / "_generated"
subprocess.run([sys.executable, HERE.parent / "benchmarks" / "report.py", "--output", GENERATED], check=True)

# The picture of the house on the page Why.
subprocess.run([sys.executable, HERE / "house.py", GENERATED], check=True)

# The gallery would take every folder with a README for a part of it: it gets the examples that draw, and no folders.
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
    """Makes each line of code a box, so that one that is too long goes on under its own indentation (site.css).

    Empty ones at the end, as before the next function of a file that is quoted, are left out.
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
    """Return the intersphinx mapping of the projects whose inventory can be had: without a network, of none."""
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
