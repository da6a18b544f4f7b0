"""The console script ``muladd-nb``: it describes, checks and measures the package, and writes and ports projects."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import logging
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _build_info, _new
from ._progress import Step

# Modules that import torch are imported inside of functions, because --help and --version do not need torch.

_INSTALL = (
    "pip install meson-python meson ninja 'nanobind>=3' && "
    "pip install --no-build-isolation --editable '.[test]' && pytest"
)
Run = Callable[[str], Step]
_NOT_RUN_BY_US = ": built and audited from Linux, not run by us; 'muladd-nb check' is the test"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand in ``argv``, or info, check and bench, and return the exit status."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the caller has closed it
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115 (until the process ends)
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("muladd-nb: interrupted", file=sys.stderr)
        return 130  # as a shell tells of a process that SIGINT has ended
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # the reader of a pipe, such as head, has read enough
            where = f"{error.filename or 'standard output'}: " if error.strerror else ""
            print(f"muladd-nb: {where}{error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # because Python flushes stdout when it ends
        return 1


def _run(argv: Sequence[str] | None) -> int:
    what = (
        "Check and measure the operators, write a project with your own, or move an extension to the stable ABI. "
        "Without a command: info, check and bench, one after the other."
    )
    parser = argparse.ArgumentParser(prog="muladd-nb", description=what)
    parser.add_argument("--version", action="version", version=f"%(prog)s {_build_info.VERSION}")
    commands = parser.add_subparsers(dest="command", title="commands")
    looks = {
        "info": "show how the package was built, and what this machine has",
        "check": "check every operator in every dtype on every device, also on a GPU",
        "bench": "measure how many times as fast as eager, addcmul and torch.compile it is",
    }
    for name, what in looks.items():
        commands.add_parser(name, help=what, description=what)
    what = "write a project with operators of your own, one for each schema"
    new = commands.add_parser("new", help=what, description=what)
    new.add_argument("package", help="the project's name, such as my_ops, and the folder that it is written to")
    like = "such as 'softclip(Tensor x, float limit) -> Tensor'"
    new.add_argument("schemas", nargs="*", default=[], metavar="schema", help=like)
    what = "add an operator for each schema to the project in this folder"
    add = commands.add_parser("add", help=what, description=what)
    add.add_argument("schemas", nargs="*", metavar="schema", help=like)
    what = "remove an operator from the project in this folder, with everything that was written for it"
    remove = commands.add_parser("remove", help=what, description=what)
    remove.add_argument("names", nargs="+", metavar="name", help="of the operator, such as softclip")
    what = "renew the copied files of the project in this folder, the layer and its tests; your own files stay"
    update = commands.add_parser("update", help=what, description=what)
    update.add_argument("--dry-run", action="store_true", help="only print what would change")
    what = "also replace copies that were edited, or that may have been"
    update.add_argument("--overwrite", action="store_true", help=what)
    what = "find what binds an extension to one torch, and print what to write instead"
    more = "; each line is FILE:LINE: KIND: NAME -> REPLACEMENT, and the exit status is 1 while something is left"
    port = commands.add_parser("port", help=what, description=what + more)
    port.add_argument(
        "paths", nargs="+", type=Path, metavar="path", help="C++ and CUDA sources, setup.py, or folders of them"
    )
    what = "the oldest torch that the extension shall run on (default: 2.10)"
    port.add_argument("--target", default="2.10", metavar="VERSION", help=what)
    port.add_argument("--write", action="store_true", help="make the mechanical changes, in all files or in none")
    port.add_argument("--force", action="store_true", help="write even if git could not undo it")
    verbose = "also print each form of an operator, each setting, and sizes that the machine was too busy to measure"
    for command in (parser, *(commands.choices[name] for name in looks), port):
        # Without a default of its own, a command keeps an option that stands before it.
        default = False if command is parser else argparse.SUPPRESS
        command.add_argument("--json", action="store_true", default=default, help="print everything as one JSON object")
        if command is not port:
            command.add_argument("--verbose", action="store_true", default=default, help=verbose)
    for command in (new, add):
        kinds = command.add_mutually_exclusive_group()
        what = (
            "the operators reduce over rows, as norms and softmaxes do: over the last dimension, or the one that an "
            "'int dim' of the schema names; with a 'bool keepdim' in the schema a result has one value for each row"
        )
        kinds.add_argument("--rows", action="store_true", help=what)
        what = (
            "for operators that are not element-wise: write a kernel to fill in for each; schemas may have optional "
            "tensors, lists, strings, dtypes, defaults, and tensors that are written to"
        )
        kinds.add_argument("--kernel", action="store_true", help=what)
    arguments, rest = parser.parse_known_args(argv)
    chosen = commands.choices.get(arguments.command, parser)  # errors show the usage of this command
    words = getattr(arguments, "schemas", getattr(arguments, "paths", None))
    if words is not None and not any(word.startswith("-") for word in rest):
        words += map(Path, rest) if "paths" in arguments else rest  # argparse leaves the words after an option in rest
    elif rest:
        chosen.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments.command not in (None, *looks):
        is_port = arguments.command == "port"
        if arguments.verbose:
            chosen.error("--verbose is for info, check and bench")
        if arguments.json and not is_port:
            chosen.error("--json is for info, check, bench and port")
        return _port_extension(arguments) if is_port else _write_project(arguments)
    with _only_ours():
        return _look([arguments.command] if arguments.command else [*looks], arguments)


def _write_project(arguments: argparse.Namespace) -> int:
    try:
        if arguments.command == "update":
            return _update_project(arguments)
        from . import build_info  # noqa: F401 (torch parses the schemas; if it is missing, this says what to do)

        if arguments.command == "remove":
            return _remove_operators(arguments.names)
        kind = {"kernel": arguments.kernel, "rows": arguments.rows}
        if arguments.command == "add":
            _new.add(arguments.schemas, Path(), **kind, tell=print)
            print(f"and test it: {_INSTALL}")
        else:
            folder = _new.create(arguments.package, arguments.schemas, Path(), **kind, tell=print)
            print(f"and test it: cd {folder} && {_INSTALL}")
    except (ImportError, ValueError) as error:  # torch is missing, or a schema is wrong
        print(f"muladd-nb {arguments.command}: {error}", file=sys.stderr)
        return 2
    return 0


def _remove_operators(names: Sequence[str]) -> int:
    left = _new.remove(names, Path())
    print(f"Removed: {', '.join(dict.fromkeys(names))}.")
    if left:
        print(f"Still named in {', '.join(left)}")
    return 0


def _port_extension(arguments: argparse.Namespace) -> int:
    try:
        from . import _port
    except ImportError as error:
        why = f"{error.name} is missing: pip install 'muladd_nb[port]'" if error.name else error
        print(f"muladd-nb port: {why}", file=sys.stderr)
        return 2
    from ._port import _report

    try:
        port = _port.Port(arguments.paths, arguments.target)
        if arguments.write:
            written = port.write(force=arguments.force)
            port = _port.Port(arguments.paths, arguments.target)
            if not arguments.json:
                print(_report.written(written))
        told = json.dumps(_report.data(port), indent=2) if arguments.json else "\n".join(_report.lines(port))
    except (ImportError, OSError, ValueError) as error:
        print(f"muladd-nb port: {error}", file=sys.stderr)
        return 2
    encoding = sys.stdout.encoding or "utf-8"
    print(told.encode(encoding, "backslashreplace").decode(encoding))  # a source may have bytes that are not UTF-8
    return 1 if port.findings else 0


def _update_project(arguments: argparse.Namespace) -> int:
    lines = _new.update(Path(), overwrite=arguments.overwrite, dry_run=arguments.dry_run)
    print("\n".join(lines or ["Nothing has changed."]))
    if lines and arguments.dry_run:
        print(f"Nothing is written. The layer would be that of muladd_nb {_build_info.VERSION}.")
    elif lines:
        print(f"The layer is that of muladd_nb {_build_info.VERSION}. Test it: pip install '.[test]' && pytest")
    return 0


@contextlib.contextmanager
def _only_ours() -> Iterator[None]:
    """Silence torch's warnings, for example about CUDA or its own scripts, which are not about these operators."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _look(chosen: Sequence[str], arguments: argparse.Namespace) -> int:
    step = functools.partial(Step, shown=not arguments.json)
    try:
        with step("importing torch"):
            info = _info()
    except ImportError as error:  # torch is missing, or an environment variable has a wrong value
        print(f"muladd-nb: {str(error).removeprefix('muladd_nb: ')}", file=sys.stderr)
        return 2
    report: dict[str, Any] = {}
    lines: list[str] = []
    if "info" in chosen:
        report["info"] = info
        lines += ["", *(_settings(info) if arguments.verbose or len(chosen) == 1 else [_summary(info)])]
    if "check" in chosen:
        report["check"], told = _check_all(step, verbose=arguments.verbose)
        lines += ["", "check: each dtype against float64, and by torch.library.opcheck", *told]
    if "bench" in chosen:
        report["bench"], told = _bench_all(step, brief=len(chosen) > 1, verbose=arguments.verbose)
        lines += ["", "bench: how many times as fast as ..., and the quartiles of many rounds", *told]
    failed = sum(not result["ok"] for result in report.get("check", []))
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        if verdict := _verdict(report, failed):
            _print_verdict(verdict, "red" if failed else "green")
        print("\n".join(lines if verdict else lines[1:]))
    return 1 if failed else 0


def _info() -> dict[str, Any]:
    from . import build_info  # if torch is missing, this says what to do

    info = build_info()
    import torch

    from ._layer import system

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none available"
    return info | {
        "system": f"{platform.system()} {platform.machine()}{'' if system.IS_TESTED else _NOT_RUN_BY_US}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda_device": device,
    }


def _settings(info: dict[str, Any]) -> list[str]:
    return [
        f"{key:20} {(', '.join(value) if isinstance(value, list) else value) or 'none'}" for key, value in info.items()
    ]


def _summary(info: dict[str, Any]) -> str:
    cuda = "no kernels"
    if info["cuda_version"]:
        cuda = f"kernels of CUDA {info['cuda_version']} for {', '.join(info['cuda_architectures'])}"
    return (
        f"muladd_nb {info['version']}, torch {info['torch']}, CPython {info['python']}; CPU: {info['simd']}, "
        f"{info['threads']} threads; CUDA: {cuda}, device: {info['cuda_device']}"
    )


def _check_all(step: Run, *, verbose: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the results and the lines to print: one for each failure, and one for the passed checks of an operator."""
    from . import _check

    results, lines = [], []
    for (name, device), group in itertools.groupby(_check.checks(), lambda c: (c.name if verbose else c.of, c.device)):
        right = []
        with step(f"{name} on {device}") as running:
            for check in group:
                results.append(result := check.run())
                if result["ok"]:
                    right.append(check.part or result["detail"])
                else:
                    lines.append(f"FAIL {device:8} {result['name']:44} {result['detail']}")
        if right:
            lines.append(f"ok   {device:8} {name:32} {', '.join(dict.fromkeys(right))}{running.took}")
    return results, lines


def _bench_all(step: Run, *, brief: bool, verbose: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the measurements and the lines to print: one for each size that could be measured."""
    from . import _bench

    rows, lines = [], []
    for name, measure in _bench.run(brief=brief):
        with step(name) as running:
            rows.append(row := measure())
        if verbose or not row["busy"]:
            lines.append(_bench.line(row) + running.took)
    lines = [_bench.header(rows[0]), *lines] if lines else []
    if left_out := sum(row["busy"] for row in rows) if not verbose else 0:
        lines.append(f"Left out because the machine was too busy to tell: {left_out} of {len(rows)} sizes (--verbose).")
    return rows, lines


def _verdict(report: dict[str, Any], failed: int) -> str:
    """Return the first line: whether all checks passed, what to do if not, and how fast the package is."""
    sentences = []
    if checks := len(report.get("check", [])):
        sentences = [f"Right on this machine: {checks} of {checks} checks passed."]
    if failed:
        sentences = [
            f"WRONG on this machine: {failed} of {checks} checks failed (FAIL below). Do not use it: build it again "
            "with 'pip install --force-reinstall --no-cache-dir .', and if they still fail, report what "
            "'muladd-nb --json' prints."
        ]
    if "bench" in report:
        from . import _bench

        sentences.append(_bench.sentence(report["bench"]))
    return " ".join(sentences)


def _print_verdict(verdict: str, color: str) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(verdict, style=f"bold {color}", markup=False)
    else:
        print(verdict)


if __name__ == "__main__":
    sys.exit(main())
