"""libmuladd_nb.so: it works without Python, together with the Python module, and in a C++ program."""

import json
import re
import shutil
from pathlib import Path

import forked
import pytest
import torch
from conftest import CUDA, MODULE, needs, run

import muladd_nb
from muladd_nb import _C
from muladd_nb.__main__ import main
from muladd_nb._layer import system

LIBRARY = Path(muladd_nb.library_path())
BUILD = f"muladd_nb {muladd_nb.__version__}"
TORCH = Path(torch.__file__).parent


def test_where_it_is(capsys):
    assert LIBRARY.is_absolute()
    assert LIBRARY.is_file()
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["info"]["library_path"] == str(LIBRARY)


@needs("readelf", "nm")
def test_it_needs_libtorch_and_no_python():
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", LIBRARY).stdout)
    assert "libtorch.so" in needed  # without it, the loader would not find torch's CUDA libraries
    assert not [name for name in needed if re.match(r"lib(python|torch_python|c10|cudart)", name)]
    symbols = run("nm", "--dynamic", LIBRARY).stdout
    assert "aoti_torch" in symbols
    assert not re.findall(r"\b_?Py\w*|nanobind\w*", symbols)


@needs("readelf")
@pytest.mark.parametrize("path", [LIBRARY, _C.__file__], ids=["library", "module"])
def test_what_it_calls_is_looked_up_at_once_and_then_read_only(path):
    told = run("readelf", "--dynamic", "--program-headers", "--wide", path).stdout
    assert "GNU_RELRO" in told
    assert "BIND_NOW" in told


@needs("nm")
def test_it_exports_one_symbol():
    exported = run("nm", "--dynamic", "--defined-only", LIBRARY).stdout
    names = {line.split()[-1] for line in exported.splitlines()} - {"__bss_start", "_edata", "_end"}
    # Templates of the standard library are visible in the library that instantiates them, here through torch's headers.
    assert {name for name in names if not name.startswith(("_ZSt", "_ZNSt", "_ZZNSt"))} == {"muladd_nb_registered"}


@pytest.fixture
def python(tmp_path):
    """Run code and call the operators in a new process. Return its exit status and its stderr."""
    works = f"""
for device in {["cpu", "cuda"] if CUDA else ["cpu"]}:
    x = torch.full((2, 3), 3.0, device=device)
    assert torch.ops.muladd_nb.mymuladd(x, x, 0.5).eq(9.5).all()
    if "muladd_nb" in sys.modules:
        assert torch.vmap(torch.func.grad(lambda x: muladd_nb.mymul(x, x).sum()))(x).eq(6).all()
        assert muladd_nb.mymul(x.to("meta"), x.to("meta")).shape == x.shape
"""
    return lambda code: forked.python(f"import ctypes, sys, torch; {code}{works}", tmp_path / "stderr")


OPEN = {
    "load_library": "torch.ops.load_library({!r})",
    "local": "ctypes.CDLL({!r})",
    "global": "ctypes.CDLL({!r}, mode=ctypes.RTLD_GLOBAL)",
}
opened = pytest.mark.parametrize("how", OPEN.values(), ids=OPEN)


@opened
@pytest.mark.parametrize("order", ["{}", "{}; import muladd_nb", "import muladd_nb; {}"])
def test_one_process_may_open_it_and_import_the_package(python, how, order):
    assert python(order.format(how.format(str(LIBRARY)))) == (0, "")


def test_two_copies_of_it_are_one(python, tmp_path):
    copy = shutil.copy(LIBRARY, tmp_path)
    code = "; ".join(OPEN["local"].format(str(path)) for path in (LIBRARY, copy))
    assert python(code) == (0, "")


def test_closing_it_closes_nothing(python):
    code = f"handle = ctypes.CDLL({str(LIBRARY)!r})._handle; import _ctypes; _ctypes.dlclose(handle)"
    assert python(f"{code}; import muladd_nb") == (0, "")


@pytest.fixture
def other_build(tmp_path):
    """A library with another version: only the text of the version differs."""
    path = tmp_path / "libmuladd_nb.so"
    here, elsewhere = (f"{version} with".encode() for version in (muladd_nb.__version__, "9.9.9"))
    contents = LIBRARY.read_bytes()
    assert contents.count(here) == 1
    path.write_bytes(contents.replace(here, elsewhere.ljust(len(here))))
    return path


@opened
def test_another_build_is_named_after_the_import(python, how, other_build):
    status, stderr = python(f"import muladd_nb; {how.format(str(other_build))}")
    assert status == 0
    assert re.fullmatch(
        rf"warning: muladd_nb 9\.9\.9 with.* \({other_build}\) adds nothing to this process, which has the operators "
        rf"of {re.escape(BUILD)} with.* \(.*{re.escape(MODULE)}\): open the same build, or only one of them\n",
        stderr,
    )


@opened
def test_another_build_is_named_before_the_import(python, how, other_build):
    status, stderr = python(f"{how.format(str(other_build))}; import muladd_nb")
    assert status == 1
    assert re.fullmatch(
        rf"ImportError: {re.escape(BUILD)} with.* \(.*{re.escape(MODULE)}\) adds nothing to this process, which has "
        rf"the operators of muladd_nb 9\.9\.9 with.* \({other_build}\): open the same build, or only one of them",
        stderr.splitlines()[-1],
    )


# Programs that link to it. The environment tells them where torch is.
SOURCE = """
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>
#include <iostream>

int main() {
  const auto mymuladd = c10::Dispatcher::singleton()
                            .findSchemaOrThrow("muladd_nb::mymuladd", "")
                            .typed<at::Tensor(const at::Tensor&, const at::Tensor&, double)>();
  const at::Tensor x = at::full({2, 3}, 3.0);
  std::cout << mymuladd.call(x, x, 0.5).sum().item<float>() << std::endl;
}
"""
MESON = """
project('app', 'cpp', default_options: 'cpp_std=c++20')
executable('app', 'app.cpp', dependencies: dependency('muladd_nb'))
"""
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(app CXX)
set(CMAKE_CXX_STANDARD 20)
add_executable(app app.cpp)
find_package(PkgConfig REQUIRED)
pkg_check_modules(muladd_nb REQUIRED IMPORTED_TARGET muladd_nb)
target_link_libraries(app PRIVATE PkgConfig::muladd_nb)
"""
BUILDS = {
    "pkg_config": "c++ -std=c++20 $CXXFLAGS app.cpp -o app $(pkg-config --libs muladd_nb) $LDFLAGS",
    "meson": "meson setup build && ninja -C build && cp build/app .",
    "cmake": "cmake -S . -B build && cmake --build build && cp build/app .",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        pytest.param("pkg_config", marks=needs("pkg-config", "c++")),
        pytest.param("meson", marks=needs("pkg-config", "c++", "meson", "ninja")),
        pytest.param("cmake", marks=needs("pkg-config", "c++", "cmake")),
    ],
)
def test_a_program_links_to_it(build, tmp_path):
    # Move the library, to show that it works from any folder.
    installed = tmp_path / "installed"
    installed.mkdir()
    for file in (LIBRARY, LIBRARY.with_name("muladd_nb.pc")):
        shutil.copy(file, installed)
    for name, text in {"app.cpp": SOURCE, "meson.build": MESON, "CMakeLists.txt": CMAKE}.items():
        (tmp_path / name).write_text(text)
    abi = int(torch.compiled_with_cxx11_abi())
    environment = {
        "PKG_CONFIG_PATH": str(installed),
        "CXXFLAGS": f"-isystem {TORCH}/include -D_GLIBCXX_USE_CXX11_ABI={abi}",
        "LDFLAGS": f"-L{TORCH}/lib -Wl,-rpath,{TORCH}/lib -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10",
    }
    built = run("sh", "-c", BUILDS[build], cwd=tmp_path, **environment)
    assert built.returncode == 0, built.stdout + built.stderr
    ran = run(tmp_path / "app")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "57\n", "")


def test_what_is_looked_up_on_macos(monkeypatch):
    monkeypatch.setattr(system.sys, "platform", "darwin")
    assert Path(muladd_nb.library_path()).name == "libmuladd_nb.dylib"
