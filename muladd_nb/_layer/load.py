"""Loads the compiled module, or says why it cannot be loaded."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import warnings
from pathlib import Path

TORCH_AT_LEAST = (2, 10)

_package = __name__.partition(".")[0]


def load() -> None:
    """Import the package's ``_C``, whose static initializers register the operators with the dispatcher.

    If that is not possible, raise an ``ImportError`` that says what to do.
    """
    needed = "{}.{}".format(*TORCH_AT_LEAST)
    if importlib.util.find_spec("torch") is None:
        raise ImportError(f"{_package} needs torch {needed} or newer: run 'pip install torch'.")
    module = importlib.util.find_spec(f"{_package}._C")
    if module is None:
        raise ImportError(_why_not_compiled())
    # A module for one version of Python contains nanobind.
    if ".abi3" in (module.origin or "") and importlib.util.find_spec("nanobind_backend") is None:
        raise ImportError(f"{_package} needs nanobind-backend: run 'pip install nanobind-backend'.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # nothing here needs NumPy
        import torch  # before _C, so that the loader finds libtorch

    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < TORCH_AT_LEAST:
        raise ImportError(
            f"{_package} needs torch {needed} or newer, but torch {torch.__version__} is installed: "
            f"run 'pip install --upgrade torch'."
        )
    compiled = importlib.import_module(f"{_package}._C")
    if text := compiled.conflict():
        raise ImportError(text)
    try:
        compiled.check_settings()
    except RuntimeError as error:
        raise ImportError(str(error)) from None


def _why_not_compiled() -> str:
    package = Path(__file__).parents[1]
    if not package.is_dir():
        return f"{package} is in a zip file, and Python can load no compiled module from it: unpack the file."
    if module := next(package.glob("_C.*so"), None):
        return f"{module} was not compiled for this Python, {sys.version.split()[0]}: install {_package} with its pip."
    source = next((folder for folder in package.parents if (folder / "pyproject.toml").exists()), package.parent)
    return (
        f"{source} holds the sources of {_package}, which are not compiled: run 'pip install .' "
        "there and start Python in another folder."
    )
