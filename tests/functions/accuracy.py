"""Measure how accurate the functions of elementwise/math.h are, and write docs/functions.csv, for `nox -s functions`.

The program accuracy.cpp measures: it compares with the C library's functions of a wider type. This script then compares
single arguments with MPFR (gmpy2): those with the largest error, and some that are known to be hard. The bound of each
function is that of the list in functions.h.
"""

import argparse
import csv
import re
import subprocess
import sys
from pathlib import Path

import gmpy2

HERE = Path(__file__).resolve().parent
HEADER = ["function", "type", "inputs", "largest error", "at", "correctly rounded", "float16", "bfloat16"]
BITS = {"float": 24, "double": 53}
LEAST = {"float": -149, "double": -1074}  # the exponent of the least number


def listed() -> dict[str, tuple[int, dict[str, float]]]:
    """Return each function's number of arguments, and its bounds by type."""
    number = r" *([-\d.]+)"
    rows = re.findall(rf"FUNCTION\((\w+),{number},{number},{number},", (HERE / "functions.h").read_text())
    return {
        name: (int(n), {"float": float(of_float), "double": float(of_double)}) for name, n, of_float, of_double in rows
    }


def ordered(choose):
    """Return the minimum or maximum of IEEE 754-2019."""
    return lambda x, y: gmpy2.nan() if gmpy2.is_nan(x) or gmpy2.is_nan(y) else choose(x, y)


MPFR = {
    "sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x)),
    "rsqrt": lambda x: 1 / gmpy2.sqrt(x),
    "pow": lambda x, y: x**y,
    "abs": abs,
    "min": ordered(min),
    "max": ordered(max),
    "clamp": lambda x, low, high: ordered(min)(ordered(max)(x, low), high),
    "copysign": gmpy2.copy_sign,
    "hypot": gmpy2.hypot,
    "rint": gmpy2.rint,
    "cbrt": gmpy2.cbrt,
}


def error(name: str, kind: str, arguments: list[str], result: str) -> float:
    """Return the error of a result in units in the last place of the exact value."""
    with gmpy2.context(precision=1400, emin=-(10**9), emax=10**9):
        numbers = [gmpy2.mpfr(float.fromhex(argument)) for argument in arguments]
        exact, got = MPFR.get(name, getattr(gmpy2, name, None))(*numbers), gmpy2.mpfr(float.fromhex(result))
        if gmpy2.is_nan(exact) or gmpy2.is_nan(got):
            return 0.0 if gmpy2.is_nan(exact) and gmpy2.is_nan(got) else float("inf")
        most = gmpy2.exp2(128 if kind == "float" else 1024)
        exact, got = (max(min(x, most), -most) for x in (exact, got))
        exponent = gmpy2.get_exp(exact) - BITS[kind] if exact else LEAST[kind]
        exponent = min(exponent, (128 if kind == "float" else 1024) - BITS[kind])
        return float(abs(got - exact) / gmpy2.exp2(max(exponent, LEAST[kind])))


# Doubles at which it is hard to be right. The exact value is closest to a number, or to the middle between two numbers.
# Sources: V. Lefevre and J.-M. Muller, Worst cases for correct rounding of the elementary functions in double precision
# (2001); the lists of CORE-MATH (src/binary64/*/*.wc). No other double is as close to a multiple of pi / 2 as
# 6381956970095103 * 2^797 (J.-M. Muller, Elementary Functions, 2016). The last ones are the ends, where a result
# almost overflows, or is the least number.
HARD = {
    "exp": ["0x1.83d4bcdebb3f4p+2", "0x1.62e42fefa39efp+9", "-0x1.74910d52d3051p+9", "0x1p-54", "-0x1p-54"],
    "exp2": ["-0x1.4eb48b3af6ebbp-49", "0x1.359c02f7a36c1p-20", "-0x1.dc8bbbde43838p-23", "-0x1.8869bdb7e3b3bp-48",
        "0x1.fffffffffffffp+9", "-0x1.0c7ffffffffffp+10"],
    "expm1": ["0x1.274bbf1efb1a2p-10", "-0x1.d8db2b4e24465p-14", "0x1.0b5d6cc46b3f8p-28", "-0x1.4734cfff6c86fp+4",
        "-0x1.f800000000a56p-40", "0x1.62e42fefa39efp+9", "0x1p-53"],
    "sigmoid": ["-0x1.62e42fefa39efp+9", "-0x1.74910d52d3051p+9", "0x1p-54"],
    "sinh": ["0x1.0805c7b507885p-2", "0x1.5f07120fe56ap-23", "0x1.0165da861a1bap-14", "0x1.d6479eba7c971p+8",
        "0x1.633ce8fb9f87dp+9"],
    "cosh": ["0x1.0cf01d3f9f5e4p-11", "0x1.12d0f92fb5032p-19", "0x1.0e0ac6ef9dcbcp-12", "0x1.7ffffffffdcp-18",
        "0x1.633ce8fb9f87dp+9"],
    "tanh": ["0x1.e0000000000e1p-22", "0x1.291c601a05276p-2", "0x1.880072ccb1051p-11", "0x1.e00000000384p-19"],
    "log": ["0x1.62a88613629b6p+678", "0x1.5c2e78e590c4p+823", "0x1.6fda0b1009a7p+488", "0x1.cc70b99337b47p-442",
        "0x1.c90810d354618p+245", "0x1.0000000000001p+0", "0x1.fffffffffffffp-1", "0x0.0000000000001p-1022"],
    "log2": ["0x1.d30a43773dd1bp-257", "0x1.89d948a94fe17p+3", "0x1.4d7840d357b2p-3", "0x1.61555f75885b4p-1024"],
    "log10": ["0x1.852ff9d06d8e9p-225", "0x1.b6fe0640096eep+854", "0x1.1121ac16ba794p-620", "0x1.27d838f22d0ap-2"],
    "log1p": ["-0x1.fffffffffffffp-1", "0x1p-53", "-0x1p-53"],
    "asinh": ["0x1.0ccdc52c38712p+920"],
    "acosh": ["0x1.2f591dc315f96p+714", "0x1.0000000000001p+0"],
    "atanh": ["0x1.fd51bf2069fep-25", "0x1.76f432525a96bp-15", "0x1.11bcbb5e5c818p-11", "0x1.dffffffffeae8p-20",
        "0x1.fffffffffffffp-1"],
    "pow": ["0x1.fffffffffffffp-1 0x1p+62", "0x1.0000000000001p+0 0x1.62e42fefa39efp+61",
        "0x1.fffffffffffffp+1023 0x1p-1074", "0x0.0000000000001p-1022 0x1.fffffffffffffp-1"],
    "sin": ["0x1.6ac5b262ca1ffp+849", "0x1.e0000000001c2p-20", "0x1.fe767739d0f6dp-2", "0x1.273a8d35c0c97p+7",
        "0x1.444581169c557p+1023", "0x1.ecdc77f91a756p-20", "0x1.6c6cbc45dc8dep+5", "0x1.921fb54442d18p+1"],
    "cos": ["0x1.53b0f1a8cafd5p+4", "0x1.726d41832a0cp-24", "0x1.459d5888c6b37p+10", "0x1.8000000000024p-22",
        "0x1.6ac5b262ca1ffp+849", "0x1.921fb54442d18p+0"],
    "tan": ["0x1.c839011a23cb6p-9", "0x1.a2da650c9672p+3", "0x1.88bdd13f6a7e8p+4", "0x1.1ba1951db1d6ep-5",
        "0x1.6ac5b262ca1ffp+849", "0x1.921fb54442d18p+0"],
    "asin": ["0x1.a4816b2066707p-5", "0x1.f317ce4e1019dp-7", "0x1.2231aea708e6ep-14", "0x1.dfffffffff02ep-20",
        "0x1.fffffffffffffp-1"],
    "acos": ["0x1.cf37d41c69889p-24", "0x1.59d20f7f204a5p-5", "0x1.92c3d7b8d312fp-25", "0x1.ab130aec8d019p-8",
        "0x1.fffffffffffffp-1", "-0x1.fffffffffffffp-1"],
    "atan": ["0x1.49ff16b9c1e3ep+52", "0x1.5df2931859a97p-12", "0x1.3372444b437aap-17", "0x1p-182"],
    "atan2": ["0x1.8c48c7e9f59bbp+69 0x1.4c7775f720a8dp+53", "0x1.4e015ccaa709ap+52 0x1.cafc4eba977aep+51",
        "0x1.c6fb9d76e4879p+52 0x1.568092de15e5fp+53", "0x1.799cebc8aa43bp+52 0x1.3443e4b2c6568p+53",
        "0x0.0000000000001p-1022 0x1p+0", "0x1p+1023 0x1p-1023"],
    "erf": ["0x1.4142994626b71p-16", "0x1.19fcb5f9e8a8bp-39", "0x1.3c47ae82dec8ep-18", "0x1.02bcd0c5e2648p-16"],
    "erfc": ["0x1.a631d4bc7f56bp+3", "-0x1.a05ab4acb7b72p-20", "-0x1.3f0aac6733857p-48", "0x1.0ca37ce17afa6p+1",
        "0x1.a8b12fc6e4892p+4", "0x1.b39dc41e48bfdp+4"],
    "rsqrt": ["0x1.a6a9cc15abccep+0", "0x1.c562b857453ddp+1", "0x1.f4b0482bfa34cp+0", "0x1.0000000000001p+0"],
    "cbrt": ["0x1.577a288016fdap+1", "0x1.adfcf906e1c5cp+1", "0x1.8b58c1da8d465p+0", "0x1.79a1dba41cd0fp+1"],
    "hypot": ["0x1.f62eaf1fac3f8p-1 0x1.90df3af5b3bc3p-26", "0x1.421bffb3fe30ep-1 0x1.410d8e51d5dacp-26",
        "0x1.180ba42db24a8p-1 0x1.0bc0c1383b7f4p-27", "0x1.e891f4820dee5p-1002 -0x1p-1074",
        "0x1.fffffffffffffp+1022 0x1.8p+1022", "0x0.0000000000003p-1022 0x0.0000000000002p-1022"],
}  # fmt: skip


def main() -> int:
    """Measure all functions, or those that are named; the exit status is 1 if an error exceeds its bound."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", type=Path, help="accuracy, as meson builds it")
    parser.add_argument("--samples", type=int, default=10**9, help="arguments of a function that has too many for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE.parents[1] / "docs/functions.csv")
    parser.add_argument("functions", nargs="*", help="exp, or exp:float; those not named keep their rows")
    asked = parser.parse_intermixed_args()
    functions, wrong, rows = listed(), 0, {}
    if asked.output.exists():
        with asked.output.open(newline="") as file:
            rows = {tuple(row[:2]): row for row in list(csv.reader(file))[1:]}

    def measure(name: str, kind: str, *more: object) -> list[list[str]]:
        command = [asked.program, name, kind, *map(str, more)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
        return list(csv.reader(output.splitlines()))

    for name, (_, bounds) in functions.items():
        for kind, bound in bounds.items():
            if asked.functions and not {name, f"{name}:{kind}"} & set(asked.functions):
                continue
            options = ["--samples", asked.samples, "--seed", asked.seed, "--threads", asked.threads]
            ((_, _, inputs, largest, at, share, undecided, *halves),) = measure(name, kind, *options)
            hard = [at] + (HARD.get(name, []) if kind == "double" else [])
            for k, (_, _, arguments, result, *_) in enumerate(measure(name, kind, *" ".join(hard).split())):
                judged = error(name, kind, arguments.split(), result)
                if k == 0 or judged > float(largest):
                    largest, at = f"{judged:.6f}", arguments
            rows[name, kind] = [name, kind, inputs, f"{float(largest):.4f}", at, f"{float(share):.7f}", *halves]
            print(*rows[name, kind], f"undecided {undecided}" if undecided != "0" else "", sep="  ", flush=True)
            if float(largest) > bound:
                wrong += 1
                print(f"{kind} {name}: {largest} is more than {bound}", file=sys.stderr)
            with asked.output.open("w", newline="") as file:  # after each function, because the whole takes hours
                order = [(name, kind) for name in functions for kind in BITS]
                table = [rows[key] for key in order if key in rows]
                csv.writer(file, lineterminator="\n").writerows([HEADER, *table])
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
