"""Print the kilobytes of machine code and the seconds of compilation of an operator, for each instruction set.

Each operator costs this for each instruction set, which limits how many operators, dtypes and instruction sets a
package can have. The script compiles a list of one operator, with two tensors and four dtypes, and a list of three,
with the flags of the build. Half the difference is the cost of one operator, without the code that all operators share.
The seconds are processor time, so that other work on the machine matters little.
"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIST = """
#include "elementwise/elementwise.h"
%s
using Cost = elementwise::List<%s>;
ELEMENTWISE_OPERATORS(cost, Cost)
"""
# Each functor has another constant, because GCC merges equal functions.
FUNCTOR = "struct F%d { template <class C> C operator()(C a, C b) const { return a * b + C(%d.5); } };"
OPERATOR = 'elementwise::Operator<"f%d(Tensor a, Tensor b)", F%d, elementwise::out | %s>'


def measure(compiler: list[str], folder: Path, operators: int, forms: str) -> tuple[int, float]:
    """Return the bytes of code of a list of operators, and the median time of three compilations."""
    functors = "\n".join(FUNCTOR % (k, k) for k in range(operators))
    (folder / "list.cpp").write_text(LIST % (functors, ", ".join(OPERATOR % (k, k, forms) for k in range(operators))))
    times = []
    for _ in range(3):
        before = os.times()
        subprocess.run([*compiler, "-o", "list.o", "-c", "list.cpp"], cwd=folder, check=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    sections = subprocess.run(["size", "-A", "list.o"], cwd=folder, capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"^\.text\S* +(\d+)", sections, re.MULTILINE))), statistics.median(times)


def main() -> int:
    """Configure the kernels alone, measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent, help="the sources' root")
    parser.add_argument("--most", type=float, default=float("inf"), metavar="KB", help="fail if an operator costs more")
    parser.add_argument("--differentiable", action="store_true", help="with the derivatives of the functor")
    arguments = parser.parse_args()
    forms = "elementwise::functional" + " | elementwise::differentiable" * arguments.differentiable
    with tempfile.TemporaryDirectory() as name:
        options = ["-Dkernels_alone=true", "-Dcuda=disabled"]
        subprocess.run(["meson", "setup", *options, name, arguments.root], stdout=subprocess.DEVNULL, check=True)
        most = 0.0
        print("instruction set           KB        seconds")
        for entry in json.loads(Path(name, "compile_commands.json").read_text()):
            command = shlex.split(entry["command"])
            isa = [option.partition("=")[2] for option in command if option.startswith("-DELEMENTWISE_ISA=")]
            if not isa or Path(entry["file"]).name != "operators.cpp":
                continue
            compiler = [*command[: command.index("-MD")], f"-I{arguments.root.resolve() / 'src'}"]
            (one, alone), (three, together) = (measure(compiler, Path(name), count, forms) for count in (1, 3))
            most = max(most, kilobytes := (three - one) / 2 / 1000)
            print(f"{isa[0]:15} {kilobytes:12.1f} {(together - alone) / 2:14.2f}", flush=True)
    return int(not 0 < most <= arguments.most)


if __name__ == "__main__":
    sys.exit(main())
