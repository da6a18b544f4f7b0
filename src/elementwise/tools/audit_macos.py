"""Check that the libraries in wheels for macOS can be loaded there, wherever they are installed. Needs lief.

Without options it checks the load commands. With --torch, a folder of torch's macOS libraries, and --system, a stub of
libSystem such as that of ziglang, it also checks that every symbol that is looked up at load time exists: in each
such torch, in CPython's limited API (the package abi3info), in libSystem, or in libc++. Symbols that torch's libraries
take from libc++ exist there, because Apple's linker linked them. It prints each problem, and then exits with 1.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import re
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

import lief

lief.logging.disable()  # it warns about parts of torch's libraries that it cannot read and that have no symbols

LIBSYSTEM, LIBCXX, TORCH = "/usr/lib/libSystem.B.dylib", "/usr/lib/libc++.1.dylib", "@rpath/libtorch_cpu.dylib"
# libc++ has always had these, but torch does not use them: std::bad_cast, and find(char, size_t) of a string.
ALSO_LIBCXX = {
    "__ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE4findEcm",
    "__ZNSt8bad_castC1Ev",
    "__ZNSt8bad_castD1Ev",
    "__ZTISt8bad_cast",
}
WHEREVER_IT_IS = 254  # in place of a library's number: any loaded library
LIMITED_API = (3, 10)
# A path of the machine that built the library. Apple's own libraries are in /usr/lib and /System.
PATH = re.compile(rb"/(?:Users|home|root|private|tmp|opt|work|build|usr/(?!lib/))[\w./+-]*")


@functools.cache
def read(path: pathlib.Path) -> Any:
    """Return a library with its symbols and load commands."""
    config = lief.MachO.ParserConfig()
    config.parse_dyld_exports = config.parse_dyld_bindings = config.parse_dyld_rebases = False
    found = lief.MachO.parse(str(path), config)
    if found is None:
        raise SystemExit(f"{path} is not a library of macOS")
    return found.at(0)


def loaded(library: Any) -> list[str]:
    """Return the libraries that a library loads. Symbols refer to them by number, from 1."""
    return [x.name for x in library.libraries if x.command != lief.MachO.LoadCommand.TYPE.ID_DYLIB]


@functools.cache
def symbols(path: pathlib.Path) -> tuple[set[str], set[tuple[str, int]]]:
    """Return the symbols that a library exports, and those that it looks up, with the number of their library."""
    # The argument is a path and not lief's object: hashing that for the cache would take as long as reading the file.
    exported, looked_up = set(), set()
    for x in read(path).symbols:
        if not x.raw_type & 0x01 or x.raw_type & 0xE0:  # local, or of a debugger
            continue
        if x.raw_type & 0x0E == 0:  # undefined
            looked_up.add((x.name, x.description >> 8 & 0xFF))
        elif not x.raw_type & 0x10:  # not hidden
            exported.add(x.name)
    return exported, looked_up


def from_libcxx(torch: pathlib.Path) -> set[str]:
    """Return the symbols that torch's libraries take from libc++."""
    names = {*ALSO_LIBCXX}
    for path in torch.glob("lib*.dylib"):
        libraries = ["", *loaded(read(path))]
        numbers = [i for i, name in enumerate(libraries) if name == LIBCXX]
        names |= {name for name, number in symbols(path)[1] if number in numbers}
    return names


@functools.cache
def limited_api() -> set[str]:
    """Return the symbols of CPython that a module for every CPython may use."""
    import abi3info

    known = [*abi3info.FUNCTIONS.values(), *abi3info.DATAS.values()]
    return {f"_{x.symbol.name}" for x in known if (x.added.major, x.added.minor) <= LIMITED_API}


def problems(path: pathlib.Path, oldest: tuple[int, ...]) -> Iterator[str]:
    """Yield the problems of the load commands of a library. ``oldest`` is the macOS in the wheel's name."""
    library = read(path)
    if library.header.cpu_type != lief.MachO.Header.CPU_TYPE.ARM64:
        yield f"it is for {library.header.cpu_type}, not for arm64"
    system = tuple(library.build_version.minos[:2]) if library.has_build_version else None
    if system != oldest:
        yield f"it needs macOS {system}, and the name of the wheel says {oldest}"
    if library.header.file_type == lief.MachO.Header.FILE_TYPE.DYLIB:
        (own,) = (x.name for x in library.libraries if x.command == lief.MachO.LoadCommand.TYPE.ID_DYLIB)
        if own != f"@rpath/{path.name}":
            yield f"its install name is {own}, not @rpath/{path.name}"
    if TORCH not in loaded(library):
        yield f"{TORCH} is not among what it loads"
    for name in {*loaded(library)} - {TORCH, LIBSYSTEM, LIBCXX}:
        yield f"it loads {name}, which may not be there"
    for rpath in library.rpaths:
        yield f"it has the rpath {rpath.path}"
    for found in sorted({*PATH.findall(path.read_bytes())}):
        yield f"it has a path of the machine that built it, {found.decode()}"
    for name in symbols(path)[0]:
        # Templates of the standard library are visible in the library that instantiates them, here through torch's
        # headers.
        if not name.endswith("_registered") and not re.match(
            "_PyInit__C$|___dso_handle$|__mh_|__Z(T.|T[hv].*|GV|Z|)(N|NK|)St", name
        ):
            yield f"it exports {name}"


def missing(path: pathlib.Path, torch: pathlib.Path, system: set[str], libcxx: set[str]) -> Iterator[str]:
    """Yield the symbols that a library looks up and that do not exist."""
    known = {LIBSYSTEM: system, LIBCXX: libcxx, TORCH: symbols(torch / "libtorch_cpu.dylib")[0]}
    libraries = loaded(read(path))
    for name, number in sorted(symbols(path)[1]):
        if number in (0, WHEREVER_IT_IS):  # zig's linker writes 0
            there, where = name in limited_api(), "CPython's limited API"
        else:
            where = libraries[number - 1]
            there = name in known.get(where, ())
        if not there:
            yield f"{name} is not in {where}, with torch in {torch}"


def main() -> int:
    """Audit wheels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=pathlib.Path, nargs="+", metavar="wheel")
    parser.add_argument("--torch", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--system", type=pathlib.Path)
    args = parser.parse_args()
    system = {"dyld_stub_binder", *re.findall(r"_[\w$]+", args.system.read_text())} if args.system else set()
    libcxx = set().union(*map(from_libcxx, args.torch))
    failed = False
    for path in args.wheels:
        promised = re.search(r"-cp310-abi3-macosx_(\d+)_(\d+)_arm64\.whl$", path.name)
        if not promised:
            raise SystemExit(f"{path}: the tags are not cp310-abi3-macosx_*_arm64")
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
            libraries = [x for x in pathlib.Path(folder).rglob("*") if x.suffix in (".so", ".dylib")]
            if not libraries:
                raise SystemExit(f"{path}: there is no library in it")
            for library in sorted(libraries):
                found = [*problems(library, tuple(map(int, promised.groups())))]
                for torch in args.torch:
                    found += missing(library, torch, system, libcxx)
                print(f"{library.relative_to(folder)}: {len(found) or 'nothing'} wrong", *found, sep="\n  ")
                failed = failed or bool(found)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
