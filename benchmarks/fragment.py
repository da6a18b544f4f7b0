"""Fragment the memory of this machine: within `with fragmented():` no huge page is free, and none is quick to make.

It allocates the free memory in small pages, frees every other one, and takes the huge pages that are left. To make
another huge page, the kernel must then move 256 small ones during the page fault.
python benchmarks/fragment.py COMMAND... runs a command in that state.
"""

from __future__ import annotations

import contextlib
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE = 2 << 20
LEFT = 4 << 30  # bytes that always stay available to other programs
POPULATE_WRITE = 23  # madvise, from Linux 5.14; the module mmap has no name for it


def _free() -> int:
    """Return how many bytes of free memory we may take so that `LEFT` bytes stay available."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    known = {words[0]: int(words[1]) << 10 for words in lines}
    return min(known["MemFree:"], known["MemAvailable:"] - LEFT)


def _huge_pages() -> int:
    """Return how many huge pages are free: the blocks of 2^9 and 2^10 pages in the lists of free memory."""
    lists = [line.split()[4:] for line in Path("/proc/buddyinfo").read_text().splitlines()]
    return sum(int(free[9]) + 2 * int(free[10]) for free in lists)


def _pages(size: int, kind: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(kind)
    memory.madvise(POPULATE_WRITE)
    return memory


@contextlib.contextmanager
def fragmented() -> Iterator[None]:
    Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, the kernel kills this process first
    held = []
    while (size := min(_free(), 1 << 30) // mmap.PAGESIZE * mmap.PAGESIZE) > 64 << 20:
        held.append(_pages(size, mmap.MADV_NOHUGEPAGE))
    for memory in held:
        for page in range(0, len(memory), 2 * mmap.PAGESIZE):
            memory.madvise(mmap.MADV_DONTNEED, page, mmap.PAGESIZE)
    while (ready := _huge_pages()) > 16:  # reclaimed memory adds more
        held.append(_pages(ready * HUGE, mmap.MADV_HUGEPAGE))
    try:
        yield
    finally:
        for memory in held:
            memory.close()


if __name__ == "__main__":
    with fragmented():
        sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
