"""The console script ``muladd-nb``: what was built, whether it is right here, and how fast it is."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import _bench, _check, _new, build_info


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand in ``argv``, or info, check and bench, and return the exit status."""
    parser = argparse.ArgumentParser(prog="muladd-nb", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    commands = parser.add_subparsers(dest="command")
    for name, what in (
        ("info", "what was built, and what runs here"),
        ("check", "every operator on every dtype and device"),
        ("bench", "ratios against eager, addcmul and torch.compile"),
    ):
        commands.add_parser(name, help=what, description=what).add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object instead of text"
        )
    what = "write a project with operators of your own, one for each schema"
    new = commands.add_parser("new", help=what, description=what)
    new.add_argument("package", help="its name, like my_ops; it is written to a folder of that name")
    new.add_argument("schemas", nargs="*", metavar="schema", help="like 'softclip(Tensor x, float limit) -> Tensor'")
    new.add_argument("--operator", help="instead of a schema: the name of one operator, on two tensors")
    what = "add an operator, for each schema, to the project in this folder"
    add = commands.add_parser("add", help=what, description=what)
    add.add_argument("schemas", nargs="*", metavar="schema", help="like 'softclip(Tensor x, float limit) -> Tensor'")
    for command in (new, add):
        what = "the operators are not element-wise: write a kernel to fill in for each"
        command.add_argument("--kernel", action="store_true", help=what)
    arguments, rest = parser.parse_known_args(argv)
    if "schemas" in arguments and not any(word.startswith("-") for word in rest):
        arguments.schemas += rest  # argparse takes those after an option for something else
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments.command in ("new", "add"):
        return _write_project(arguments)

    def say(line: str) -> None:
        if not arguments.json:
            print(line, flush=True)

    report: dict[str, Any] = {}
    chosen = [arguments.command] if arguments.command else ["info", "check", "bench"]
    if "info" in chosen:
        report["info"] = _info()
        for key, value in report["info"].items():
            say(f"{key:20} {', '.join(value) if isinstance(value, list) else value}")
    if "check" in chosen:
        say("" if len(chosen) == 1 else "\ncheck")
        report["check"] = []
        for result in _check.run():
            report["check"].append(result)
            say(f"{'ok  ' if result['ok'] else 'FAIL'} {result['device']:8} {result['name']:44} {result['detail']}")
    if "bench" in chosen:
        say("" if len(chosen) == 1 else "\nbench: how many times faster than ...")
        report["bench"] = []
        for row in _bench.run(brief=arguments.command is None):
            if not report["bench"]:
                say(_bench.header(row))
            report["bench"].append(row)
            say(_bench.line(row))
    failed = sum(not result["ok"] for result in report.get("check", []))
    if arguments.json:
        print(json.dumps(report, indent=2))
    elif "check" in report:
        print(f"\n{len(report['check']) - failed} checks passed, {failed} failed")
    return 1 if failed else 0


def _write_project(arguments: argparse.Namespace) -> int:
    schemas = arguments.schemas
    try:
        if arguments.command == "add":
            _new.add(schemas, Path(), kernel=arguments.kernel)
            print("Added. Test it: pip install '.[test]' && pytest")
            return 0
        if arguments.operator is not None:
            schemas = [*schemas, f"{arguments.operator}(Tensor a, Tensor b) -> Tensor"]
        folder = _new.create(arguments.package, schemas, Path(), kernel=arguments.kernel)
    except ValueError as error:
        print(f"muladd-nb {arguments.command}: {error}", file=sys.stderr)
        return 2
    print(f"{folder} is written. Install and test it: cd {folder} && pip install '.[test]' && pytest")
    return 0


def _info() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none available"
    return build_info() | {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda_device": device,
    }


if __name__ == "__main__":
    sys.exit(main())
