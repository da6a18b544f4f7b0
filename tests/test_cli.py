"""The console script: what it prints, its exit status, and JSON."""

import json
import logging
import os
import platform
import pty
import re
import shlex
import sys
import time
import warnings
from pathlib import Path

import forked
import pytest
from calls import OPERATORS
from conftest import run

import muladd_nb
from muladd_nb import __main__, _bench, _check, _progress
from muladd_nb._layer import system

SCRIPT = Path(sys.executable).with_name("muladd-nb")


@pytest.fixture
def script(tmp_path):
    """Run the console script in a process that has not imported the package; return its status and stderr."""
    call = "import os, sys, _muladd_nb_cli; sys.argv[1:] = {}; {}; sys.exit(_muladd_nb_cli.main())"
    return lambda *arguments, after="": forked.python(call.format(arguments, after), tmp_path / "stderr")


def test_the_version():
    ran = run(SCRIPT, "--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"muladd-nb {muladd_nb.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"], ["new", "--help"]])
def test_what_needs_no_torch_imports_none(arguments, tmp_path):
    ran = run(sys.executable, "-X", "importtime", SCRIPT, *arguments, cwd=tmp_path)
    assert ran.returncode == 0
    assert not re.findall(r"\| +(torch|numpy|rich)\b", ran.stderr)


def test_check_lists_operators_by_names_that_exist():
    listed = {check.of for check in _check.checks() if check.part}
    assert listed <= {str(call.form.op.name()).partition("::")[2] for call in OPERATORS}
    assert "myadd_out" in listed


def test_every_operator_is_checked_and_nothing_else_is_heard(capfd):
    assert __main__.main(["check", "--json"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    results = json.loads(printed.out)["check"]
    assert all(result["ok"] for result in results)
    names = {result["name"] for result in results}
    for operator in OPERATORS:
        assert f"{operator} opcheck" in names
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            assert f"{operator} {dtype}" in names


@pytest.mark.slow
def test_the_main_job_begins_with_its_verdict_and_nothing_else_is_heard(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('numpy')")
    ran = run(SCRIPT, CUDA_HOME="/", PYTHONPATH=str(tmp_path))
    assert (ran.returncode, ran.stderr) == (0, "")
    told = [line for line in ran.stdout.splitlines() if not line.startswith("... ")]
    assert told[0].startswith("Right on this machine: ")
    assert len(told) < 25


def test_info(capsys):
    assert __main__.main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "torch_target         2.10" in printed
    assert "missing_in_torch     none" in printed
    assert __main__.main(["--json", "info"]) == 0
    assert json.loads(capsys.readouterr().out)["info"]["torch_target"] == "2.10"


@pytest.mark.parametrize("is_tested", [True, False])
def test_info_says_where_we_have_not_run_it(capsys, monkeypatch, is_tested):
    monkeypatch.setattr(system, "IS_TESTED", is_tested)
    assert __main__.main(["--json", "info"]) == 0
    known = json.loads(capsys.readouterr().out)["info"]["system"]
    assert known.startswith(platform.system())
    warns = known.endswith(": built and audited from Linux, not run by us; 'muladd-nb check' is the test")
    assert warns == (not is_tested)


def noisy(device):
    warnings.warn("torch.jit.script is deprecated", FutureWarning, stacklevel=2)
    logging.getLogger("torch.utils.cpp_extension").warning("No CUDA runtime is found")
    return "fine"


def slow(device):
    time.sleep(0.5)
    return "fine"


def wrong(device):
    raise AssertionError("2 is not 3")


@pytest.fixture
def main(capsys, monkeypatch):
    """Run the console script with these checks and one size; return its exit status and what it printed."""

    def main(*arguments, checks=(noisy,)):
        of_cpu = [_check.Check(function.__name__, function.__name__, "cpu", function) for function in checks]
        monkeypatch.setattr(_check, "checks", lambda: of_cpu)
        status = __main__.main(arguments)
        return status, *capsys.readouterr()

    measure = _bench.measure
    monkeypatch.setattr(_bench, "measure", lambda sides, **_: measure(sides, seconds=0.05))
    monkeypatch.setattr(_bench, "SIZES", (16, 1 << 20))
    monkeypatch.setattr(_bench, "cxx_compiler", lambda: False)
    return main


def test_other_packages_are_not_heard(main):
    disabled, filters = logging.root.manager.disable, list(warnings.filters)
    status, out, err = main("check")
    assert (status, err) == (0, "")
    assert "deprecated" not in out
    assert (logging.root.manager.disable, warnings.filters) == (disabled, filters)


def test_the_verdict_comes_first_and_is_about_a_large_size(main):
    status, out, _ = main()
    assert status == 0
    assert re.match(
        r"(\.\.\. .* is running\n)*"  # if the machine is busy
        r"Right on this machine: 1 of 1 checks passed\. (\d+\.\dx as fast as eager a \* b \+ c at 1,048,576 elements\."
        r"|How fast it is cannot be told: .*)\n\nmuladd_nb ",
        out,
    )


def test_a_wrong_result_is_a_failure_and_says_what_to_do(main):
    status, out, _ = main("check", checks=[noisy, wrong])
    assert status == 1
    assert out.startswith("WRONG on this machine: 1 of 2 checks failed (FAIL below). Do not use it: ")
    assert re.search(r"^FAIL cpu +wrong +AssertionError: 2 is not 3$", out, re.MULTILINE)


@pytest.mark.parametrize(("options", "ok"), [
    ([], ["ok cpu myop float32, opcheck"]),
    (["--verbose"], ["ok cpu myop float32, opcheck", "ok cpu myop.out float32"]),
])  # fmt: skip
def test_a_line_tells_all_that_is_right_of_an_operator_or_of_each_form(capsys, monkeypatch, options, ok):
    checks = [
        _check.Check("myop", name, "cpu", function, part)
        for name, part, function in (
            ("myop", "float32", noisy),
            ("myop", "float64", wrong),
            ("myop", "opcheck", noisy),
            ("myop.out", "float32", noisy),
        )
    ]
    monkeypatch.setattr(_check, "checks", lambda: checks)
    assert __main__.main(["check", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("WRONG on this machine: 1 of 4 checks failed")
    failed = "FAIL cpu myop float64 AssertionError: 2 is not 3"
    assert [re.sub(" +", " ", line) for line in lines[3:]] == [failed, *ok]


@pytest.mark.parametrize("command", [["new", "x_ops"], ["add", "f(Tensor x) -> Tensor"]])
@pytest.mark.parametrize("option", ["--json", "--verbose", "--bogus"])
def test_an_option_that_means_nothing_is_refused_with_the_usage_of_its_command(
    command, option, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    for arguments in ([option, *command], [*command, option]):
        with pytest.raises(SystemExit) as error:
            __main__.main(arguments)
        assert error.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"usage: muladd-nb {command[0]} ")
        assert option in said.splitlines()[-1]
    assert not [*tmp_path.iterdir()]


def test_the_help_names_every_command():
    ran = run(SCRIPT, "--help")
    commands = re.findall("^    ([a-z]+) ", ran.stdout, re.MULTILINE)
    assert " ".join(commands) == "info check bench new add remove update port"
    assert "``" not in ran.stdout


@pytest.mark.parametrize("command", ["info", "check", "new x_ops 'f(Tensor x) -> Tensor'", "port x.cpp"])
def test_without_torch_it_says_what_the_import_says(command, tmp_path):
    hidden = "import importlib.util as u, sys; find = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
    hidden += f"sys.modules['torch'] = None; sys.argv[1:] = {shlex.split(command)!r}\n"
    ran = run(sys.executable, "-c", f"{hidden}import _muladd_nb_cli; sys.exit(_muladd_nb_cli.main())", cwd=tmp_path)
    assert ran.returncode == 2
    assert re.fullmatch(
        r"muladd-nb( new| port)?: muladd_nb needs torch 2\.10 or newer: run 'pip install torch'\.\n", ran.stderr
    )


def test_json_is_clean(main, monkeypatch):
    monkeypatch.setattr(_progress, "LONG", 0.1)
    status, out, err = main("--json", checks=[noisy, slow, wrong])
    assert (status, err) == (1, "")
    assert set(json.loads(out)) == {"info", "check", "bench"}


def test_a_long_step_says_so_in_a_pipe(main, monkeypatch):
    monkeypatch.setattr(_progress, "LONG", 0.1)
    _, out, _ = main("check", checks=[slow])
    assert out.startswith("... slow on cpu is running\nRight on this machine: 1 of 1 checks passed.\n")
    assert re.search(r"^ok   cpu +slow +fine  0\.\d s$", out, re.MULTILINE)


def test_a_long_step_is_drawn_on_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    code = f"""import os, sys, time
os.environ["TERM"] = "xterm"
sys.stdout = open({os.ttyname(theirs)!r}, "w")
from muladd_nb._progress import Step
with Step("compiling"): time.sleep(1.2)
"""
    assert forked.python(code, tmp_path / "stderr") == (0, "")
    assert re.search(r"compiling \.\.\. .*0:00:01", os.read(ours, 1 << 16).decode())


def test_a_reader_may_leave(script):
    gone = "read, write = os.pipe(); os.close(read); os.dup2(write, 1)"
    assert script("info", after=gone) == (1, "")


def test_ctrl_c_is_a_sentence(main):
    def stopped(device):
        raise KeyboardInterrupt

    assert main("check", checks=[stopped]) == (130, "", "muladd-nb: interrupted\n")


def test_an_unknown_instruction_set_is_a_sentence(script):
    status, stderr = script("info", after="os.environ['MULADD_NB_SIMD'] = 'bogus'")
    assert status == 2
    assert re.fullmatch(r"muladd-nb: MULADD_NB_SIMD must be one of .*, got bogus\n", stderr)


class Machine:
    """A clock that the measured functions advance, and the time for which threads have waited for a processor."""

    def __init__(self, monkeypatch):
        self.now = self.waited = 0.0
        monkeypatch.setattr(_bench, "_now", lambda: self.now)
        monkeypatch.setattr(_bench, "_waiting", lambda: self.waited)

    def takes(self, seconds):
        def side():
            self.now += seconds() if callable(seconds) else seconds

        return side


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def alternating(*values):
    values = list(values)

    def take():
        values.append(values.pop(0))
        return values[-1]

    return take


def test_bench_takes_ratios_of_neighbours(machine):
    # The machine becomes slower and slower for both sides alike.
    result = _bench.measure({"ours": machine.takes(lambda: 0.01 + machine.now / 1e9), "other": machine.takes(0.03)})
    assert result["ratios"]["other"] == pytest.approx({"low": 3, "median": 3, "high": 3})
    assert result["seconds"] == pytest.approx({"ours": 0.01, "other": 0.03})
    assert not result["busy"]


def test_bench_does_not_count_rounds_in_which_a_thread_waited(machine):
    def stolen():
        # In every other call, the processor is away for a second.
        away = machine.steal()
        machine.now += away
        machine.waited += away
        return 0.03

    machine.steal = alternating(0.0, 0.0, 1.0)
    result = _bench.measure({"ours": machine.takes(0.01), "other": machine.takes(stolen)})
    assert result["ratios"]["other"] == pytest.approx({"low": 3, "median": 3, "high": 3})
    assert not result["busy"]


@pytest.mark.parametrize("seconds", [alternating(0.01, 0.01, 0.05, 0.05), alternating(0.02, 0.03, 0.07, 0.05)])
def test_bench_says_when_ratios_lie_too_far_apart(machine, seconds):
    assert _bench.measure({"ours": machine.takes(0.01), "other": machine.takes(seconds)})["busy"]


def test_bench_says_when_threads_always_waited(machine):
    def stolen():
        machine.waited += 0.01
        return 0.03

    assert _bench.measure({"ours": machine.takes(0.01), "other": machine.takes(stolen)})["busy"]


def test_bench_shows_the_spread_beside_each_ratio(main):
    status, out, err = main("bench", "--verbose")
    assert (status, err) == (0, "")
    (row,) = re.findall(r"^ +16 .*", out, re.MULTILINE)
    assert len(re.findall(r"\d\.\d\dx \(\d+\.\d\d-\d+\.\d\d\)", row)) == 2  # eager and addcmul
    _, out, _ = main("bench", "--json")
    row, _ = json.loads(out)["bench"]
    assert all(ratio["low"] <= ratio["median"] <= ratio["high"] for ratio in row["ratios"].values())
    assert isinstance(row["busy"], bool)


def test_a_busy_machine_is_named_in_the_row_and_in_the_verdict(main, monkeypatch):
    ticks = iter(range(1 << 30))
    monkeypatch.setattr(_bench, "_waiting", lambda: float(next(ticks)))
    _, out, _ = main("bench")
    assert out.startswith("How fast it is cannot be told: the machine was too busy; ")
    assert "too busy to tell: 2 of 2 sizes (--verbose)" in out
    assert not re.search(r"^ +16 ", out, re.MULTILINE)
    _, out, _ = main("bench", "--verbose")
    assert re.search(r"^ +16 .*  too busy to tell", out, re.MULTILINE)


def test_a_full_disk_is_a_sentence(script):
    full = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    says = "muladd-nb: standard output: No space left on device\n"
    assert script("--json", "info", after=full) == (1, says)


def test_a_library_that_cannot_be_loaded_is_a_sentence(script):
    missing = "import muladd_nb.__main__; muladd_nb.__main__._run = lambda argv: __import__('ctypes').CDLL('no.so')"
    status, says = script("info", after=missing)
    assert status == 1
    assert says.startswith("muladd-nb: no.so: cannot open shared object file")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_output_that_nothing_takes(closed):
    ran = run("sh", "-c", f"exec {SCRIPT} --json info {closed}")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
