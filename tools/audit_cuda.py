"""Check the machine code of the CUDA kernels. Needs nvcc and nvdisasm, and no GPU.

    python tools/audit_cuda.py BUILD TABLE

compiles src/operators.cu, and the operators over rows of tests/kernels, with the command of the Meson build in the
folder BUILD, once for each of its architectures. It reads the assembler's report and the machine code, and writes a
table to TABLE. It is an error

- if a kernel keeps anything in local memory (a spill), or a kernel for adjacent elements uses more than 64 registers;
- if a kernel for adjacent elements does not load and store 128 bits at a time, or a kernel over rows does not for each
  type of element;
- if the arithmetic is not as promised: one FFMA or DFMA for each element of an operator that is rounded once, none for
  a product or a sum; and a product and a sum written as two operations (tests/kernels/two_operations.cu) stay two;
- if a kernel with 32-bit offsets divides;
- if a variable has no initial value, because nvcc drops that of some tables (math/trigonometric.h);
- if the audit does not detect a kernel that is made to keep something in local memory (tests/kernels/spill.cu).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = ROOT / "tests/kernels/two_operations.cu"
ROWS = ROOT / "tests/kernels/rows_operators.cpp"
SPILL = ROOT / "tests/kernels/spill.cu"
FUNCTIONS = ROOT / "tests/functions/compiled.cu"
REGISTERS = 64  # with 256 threads in a block, a multiprocessor then holds half of its maximum of threads
PROMISED = {"MulAdd": ["FMA"], "Mul": ["MUL"], "Add": ["ADD"], "TwoOperations": ["ADD", "MUL"]}  # for each element
BYTES = {"float16": 2, "bfloat16": 2, "float": 4, "double": 8}
TENSOR = "Kind)0"  # a tensor argument in the mangled name of a kernel
ELEMENTWISE = ["adjacent", "strided, 32 bits", "strided, 64 bits"]
WIDTHS = 6  # types that rows are moved as: float16, bfloat16, and integers of 8, 16, 32 and 64 bits
SUMS = {"add_rows": "a sum, of each part", "add_parts": "a sum, of all parts"}
NAME = re.compile(
    r"cuda::(adjacent|strided)<(?:(unsigned int|long), )?elementwise::Bound<\w+, elementwise::Kernel<[\w:]+::(\w+), "
    r"([\w:(), ]+)> >, elementwise::cuda::Operands<elementwise::List<(?:elementwise::)?(\w+)>"
)
# The kernels of an operator over rows: its own, those of its derivatives, and those that add up the rows of a gradient.
ROLES = ["recorded", "gradients", "tangent", "second"]  # in the order of rows/family.h
NAME_OF_ROWS = re.compile(
    r"cuda::rows_kernel<elementwise::\w+::passes::RowLoop<elementwise::Kernel<(?:[\w:<]+::Original<)?[\w:]*::(\w+)"
    r"(?:, \d+u>, \([\w:]+\)(\d)>)?, ([\w:(), ]+)>, (\w+)>"
)
NAME_OF_SUMS = re.compile(r"cuda::(add_rows|add_parts)<(\w+)>")


@dataclass
class Kernel:
    """A kernel on one architecture."""

    arch: str
    form: str
    functor: str
    inputs: int
    numbers: int
    dtype: str
    registers: int
    spilled: int  # bytes
    instructions: Counter[str]

    @property
    def arithmetic(self) -> dict[str, int]:
        """Return the number of each instruction of floating-point arithmetic, such as FFMA."""
        letter = "D" if self.dtype == "double" else "F"
        found = {operation: self._count(rf"{letter}{operation}2?\b") for operation in ("ADD", "FMA", "MUL")}
        return {operation: count for operation, count in found.items() if count}

    @property
    def loads(self) -> int:
        """Return the number of 128-bit loads, including those that copy to shared memory."""
        return self._count(r"LDG(STS)?\..*\b128\b")

    @property
    def stores(self) -> int:
        """Return the number of 128-bit stores."""
        return self._count(r"STG\..*\b128\b")

    def _count(self, pattern: str) -> int:
        return sum(count for name, count in self.instructions.items() if re.match(pattern, name))

    def faults(self) -> list[str]:
        """Return the faults."""
        faults = []
        local = self._count(r"(LDL|STL)\b")
        if self.spilled or local:
            faults.append(f"{self.spilled} bytes are spilled, and {local} instructions read or write local memory")
        if self.form in ELEMENTWISE:
            return faults + self._faults_of_elementwise()
        if self.form not in SUMS.values() and min(self.loads, self.stores) < WIDTHS:
            faults.append(f"{self.loads} loads and {self.stores} stores of 128 bits")
        return faults

    def _faults_of_elementwise(self) -> list[str]:
        if self.functor not in PROMISED:
            return [f"{Path(__file__).name} does not know what is promised of it"]
        faults = []
        if self.form == "adjacent":
            if self.registers > REGISTERS:
                faults.append(f"{self.registers} registers, more than {REGISTERS}")
            if not self.stores or self.loads != self.inputs * self.stores:
                faults.append(f"{self.loads} loads and {self.stores} stores of 128 bits")
        each = self._count(r"STG\b") + self.stores * (16 // BYTES[self.dtype] - 1)  # elements that are stored
        promised = dict.fromkeys(PROMISED[self.functor], each)
        if self.arithmetic != promised:
            faults.append(f"arithmetic {self.arithmetic}, not {promised}")
        if "64" not in self.form and self._count(r"(MUFU|CALL)\b"):
            faults.append("a division")
        return faults


def commands(build: Path) -> tuple[list[str], Path, list[str]]:
    """Return the build's command for operators.cu without output and architectures, its folder, the architectures."""
    entries = json.loads((build / "compile_commands.json").read_text())
    (entry,) = [entry for entry in entries if entry["file"].endswith("operators.cu")]
    words = iter(shlex.split(entry["command"]))
    kept, archs = [], set()
    for word in words:
        if word.startswith("-gencode"):
            archs |= set(re.findall(r"sm_(\d+)", word))
        elif word in ("-o", "-MF", "-MQ", "-MT"):
            next(words)
        elif word not in ("-c", "-MD", "-MMD", entry["file"]):
            kept.append(word)
    return kept, Path(entry["directory"]), sorted(archs, key=int)


def disassembled(command: list[str], directory: Path, source: Path, arch: str, nvdisasm: str) -> tuple[str, str]:
    """Compile a source for one architecture, and return the assembler's report and the machine code."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        folders = [f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests'}"]
        options = [f"-arch=sm_{arch}", "-cubin", "-Xptxas=-v", *folders, "-x", "cu", "-o", str(cubin), str(source)]
        compiled = subprocess.run([*command, *options], cwd=directory, capture_output=True, text=True, check=False)
        if compiled.returncode != 0:
            sys.exit(compiled.stderr)
        code = subprocess.run([nvdisasm, cubin], capture_output=True, text=True, check=True).stdout
    if re.search(r"\.section\s+\.nv\.global,", code):
        sys.exit(f"{source.name}: a variable has no initial value, and is zero on a GPU")
    return compiled.stderr, code


def read(command: list[str], directory: Path, source: Path, arch: str, nvdisasm: str) -> list[Kernel]:
    """Compile a source for one architecture, and return its kernels."""
    report, code = disassembled(command, directory, source, arch, nvdisasm)
    said = re.findall(
        r"Function properties for (\S+)\n.* (\d+) bytes spill stores, (\d+) bytes spill loads\n.*Used (\d+) registers",
        report,
    )
    properties = {name: (int(stores) + int(loads), int(registers)) for name, stores, loads, registers in said}
    sections = re.findall(r"\n\t\.section\t\.text\.(\w+),(.*?)(?=\n\t\.section\t|\Z)", code, re.DOTALL)
    assert len(sections) == len(properties) > 0, (len(sections), len(properties))
    plain = subprocess.run(["c++filt", *(name for name, _ in sections)], capture_output=True, text=True, check=True)
    kernels = []
    for (mangled, text), name in zip(sections, plain.stdout.splitlines(), strict=True):
        if "::derivatives::" in name:  # nothing is promised about their instructions
            continue
        instructions = Counter(re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ +)?([A-Z][\w.]*)", text))
        spilled, registers = properties[mangled]
        kernels.append(Kernel(arch, *_named(name), registers, spilled, instructions))
    return kernels


def _named(name: str) -> tuple[str, str, int, int, str]:
    """Return the form of a kernel, its functor, how many tensors and numbers it has, and its dtype."""
    if found := NAME_OF_SUMS.search(name):
        form, dtype = found.groups()
        return SUMS[form], "", 1, 0, dtype
    if found := NAME_OF_ROWS.search(name):
        functor, role, kinds, dtype = found.groups()
        form = f"a row, {ROLES[int(role)]}" if role else "a row"
    else:
        found = NAME.search(name)
        assert found, name
        form, index, functor, kinds, dtype = found.groups()
        form += {None: "", "unsigned int": ", 32 bits", "long": ", 64 bits"}[index if form == "strided" else None]
    return form, functor, kinds.count(TENSOR), kinds.count("Kind") - kinds.count(TENSOR), dtype


def table(kernels: list[Kernel], archs: list[str]) -> list[list[str]]:
    """Return a line for each functor, form and dtype: first the common columns, then those of each architecture.

    Kernels over rows differ by their optional tensors; the line describes the largest one.
    """
    rows = [["functor", "elements", "dtype", "arithmetic", "128-bit loads, stores", *(f"sm_{arch}" for arch in archs)]]
    of_all: dict[tuple[str, str, str], dict[str, Kernel]] = {}
    for kernel in kernels:
        arguments = "tensors" if kernel.numbers == 0 else "tensors and a number"
        functor = f"{kernel.functor}, {kernel.inputs} {arguments}" if kernel.form in ELEMENTWISE else kernel.functor
        by_arch = of_all.setdefault((functor, kernel.form, kernel.dtype), {})
        largest = by_arch.get(kernel.arch, kernel)
        by_arch[kernel.arch] = max(kernel, largest, key=lambda x: (x.registers, x.instructions.total()))
    for key, by_arch in sorted(of_all.items(), key=lambda x: (x[0][1] not in ELEMENTWISE, x[0])):
        some = by_arch[archs[0]]
        letter = "D" if some.dtype == "double" else "F"
        is_elementwise = some.form in ELEMENTWISE
        arithmetic = ", ".join(f"{n} {letter}{operation}" for operation, n in some.arithmetic.items() if is_elementwise)
        wide = "" if "strided" in some.form or some.form in SUMS.values() else f"{some.loads}, {some.stores}"
        counts = [by_arch[arch].instructions.total() for arch in archs]
        short = [f"{n // 1000}k" if n >= 10_000 else n for n in counts]  # so that the table fits on its page
        sizes = [f"{by_arch[arch].registers}/{n}" for arch, n in zip(archs, short, strict=True)]
        rows.append([*key, arithmetic, wide, *sizes])
    return rows


def disassembler() -> str:
    """Return the nvdisasm of a toolkit, or of the package nvidia-cuda-nvdisasm."""
    if found := shutil.which("nvdisasm"):
        return found
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit("nvdisasm is missing: run 'pip install nvidia-cuda-nvdisasm', or put that of a CUDA toolkit on PATH")
    return str(next(file.locate() for file in files if file.name == "nvdisasm"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("table", type=Path)
    arguments = parser.parse_args()
    command, directory, archs = commands(arguments.build)
    nvdisasm = disassembler()
    work = [(source, arch) for arch in archs for source in (ROWS, ROOT / "src/operators.cu", PROBE)]
    if not any(kernel.faults() for kernel in read(command, directory, SPILL, archs[0], nvdisasm)):
        sys.exit(f"{SPILL.name} has a kernel that keeps an array in local memory, and the audit does not see it")
    disassembled([*command, "-Werror=all-warnings"], directory, FUNCTIONS, archs[-1], nvdisasm)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda of: read(command, directory, of[0], of[1], nvdisasm), work))
    kernels = [kernel for result in results for kernel in result]
    faults = [
        f"{kernel.functor or 'rows'}, {kernel.form}, {kernel.dtype}, sm_{kernel.arch}: {fault}"
        for kernel in kernels
        for fault in kernel.faults()
    ]
    if faults:
        sys.exit("\n".join(faults))
    shown = [kernel for kernel in kernels if kernel.functor != "TwoOperations"]
    with arguments.table.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(table(shown, archs))
    print(f"{len(kernels)} kernels are what they promise, for {', '.join(archs)}; {arguments.table} has the table")


if __name__ == "__main__":
    main()
