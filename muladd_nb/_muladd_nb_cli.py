"""The console script, installed beside the package: to import that takes torch, which ``--help`` does without."""

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def main() -> int:
    """Run ``muladd_nb.__main__``, of a package that is run itself only when something of it is needed."""
    beside = PathFinder.find_spec("muladd_nb", [str(Path(__file__).parent)])
    spec = beside or importlib.util.find_spec("muladd_nb")  # an editable install has its files where they are
    assert spec
    sys.modules["muladd_nb"] = importlib.util.module_from_spec(spec)
    script = importlib.import_module("muladd_nb.__main__")
    del sys.modules["muladd_nb"]
    return script.main()
