"""Tries random calls of the operators: python tests/fuzz [TARGET...] [--seconds N] [--seed S].

Hypothesis makes the cases, finds the shortest one that fails, and prints it with the command that runs it alone. If the
process crashes, it prints no case. Its last line then has the number of the round, and `--verbose` prints each case of
a round before it runs.
"""

import argparse
import faulthandler
import importlib
import random
import re
import sys
import time
import traceback
import warnings
from pathlib import Path

import hypothesis
import torch
from hypothesis.internal.conjecture import engine

sys.path.insert(1, str(Path(__file__).parent.parent))  # tests, after this folder
from record import record

HERE = Path(__file__).parent
# A target is a file with one test, and the number of cases that it runs, in about 4 seconds, before the next target.
TARGETS = {
    "layouts": ("right_in_any_layout", 300),
    "broadcasts": ("right_where_it_broadcasts", 500),
    "nesting": ("right_in_any_nesting", 500),
    "compiled": ("right_when_compiled", 20),
    "subclasses": ("right_with_any_kind_of_tensor", 1500),
    "refusals": ("refused_in_one_sentence", 2500),
    "rows": ("right_over_rows", 500),
}
COMPILES = {"rows"}  # these compile a project for minutes, so they run only if they are named


def main():
    parser = argparse.ArgumentParser("tests/fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; default: all but rows")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--case", help="run only this case of one target; a failure prints it")
    parser.add_argument("--rounds", type=int, default=10**9, help="stop after this many rounds")
    parser.add_argument("--verbose", action="store_true", help="print each case before it runs")
    parser.add_argument("--record", action="store_true", help="put the figures into docs/reliability.csv")
    arguments = parser.parse_args()
    for target in arguments.targets:
        if target not in TARGETS:
            parser.error(f"there is no target {target}")
    if arguments.case and len(arguments.targets) != 1:
        parser.error("a case is one of one target, which is missing")
    faulthandler.enable()
    warnings.simplefilter("ignore")
    use_settings(arguments.verbose)
    chosen = arguments.targets or [target for target in TARGETS if target not in COMPILES]
    tests = {target: prepared(target) for target in chosen}
    print(f"torch {torch.__version__}, seed {arguments.seed}", flush=True)
    if arguments.case:
        (target,) = chosen
        return failed(target, hypothesis.reproduce_failure(hypothesis.__version__, arguments.case)(tests[target]))

    failures, spent, rounds = set(), dict.fromkeys(tests, 0.0), 0
    begun = time.monotonic()
    while rounds < arguments.rounds and time.monotonic() - begun < arguments.seconds and tests.keys() - failures:
        for target, test in tests.items():
            if target in failures:
                continue
            start = time.monotonic()
            print(f"{target} --seed {arguments.seed + rounds} --rounds 1", end="\r", flush=True)
            if failed(target, hypothesis.seed(arguments.seed + rounds)(test)):
                failures.add(target)
            spent[target] += time.monotonic() - start
            if time.monotonic() - begun >= arguments.seconds:
                break
        rounds += 1

    for target, seconds in spent.items():
        counts = sys.modules[target].COUNTS
        print(f"{target}: {sum(counts.values()):,} cases in {seconds:.0f} s", dict(counts))
        if seconds and target not in failures and not any(what.startswith("right") for what in counts):
            print(f"{target}: none of the cases was right, so they prove nothing")
            failures.add(target)
        if arguments.record and target not in failures:
            record(
                f"fuzz: {target}",
                (sys.modules[target].__doc__ or "").splitlines()[0],
                f"{sum(counts.values()):,} cases: " + "; ".join(f"{n:,} {what}" for what, n in counts.items()),
                f"nox -s fuzz -- {target} --seconds {arguments.seconds:.0f} --seed {arguments.seed}",
            )
    return bool(failures)


def prepared(target):
    name, cases = TARGETS[target]
    return hypothesis.settings(max_examples=cases)(getattr(importlib.import_module(target), name))


def use_settings(verbose):
    hypothesis.settings.register_profile(
        "fuzz",
        database=None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        verbosity=hypothesis.Verbosity.verbose if verbose else hypothesis.Verbosity.normal,
    )
    hypothesis.settings.load_profile("fuzz")
    engine.MAX_SHRINKING_SECONDS = 60  # by default 300; the other targets have to run, too


def failed(target, test):
    try:
        test()
    except hypothesis.errors.DidNotReproduce:
        print("this case does not fail, or is one of another version of Hypothesis or of the target")
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        print("".join(traceback.format_exception(error)))
        if case := re.search(r"@reproduce_failure\('[\d.]+', b'(.+?)'\)", notes):
            print(f"{target} fails; this case alone: python tests/fuzz {target} --case '{case[1]}'", flush=True)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
