"""Check the machine code of the CUDA kernels. Needs nvcc and nvdisasm, and no GPU.

    python tools/audit_cuda.py BUILD TABLE

compiles src/operators.cu with the command of the Meson build in the folder BUILD, once for each of its architectures,
reads the assembler's report and the machine code, and writes a table to TABLE. It is an error

- if a kernel keeps anything in local memory (a spill), or the one for adjacent elements takes more than 64 registers;
- if that one does not load and store 128 bits at a time;
- if the arithmetic is not as promised: one FFMA or DFMA for each element of an operator that is rounded once, none for
  a product or a sum; and a product and a sum written as two operations (tests/kernels/two_operations.cu) stay two;
- if a kernel with 32-bit offsets divides.
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
REGISTERS = 64  # with 256 threads in a block, a multiprocessor then holds half of its maximum of threads
PROMISED = {"MulAdd": ["FMA"], "Mul": ["MUL"], "Add": ["ADD"], "TwoOperations": ["ADD", "MUL"]}  # for each element
BYTES = {"float16": 2, "bfloat16": 2, "float": 4, "double": 8}
TENSOR = "Kind)0"  # a tensor argument in the mangled name of a kernel
NAME = re.compile(
    r"cuda::(adjacent|strided)<(?:(unsigned int|long), )?elementwise::Bound<\w+, elementwise::Kernel<[\w:]+::(\w+), "
    r"([\w:(), ]+)> >, elementwise::cuda::Operands<elementwise::List<(?:elementwise::)?(\w+)>"
)


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
        """Return the number of 128-bit loads."""
        return self._count(r"LDG\..*\b128\b")

    @property
    def stores(self) -> int:
        """Return the number of 128-bit stores."""
        return self._count(r"STG\..*\b128\b")

    def _count(self, pattern: str) -> int:
        return sum(count for name, count in self.instructions.items() if re.match(pattern, name))

    def faults(self) -> list[str]:
        """Return the faults."""
        if self.functor not in PROMISED:
            return [f"{Path(__file__).name} does not know what is promised of it"]
        faults = []
        if self.form == "adjacent":
            if self.registers > REGISTERS:
                faults.append(f"{self.registers} registers, more than {REGISTERS}")
            if not self.stores or self.loads != self.inputs * self.stores:
                faults.append(f"{self.loads} loads and {self.stores} stores of 128 bits")
        if self.spilled or self._count(r"(LDL|STL)\b"):
            faults.append(f"{self.spilled} bytes are spilled")
        each = self._count(r"STG\b") + self.stores * (16 // BYTES[self.dtype] - 1)  # elements that are stored
        promised = dict.fromkeys(PROMISED[self.functor], each)
        if self.arithmetic != promised:
            faults.append(f"arithmetic {self.arithmetic}, not {promised}")
        if "64" not in self.form and self._count(r"(MUFU|CALL)\b"):
            faults.append("a division")
        return faults


def commands(build: Path) -> tuple[list[str], Path, list[str]]:
    """Return the build's command for operators.cu, without output and architectures; its folder; the architectures."""
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


def read(command: list[str], directory: Path, source: Path, arch: str, nvdisasm: str) -> list[Kernel]:
    """Compile a source for one architecture, and return its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        options = [f"-arch=sm_{arch}", "-cubin", "-Xptxas=-v", f"-I{ROOT / 'src'}", "-o", str(cubin), str(source)]
        compiled = subprocess.run([*command, *options], cwd=directory, capture_output=True, text=True, check=False)
        if compiled.returncode != 0:
            sys.exit(compiled.stderr)
        code = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    said = re.findall(
        r"Function properties for (\S+)\n.* (\d+) bytes spill stores, (\d+) bytes spill loads\n.*Used (\d+) registers",
        compiled.stderr,
    )
    properties = {name: (int(stores) + int(loads), int(registers)) for name, stores, loads, registers in said}
    sections = re.findall(r"\n\t\.section\t\.text\.(\w+),(.*?)(?=\n\t\.section\t|\Z)", code, re.DOTALL)
    assert len(sections) == len(properties) > 0, (len(sections), len(properties))
    plain = subprocess.run(["c++filt", *(name for name, _ in sections)], capture_output=True, text=True, check=True)
    kernels = []
    for (mangled, text), name in zip(sections, plain.stdout.splitlines(), strict=True):
        if "::derivatives::" in name:  # nothing is promised about their instructions
            continue
        found = NAME.search(name)
        assert found, name
        form, index, functor, kinds, dtype = found.groups()
        bits = {None: "", "unsigned int": ", 32 bits", "long": ", 64 bits"}[index if form == "strided" else None]
        instructions = Counter(re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ +)?([A-Z][\w.]*)", text))
        kernels.append(
            Kernel(
                arch, form + bits, functor, kinds.count(TENSOR), kinds.count("Kind") - kinds.count(TENSOR), dtype,
                properties[mangled][1], properties[mangled][0], instructions,
            )
        )  # fmt: skip
    return kernels


def table(kernels: list[Kernel], archs: list[str]) -> list[list[str]]:
    """Return a line for each functor, form and dtype: what all architectures share, then registers and instructions."""
    rows = [["functor", "elements", "dtype", "arithmetic", "128-bit loads, stores", *(f"sm_{arch}" for arch in archs)]]
    of_all: dict[tuple[str, str, str], dict[str, Kernel]] = {}
    for kernel in kernels:
        arguments = "tensors" if kernel.numbers == 0 else "tensors and a number"
        key = (f"{kernel.functor}, {kernel.inputs} {arguments}", kernel.form, kernel.dtype)
        of_all.setdefault(key, {})[kernel.arch] = kernel
    for key, by_arch in sorted(of_all.items()):
        some = by_arch[archs[0]]
        letter = "D" if some.dtype == "double" else "F"
        arithmetic = ", ".join(f"{count} {letter}{operation}" for operation, count in some.arithmetic.items())
        wide = f"{some.loads}, {some.stores}" if some.form == "adjacent" else ""
        sizes = [f"{by_arch[a].registers} / {by_arch[a].instructions.total()}" for a in archs]
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
    work = [(source, arch) for arch in archs for source in (ROOT / "src/operators.cu", PROBE)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda of: read(command, directory, of[0], of[1], nvdisasm), work))
    kernels = [kernel for result in results for kernel in result]
    faults = [
        f"{kernel.functor}, {kernel.form}, {kernel.dtype}, sm_{kernel.arch}: {fault}"
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
