"""The differences between Linux and macOS, in Python."""

from __future__ import annotations

import sys

# Whether the tests run on this system. Only there, the layer calls functions of torch's C++ by name.
IS_TESTED = sys.platform == "linux"


def library(name: str) -> str:
    """Return the file name of a library."""
    return f"lib{name}.{'dylib' if sys.platform == 'darwin' else 'so'}"
