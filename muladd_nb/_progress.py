"""Shows steps that take long: as a progress display on a terminal, as a line in a pipe."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

LONG = 2.0  # seconds


class Step:
    """A context that shows that it is running if it takes long. Afterwards ``took`` says how long it took."""

    def __init__(self, name: str, *, shown: bool = True) -> None:
        self.took = ""
        self._start = time.perf_counter()
        self._display = contextlib.ExitStack()
        if not shown:
            return
        if sys.stdout.isatty():
            from rich.progress import Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn(f"{name} ..."), TimeElapsedColumn()
            # Only once a second, because drawing takes time from the measured code.
            drawn = self._display.enter_context(Progress(*columns, refresh_per_second=1, transient=True))
            drawn.add_task(name, total=None)
        else:
            timer = threading.Timer(LONG, _say, [f"... {name} is running"])
            timer.daemon = True
            timer.start()
            self._display.callback(timer.cancel)

    def __enter__(self) -> Step:  # noqa: PYI034 (typing.Self came with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()
        seconds = time.perf_counter() - self._start
        self.took = f"  {seconds:.1f} s" if seconds > LONG else ""


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the main thread notices it too, and ends the program
        print(line, flush=True)
