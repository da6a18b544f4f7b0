"""Reads one C++ or CUDA file: its findings, and the edits that are mechanical."""

from __future__ import annotations

from ._declarations import Declarations
from ._includes import Includes


class Reader(Declarations, Includes):
    """All the layers together."""

    def read(self) -> None:
        """Walk the file, then the bodies of its macros; the includes come last, when all that is needed is known."""
        self.walk(self.source.root)
        for _, parameters, body in self.source.macros:
            with self.scope(parameters):
                self.walk(body)
        self.drop_options()
        self.read_includes()
