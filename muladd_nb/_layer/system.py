"""What differs between Linux and macOS, in Python."""

from __future__ import annotations

import sys

# Where the tests run. Only there are functions of torch's C++ called by name.
IS_TESTED = sys.platform == "linux"


def library(name: str) -> str:
    """Return what the file of a library is called."""
    return f"lib{name}.{'dylib' if sys.platform == 'darwin' else 'so'}"
