"""The code base itself: versions, schemas and documentation agree, and every file is mentioned."""

import ast
import csv
import functools
import importlib.metadata
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import calls
import pytest
import torch
from conftest import each, run
from generated import functor

import muladd_nb
from muladd_nb._operators import FORMS

ROOT = Path(__file__).parent.parent
GENERATED_DIRS = {".git", ".nox", ".venv", "__pycache__", "build", "dist", "gallery", "node_modules"}


def text(path):
    return (ROOT / path).read_text()


def sources():
    """The tracked files; in an unpacked sdist, all of them."""
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [path for path in map(ROOT.joinpath, names.splitlines()) if path.is_file()]
    return [
        path for path in ROOT.rglob("*") if path.is_file() and not GENERATED_DIRS & set(path.relative_to(ROOT).parts)
    ]


def only(pattern, path):
    """Return the group of `pattern`, which must match exactly once in a file."""
    (found,) = re.findall(pattern, text(path), re.MULTILINE)
    return found


def matrix():
    """The pairs of torch and CPython on which `nox -s matrix` runs the tests."""
    cells = re.findall(r'"([\d.]+)": "([\d. t]+)"', only(r"^MATRIX = ({[^}]+})", "noxfile.py"))
    return [(torch, python) for torch, pythons in cells for python in pythons.split()]


def test_the_layers_headers_are_found_only_between_quotes():
    """With -I, the header of a kernel that an author calls ``string`` hides C's ``<string.h>``."""
    for path in (ROOT / "src/elementwise").rglob("meson.build"):
        assert not re.search(r"^\s*include_directories:", path.read_text(), re.MULTILINE), path


def test_one_version_everywhere():
    version = only(r"^  version: '(.+?)'", "meson.build")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert muladd_nb.__version__ == importlib.metadata.version("muladd_nb") == muladd_nb.build_info()["version"]
    assert muladd_nb.__version__ == version
    assert only(r"^version: (.+)", "CITATION.cff") == version
    released = re.findall(r"^## \[(\d.*?)\] - (\d{4}-\d{2}-\d{2})$", text("CHANGELOG.md"), re.MULTILINE)
    if released:  # the newest stands first
        assert released[0] == (version, only(r"^date-released: (.+)", "CITATION.cff"))


def test_the_newest_torch_whose_cpp_is_called_is_that_of_the_matrix():
    newest = only(r"^NEWEST = \((\d+, \d+)\)", "muladd_nb/_layer/torch_private.py").replace(", ", ".")
    assert newest == max((torch for torch, _ in matrix()), key=lambda torch: [*map(int, torch.split("."))])


@pytest.mark.slow  # the other tests do not need nox
def test_a_release_names_its_version_and_its_addresses_everywhere(tmp_path):
    pytest.importorskip("nox")
    run = functools.partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True, text=True)
    run(["git", "clone", "-q", ROOT, "."])
    run(["git", "remote", "set-url", "origin", "git@github.com:somebody/some_ops.git"])
    identity = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for version in ("7.8.9", "7.9.0"):  # the second run replaces what the first has written
        nox = [sys.executable, "-m", "nox", "--session", "release", "--", version]
        run(nox, env=os.environ | identity)
        released = run(["git", "show", f"v{version}:pyproject.toml"]).stdout
        (table,) = re.findall(r"^\[project\.urls\].*\n((?:.+\n)+)", released, re.MULTILINE)
        assert dict(re.findall(r'^(\w+) = "(.+)"$', table, re.MULTILINE)) == {
            "Homepage": "https://somebody.github.io/some_ops/",
            "Documentation": "https://somebody.github.io/some_ops/start.html",
            "Changelog": "https://somebody.github.io/some_ops/changelog.html",
            "Source": "https://github.com/somebody/some_ops",
            "Issues": "https://github.com/somebody/some_ops/issues",
        }
        cited = run(["git", "show", f"v{version}:CITATION.cff"]).stdout
        assert f"\nversion: {version}\n" in cited
        assert cited.count("\nurl: https://somebody.github.io/some_ops/\n") == 1
        assert cited.count("\nrepository-code: https://github.com/somebody/some_ops\n") == 1
        assert f"## [Unreleased]\n\n## [{version}] - " in run(["git", "show", f"v{version}:CHANGELOG.md"]).stdout
        assert f"version: '{version}'" in run(["git", "show", f"v{version}:meson.build"]).stdout
    before = run(["git", "rev-parse", "HEAD"]).stdout
    run(["git", "remote", "set-url", "origin", "https://example.org/elsewhere.git"])
    for version, why in (("7.9.0", "there is a tag v7.9.0"), ("8.0.0", "origin is https://example.org/elsewhere.git")):
        refused = subprocess.run([*nox[:-1], version], cwd=tmp_path, capture_output=True, text=True)
        assert refused.returncode and why in refused.stderr
    assert run(["git", "rev-parse", "HEAD"]).stdout == before and not run(["git", "status", "--porcelain"]).stdout


def test_one_oldest_torch_everywhere():
    oldest = muladd_nb.build_info()["torch_target"]
    for project in ("", "muladd_nb/_new/project/"):
        assert set(re.findall(r'"torch>=(.+?)"', text(f"{project}pyproject.toml"))) == {oldest}
    assert only(r"^TORCH_AT_LEAST = (.+)", "muladd_nb/_layer/load.py") == f"({oldest.replace('.', ', ')})"
    assert matrix()[0][0] == oldest


def test_one_oldest_python_everywhere():
    hexes = re.findall(r"^ *limited_api_hex = '0x03(..)0000'", text("src/elementwise/meson.build"), re.MULTILINE)
    oldest = f"3.{int(hexes[0], 16)}"
    tag, tag_without_gil = (f"cp3{int(minor, 16)}" for minor in hexes)
    for project in ("", "muladd_nb/_new/project/"):
        assert only(r'^requires-python = ">=(.+)"', f"{project}pyproject.toml") == oldest
        built = only(r'^build = "(\w+)-manylinux\S* (\w+)t-manylinux', f"{project}pyproject.toml")
        assert built == (tag, tag_without_gil)
        assert "Python :: Free Threading ::" in text(f"{project}pyproject.toml")
        assert f"without the GIL, from {tag_without_gil.replace('cp3', '3.')}" in text(f"{project}README.md")
    pages = ("README.md", "docs/index.md", "docs/start.md", "docs/ship/index.md", "muladd_nb/_new/project/README.md")
    for page in pages:
        assert set(re.findall(r"every CPython\s+from\s+(3\.\d+)", text(page))) == {oldest}
    for path in ("src/elementwise/tools/repair_wheel", "src/elementwise/tools/audit_wheel", "docs/start.md"):
        tags = re.findall(r"\b(cp3\d+)\b.{1,12}\b(abi3t?)\b", text(path))
        assert {*tags} == {(tag, "abi3"), (tag_without_gil, "abi3t")}
    pythons = {python for _, python in matrix()}
    assert oldest in pythons
    assert pythons == {*re.findall(r"^ +(3\.\d+t?)$", text(".github/workflows/test.yml"), re.MULTILINE)}


def test_one_cuda_of_the_released_wheel_everywhere():
    version = only(r"cuda-nvcc-(\d+-\d+)", "pyproject.toml")
    for path in ("pyproject.toml", "muladd_nb/_new/project/pyproject.toml"):
        found = re.findall(r"cuda-(?:nvcc-|cudart-devel-)?(\d+[-.]\d+)[/ \"]", text(path))
        assert {name.replace(".", "-") for name in found} == {version}
    for page in ("docs/ship/cuda.md", "CHANGELOG.md"):
        assert f"ompiled by CUDA {version.replace('-', '.')}" in text(page)


def test_the_table_is_that_of_the_matrix():
    """The table is of one commit, with each torch of the matrix."""
    with (ROOT / "docs/matrix.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["machine"] == "x86_64"]
    measured = {(row["torch"].rpartition(".")[0], row["CPython"].rpartition(".")[0]) for row in rows}
    assert measured <= {*matrix()} and dict(measured).keys() == dict(matrix()).keys()
    assert len({(row["commit"], row["date"]) for row in rows}) == 1
    assert {row["failed"] for row in rows} == {"0"}


@pytest.mark.parametrize(
    ("newer", "said"),
    [
        (["2.9.9"], ""),  # the wheel is not for this series
        (["2.10.99+cpu"], "older than torch 2.10.99"),
        (["2.99.0", "2.99.1"], "older than torch 2.99.1"),
        (None, "is not compared"),
    ],
)
def test_a_table_that_is_older_than_torch_fails(tmp_path, newer, said):
    with (ROOT / "docs/matrix.csv").open(newline="") as file:
        releases = [row["torch"] for row in csv.DictReader(file)]
    for release in [] if newer is None else [*releases, *newer]:
        (tmp_path / f"torch-{release}-py3-none-any.whl").touch()
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    ran = run(sys.executable, "tools/check_matrix.py", cwd=ROOT, **index)
    assert (ran.returncode, ran.stderr) == (int("older" in said), "")
    assert said in ran.stdout and bool(ran.stdout) == bool(said)


@pytest.mark.slow  # the other tests do not need nox
def test_a_workflow_runs_all_that_ci_runs():
    pytest.importorskip("nox")

    def sessions(tag):
        nox = [sys.executable, "-m", "nox", "--list-sessions", "--json", "--tags", tag]
        listed = subprocess.run(nox, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return {session["session"] for session in json.loads(listed) if tag in session["tags"]}

    quick, gates = sessions("quick"), sessions("gate")
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        gates |= {*re.findall(r"nox -s (\w+)", workflow.read_text())}
    assert "executorch" in quick and quick - gates == {"another_torch", "bench", "projects", "sanitizers"}
    assert {"matrix", "bench_all", "tests_all", "sanitizers_all"} <= gates  # these cover the four above
    extras = importlib.metadata.metadata("muladd_nb").get_all("Provides-Extra")
    tried = {f"extras(extra='{extra}')" for extra in extras} & gates
    assert len(extras) - len(tried) == 2  # dev and executorch have their own gates


def public_functions():
    """Read the sources, because importing some modules registers operators or needs other packages."""
    for path in sorted((ROOT / "muladd_nb").glob("[!_]*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield pytest.param(node, id=f"{path.stem}.{node.name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_every_public_function_is_documented(function):
    docstring = ast.get_docstring(function) or ""
    assert "Examples\n--------\n>>> " in docstring
    described = re.search(r"^Parameters\n-+\n(.*?)(^\w+\n---|\Z)", docstring, re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^\S.*", described[1], re.MULTILINE) if described else []
    parameters = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
    assert parameters <= set(re.findall(r"\w+", " ".join(headings)))
    pages = "\n".join(path.read_text() for path in sources() if path.suffix == ".md" and path.name != "CHANGELOG.md")
    assert re.search(rf"autofunction:: ([\w.]+\.)?{function.name}\b|`muladd_nb\.([\w.]+\.)?{function.name}\(", pages)


def test_every_operator_has_a_call_and_a_row_in_the_documentation():
    schemas = [
        schema
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("muladd_nb::") and "_test_" not in schema.name  # those are in writers.py
    ]
    public = {str(schema) for schema in schemas if not schema.name.startswith("muladd_nb::_")}
    assert public == {str(call.form.op._schema) for call in calls.OPERATORS}
    documented = re.findall(r"^\| `(\S+\(.* -> .*?)` \|", text("docs/operators/index.md"), re.MULTILINE)
    assert sorted(documented) == sorted(schema.removeprefix("muladd_nb::") for schema in public)
    assert {call.function for call in calls.CALLS if call.is_public} == {*calls.PUBLIC.values()}
    # The namespace also has derivatives, and operators that compiled programs call instead of the public ones.
    functional = {schema.name for schema in schemas if schema.name.startswith("muladd_nb::_functional_")}
    assert functional == {
        call.form.op._schema.name.replace("::", "::_functional_") for call in calls.OPERATORS if call.writes
    }
    private = {str(schema).replace("_uncast", "") for schema in schemas if schema.name not in functional}
    private -= {str(form.op._schema) for form in FORMS if form.role}
    assert {schema.replace("::_", "::") for schema in private} <= public


@each(calls.OPERATORS)
def test_every_operator_is_complete(call):
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    for key in ("CPU", "Meta", "Autograd", "FuncTorchBatched"):  # Meta: fake kernels; the last: batching rules
        assert has_kernel(call.form.op.name(), key), key
    assert has_kernel(call.form.op.name(), "CUDA") == bool(muladd_nb.build_info()["cuda_version"])


def test_no_path_of_a_machine():
    of_a_machine = re.compile(r"(?<![\w.])/(?:home|Users|root|work|tmp|mnt|opt)/\w|\b[A-Z]:\\\w")
    for path in sources():
        if b"\0" not in path.read_bytes():
            found = of_a_machine.search(path.read_text())
            assert not found, f"{path.relative_to(ROOT)}: {found}"


# A source may include the standard library, the system and the stable ABIs; only the bindings may include nanobind.
SYSTEM = "unistd|immintrin|dlfcn|link|setjmp|ucontext|mach-o/dyld"
HEADERS = rf"[a-z_]+|({SYSTEM})\.h|sys/\w+\.h|torch/(csrc/stable|headeronly)/.*"
MORE = {"python": r"|nanobind/.*", "cuda": r"|cuda\w*\.h", "executorch": r"|executorch/.*", "tests": r"|cuda\w*\.h"}


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.[chu]*")), ids=lambda path: path.name)
def test_headers_are_of_the_stable_abis(path):
    allowed = HEADERS + MORE.get(path.name, "") + MORE.get(path.parent.name, "")
    for quoted, header in re.findall(r'#include (?:"(.+)"|<(.+)>)', path.read_text()):
        if quoted:
            folders = [path.parent, ROOT / "src"]
            (included,) = {file for folder in folders if (file := (folder / quoted).resolve()).is_file()}
            of_the_project = path.parent.name in ("src", "tests")
            assert included.is_relative_to(ROOT / "src/elementwise") or of_the_project, "an arrow up"
        else:
            assert re.fullmatch(allowed, header), header


def test_no_arrow_leads_up():
    house = runpy.run_path(str(ROOT / "docs/house.py"))
    names = {tuple(str(path.relative_to(ROOT)) for path in arrow) for arrow in house["includes"]() | house["imports"]()}
    assert {
        ("src/operators.cpp", "src/elementwise/elementwise.h"),
        ("muladd_nb/_operators.py", "muladd_nb/_layer/__init__.py"),
        ("muladd_nb/_layer/contract.py", "muladd_nb/_layer/operator.py"),
        ("muladd_nb/_layer/contract.py", "muladd_nb/_C.pyi"),
    } <= names
    assert house["arrows_up"]() == []


@pytest.mark.slow  # compiles for a minute
def test_an_operator_is_little_code():
    ran = run(sys.executable, ROOT / "tools/operator_cost.py", "--most=10")
    assert ran.returncode == 0, ran.stdout + ran.stderr


LIST = """
#include "elementwise/elementwise.h"

namespace test::inline ELEMENTWISE_TARGET {{
{functors}
using Operators = elementwise::List<{operators}>;
}} // namespace test::inline ELEMENTWISE_TARGET
ELEMENTWISE_OPERATORS(test, test::Operators)
"""
FUNCTORS = '#include "elementwise/math.h"\n' + LIST.format(
    functors=functor("Mish", "C", "C x", "return x * elementwise::tanh(elementwise::log1p(elementwise::exp(x)));")
    + functor("Softplus", "C", "C x", "return x > 20 ? x : elementwise::log1p(elementwise::exp(x));")
    + functor("Limited", "C", "C x, C y", "return (x < -1 ? C(-1) : x > 1 ? C(1) : x) * y;"),
    operators="""
    elementwise::Operator<"limited(Tensor x, Tensor y)", Limited, elementwise::out | elementwise::differentiable>,
    elementwise::Operator<"mish(Tensor x)", Mish, elementwise::out>,
    elementwise::Operator<"softplus(Tensor x)", Softplus, elementwise::out>""",
)
MASKED = LIST.format(
    functors=functor("Masked", "C", "C x, bool keep", "return keep ? x * x : C(0);"),
    operators='elementwise::Operator<"masked(Tensor x, Tensor keep)", Masked, elementwise::out>',
)


@pytest.mark.slow  # compiles for ten seconds, and counts what GCC says
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the vectors of x86-64 are counted")
def test_functors_are_vectorised_however_long_they_are_and_with_a_condition(tmp_path):
    options = ["-Dkernels_alone=true", "-Dcuda=disabled"]
    subprocess.run(["meson", "setup", *options, "build", ROOT], cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    (tmp_path / "list.cpp").write_text(FUNCTORS)
    (tmp_path / "masked.cpp").write_text(MASKED)
    compiled = set()
    for entry in json.loads((tmp_path / "build/compile_commands.json").read_text()):
        command = shlex.split(entry["command"])
        isa = [option.partition("=")[2] for option in command if option.startswith("-DELEMENTWISE_ISA=")]
        if not entry["file"].endswith("/operators.cpp") or isa not in (["avx2"], ["avx512"]):
            continue
        command = [*command[: command.index("-MD")], f"-I{ROOT / 'src'}", "-fopt-info-vec-all", "-c"]
        ran, masked = (run(*command, file, cwd=tmp_path) for file in ("list.cpp", "masked.cpp"))
        assert ran.returncode == masked.returncode == 0, ran.stderr + masked.stderr
        compiled |= {*isa}
        width = {"avx2": 32, "avx512": 64}[isa[0]]
        loops = re.findall(rf"kernels\.h:.*loop vectorized using {width} byte vectors", ran.stderr)
        assert len(loops) >= 3 * 4 * 2, loops  # operators x dtypes x loops of each
        assert not re.findall(r"kernels\.h:.*control flow in loop", ran.stderr)
        assert len(re.findall(r"kernels\.h:.*loop vectorized", masked.stderr)) >= 4 * 2  # dtypes x loops of each
    assert compiled == {"avx2", "avx512"}


def test_each_function_states_the_error_that_was_measured():
    with (ROOT / "docs/functions.csv").open(newline="") as file:
        measured = {(row["function"], row["type"]): float(row["largest error"]) for row in csv.DictReader(file)}
    headers = "".join(path.read_text() for path in sorted((ROOT / "src/elementwise/math").glob("*.h")))
    for name in {function for function, _ in measured}:
        (comment,) = re.findall(rf"((?://.*\n)+)template <class C>\nELEMENTWISE_INLINE C {name}\(C", headers)
        stated = re.search(r"Error: (\S+) \(float\), (\S+) \(double\)", comment.replace("\n//", ""))
        for dtype, bound in zip(("float", "double"), stated.groups() if stated else (0, 0), strict=True):
            assert measured[name, dtype] <= float(bound) <= measured[name, dtype] + 0.02, (name, dtype)
        assert stated or "exactly" in comment, name


@pytest.mark.slow  # takes minutes
def test_the_coefficients_are_made_as_the_headers_have_them():
    names = ["exp float", "sigmoid float", "tanh float", "asin float", "atan float", "tan quarter turns"]
    command = [sys.executable, ROOT / "tools/coefficients.py", *names]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    headers = "".join(path.read_text() for path in (ROOT / "src/elementwise/math").glob("*.h"))
    number = r"0x1[0-9a-f.]*p[+-]\d+"
    made, written = (set(map(float.fromhex, re.findall(number, text))) for text in (printed, headers))
    assert len(made) > 20
    assert made - written <= {0.5}  # the header does not write the first coefficient of exp


def test_the_layer_names_no_operator_and_no_file_of_this_project():
    operators = {call.form.op.overloadpacket.__name__ for call in calls.OPERATORS} | {"muladd_nb"}
    for folder in ("src/elementwise", "muladd_nb/_layer"):
        for path in sources():
            if path.is_relative_to(ROOT / folder):
                said = path.read_text()
                assert not [operator for operator in operators if re.search(rf"\b{operator}\b", said)], path
                assert not re.search(r"\b(benchmarks|docs|noxfile)\b", said), path


def test_an_operator_stands_where_contributing_shows_it_and_nowhere_else():
    guide = text("CONTRIBUTING.md")
    shown = {}
    for block in re.findall(r"```diff\n(.*?)```", guide, re.DOTALL):
        for path, lines in re.findall(r"^--- (\S+)\n((?:\+.*\n)+)", block, re.MULTILINE):
            shown[path] = lines.replace("\n+", "\n").removeprefix("+").splitlines()
    for path, lines in shown.items():
        assert not set(lines) - set(text(path).splitlines()), path
    named = {
        str(path.relative_to(ROOT))
        for path in sources()
        if path.relative_to(ROOT).parts[0] in ("src", "muladd_nb")
        and re.search(r"mymuladd(_out)?\.Tensor", path.read_text())
    }
    assert named == set(shown)


def test_contributing_names_every_file_or_its_folder():
    named = set()
    for cell in re.findall(r"^\| (`.+?`) \|", text("CONTRIBUTING.md"), re.MULTILINE):
        folder = ""
        for name in re.findall(r"`(\S+)`", cell):
            folder = folder if "/" not in name.rstrip("/") else os.path.dirname(name.rstrip("/")) + "/"  # noqa: PTH120
            name = (folder + Path(name).name + "/" * name.endswith("/")).replace(".../", "src/elementwise/")
            assert list(ROOT.glob(name)), name
            named.add(name)
    for path in sources():
        name = str(path.relative_to(ROOT))
        if name.startswith(("src/", "muladd_nb/", "tests/", "tools/", "benchmarks/")) and path.name != "meson.build":
            assert any(name.startswith(x) if x.endswith("/") else path.match(x) for x in named), name


def test_the_list_for_a_gpu_names_what_is_there(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run"])
    assert not runpy.run_path(str(ROOT / "tools/gpu.py"))["main"]()
    said = capsys.readouterr().out
    files = set(re.findall(r"(?:tests|benchmarks)/\w+\.py", said))
    assert {"tests/test_layout.py", "benchmarks/throughput.py"} <= files
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert "memcheck" in said and "racecheck" in said
