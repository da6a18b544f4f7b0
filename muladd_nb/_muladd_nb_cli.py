"""The console script. It is outside of the package, whose import needs torch, because ``--help`` needs none."""

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def main() -> int:
    """Run ``muladd_nb.__main__`` without executing the package, which is imported later if it is needed."""
    beside = PathFinder.find_spec("muladd_nb", [str(Path(__file__).parent)])
    spec = beside or importlib.util.find_spec("muladd_nb")  # an editable install is in another folder
    assert spec
    sys.modules["muladd_nb"] = importlib.util.module_from_spec(spec)
    script = importlib.import_module("muladd_nb.__main__")
    del sys.modules["muladd_nb"]
    return script.main()
