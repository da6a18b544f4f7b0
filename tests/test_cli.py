"""The console script: what it prints, its exit status, and JSON."""

import json
import subprocess
import sys
from importlib.metadata import entry_points

from muladd_nb import __main__, _check


def test_info_and_check_as_json():
    run = subprocess.run(
        [sys.executable, "-m", "muladd_nb", "check", "--json"], cwd="/", capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads(run.stdout)["check"]
    assert all(result["ok"] for result in results)
    names = {result["name"] for result in results}
    for operator in ("mymuladd", "mymul", "myadd_out", "mymuladd_out", "mymuladd.out", "mymul.out"):
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            assert f"{operator} {dtype}" in names


def test_info(capsys):
    assert __main__.main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "torch_target         2.10" in printed
    assert __main__.main(["--json", "info"]) == 0
    assert json.loads(capsys.readouterr().out)["info"]["torch_target"] == "2.10"


def test_bench(capsys):
    assert __main__.main(["bench", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["bench"]
    assert {"mymuladd", "eager", "addcmul"} <= rows[0]["seconds"].keys()
    assert all(seconds > 0 for row in rows for seconds in row["seconds"].values())


def test_a_wrong_result_is_a_failure(capsys, monkeypatch):
    broken = [("mymul", lambda a, b: a * b * 2, lambda a, b, c: a * b)]
    monkeypatch.setattr(_check, "_operators", lambda: broken)
    monkeypatch.setattr(_check, "_samples", list)
    assert __main__.main(["check"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL cpu      mymul float32" in printed
    assert "failed" in printed


def test_console_script_is_installed():
    (script,) = entry_points(group="console_scripts", name="muladd-nb")
    assert script.load() is __main__.main
