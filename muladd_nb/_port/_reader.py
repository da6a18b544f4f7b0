"""Reads one C++ or CUDA file: its findings, and the edits that are mechanical."""

from __future__ import annotations

from ._declarations import Declarations
from ._includes import Includes


class Reader(Declarations, Includes):
    """Combines the classes of the other files."""

    def read(self) -> None:
        """Walk the file, then the bodies of its macros. The includes come last: they depend on all other edits."""
        self.walk(self.source.root)
        for _, parameters, body in self.source.macros:
            with self.scope(parameters):
                self.walk(body)
        self.drop_options()
        self.read_includes()
