"""In the repository's root, `import muladd_nb` finds the sources first, but imports the installed package."""

import json
import os
import re
import shutil
import sys
import venv
from pathlib import Path

import pytest
import test_codebase
import torch
from conftest import run

import muladd_nb

ROOT = Path(__file__).parent.parent


class Environment:
    """A virtual environment with everything that is installed in this one, except muladd_nb."""

    def __init__(self, folder):
        venv.create(folder)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        for path in Path(torch.__file__).parent.parent.iterdir():
            if "muladd" not in path.name:
                (self.site / path.name).symlink_to(path)

    def run(self, *arguments, cwd=ROOT, **environment):
        return run(self.python, *arguments, cwd=cwd, **environment)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return an environment with the files of muladd_nb, as a wheel installs them."""
    environment = Environment(tmp_path_factory.mktemp("installed"))
    package = environment.site / "muladd_nb"
    shutil.copytree(Path(muladd_nb.__file__).parent, package, dirs_exist_ok=True)
    for file in (muladd_nb._C.__file__, muladd_nb._build_info.__file__, muladd_nb.library_path()):
        if not (package / Path(file).name).exists():  # in an editable install they are elsewhere
            shutil.copy(file, package)
    return environment


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("without"))


# Uses of a package. The program prints from where everything was imported.
USE = """
import importlib, importlib.util, json, pickle, sys
import muladd_nb, torch
x = torch.full((2,), 3.0)
assert torch.ops.muladd_nb.mymuladd(x, x, 0.5).eq(9.5).all()
assert pickle.loads(pickle.dumps(muladd_nb.mymul)) is muladd_nb.mymul
assert importlib.util.find_spec("muladd_nb") is muladd_nb.__spec__
assert importlib.reload(muladd_nb) is muladd_nb
import muladd_nb.__main__ as late
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "muladd_nb"]
print(json.dumps([muladd_nb.__file__, *muladd_nb.__path__, late.__file__, *files]))
"""


def files(run):
    assert (run.returncode, run.stderr) == (0, "")
    return [Path(file) for file in json.loads(run.stdout)]


def link_to_the_root(folder):
    (folder / "clone").symlink_to(ROOT)
    return folder / "clone"


def link_to_the_package(folder):
    (folder / "muladd_nb").symlink_to(ROOT / "muladd_nb")
    return folder


OTHERS = [(["-I"], {}), ([], {"PYTHONPATH": "."}), *([(["-P"], {})] if sys.version_info >= (3, 11) else [])]


@pytest.mark.parametrize(
    ("options", "environment"), [([], {}), *(pytest.param(*how, marks=pytest.mark.slow) for how in OTHERS)], ids=str
)
def test_the_installed_package_is_used_wholly(installed, options, environment):
    assert all(file.is_relative_to(installed.site) for file in files(installed.run(*options, "-c", USE, **environment)))


@pytest.mark.slow
@pytest.mark.parametrize("link", [link_to_the_root, link_to_the_package])
def test_the_installed_package_is_used_where_a_link_leads_to_the_sources(installed, link, tmp_path):
    run = installed.run("-c", USE, cwd=link(tmp_path), PYTHONPATH=".")
    assert all(file.is_relative_to(installed.site) for file in files(run))


@pytest.mark.slow
def test_programs_of_python_m_use_the_installed_package(installed, tmp_path):
    info = installed.run("-m", "muladd_nb", "info", "--json")
    assert Path(json.loads(info.stdout)["info"]["library_path"]).is_relative_to(installed.site)
    test = tmp_path / "test_it.py"
    test.write_text(f"import muladd_nb\ndef test(): assert muladd_nb.__file__.startswith({str(installed.site)!r})\n")
    run = installed.run("-m", "pytest", "-q", f"--rootdir={tmp_path}", "-c", os.devnull, str(test))
    assert run.returncode == 0, run.stdout


def test_only_where_none_is_installed_the_sources_say_what_to_do(without):
    run = without.run("-c", "import muladd_nb")
    assert re.fullmatch(
        rf"ImportError: {ROOT} holds the sources of muladd_nb, which are not compiled: "
        r"run 'pip install \.' there and start Python in another folder\.",
        run.stderr.splitlines()[-1],
    )


@pytest.mark.slow
def test_an_editable_install_stays_as_it_is(without, tmp_path):
    clone = tmp_path / "clone"
    for path in test_codebase.sources():
        copy = clone / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    pip = ["-m", "pip", "--python", str(without.python), "install", "-q", "--no-build-isolation", "--no-deps"]
    options = ["--config-settings=setup-args=-Dcuda=disabled", "-e", str(clone)]
    built = run(sys.executable, *pip, *options)
    assert built.returncode == 0, built.stdout + built.stderr
    sources = clone / "muladd_nb"
    for cwd in (clone, tmp_path):
        first, *rest = files(without.run("-c", USE, cwd=cwd))
        assert first == sources / "__init__.py"
        assert {file.parent for file in rest if file.suffix == ".py"} >= {sources, sources / "_layer"}
