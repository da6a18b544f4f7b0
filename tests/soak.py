"""Faults that need time or stress: python tests/soak.py [--seconds N] [NAME...] runs each test for N seconds."""

import argparse
import contextlib
import inspect
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from record import record

import muladd_nb

ops = torch.ops.muladd_nb


def every_kind(a, b, out):
    """Calls of every kind, also refused ones, except forward mode, which torch allows in one thread at a time."""
    ops.mymul(a.detach(), b.detach())
    muladd_nb.mymuladd(a.detach(), b.detach(), 0.5)
    muladd_nb.mymuladd(a, b[:1], b).sum().backward()
    a.grad = b.grad = None
    torch.func.vmap(torch.func.grad(lambda a, b: muladd_nb.mymuladd(a, b, 0.5).sum()))(a.detach(), b.detach())
    with torch.no_grad(), torch.autocast("cpu"):
        muladd_nb.mymuladd(a, b, 0.5, out=out)
    for wrong in (b[:1], b.detach().double(), None):
        with contextlib.suppress(RuntimeError):
            ops.mymul(a, wrong)
            raise AssertionError("taken, though it is wrong")


def leaks(seconds):
    """Calls of every kind, also refused ones, do not make the process grow."""
    a, b = (torch.randn(64, 65)[:, :64].requires_grad_() for _ in range(2))
    out = torch.empty(64, 64)

    def once():
        every_kind(a, b, out)
        torch.func.jvp(lambda a: muladd_nb.mymul(a, a), (a.detach(),), (b.detach(),))

    for _ in range(min(2000, 200 + int(100 * seconds))):  # until all objects that are made once exist
        once()
    before, count, until = memory(), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        once()
        count += 10
    grown = memory() - before
    assert grown < (1 << 18) + 512 * count, f"{grown:,} bytes more after {count:,} calls"
    return f"{count:,} calls, {max(grown, 0) >> 10:,} KiB more"


def memory():
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize()


def threads(seconds):
    """Several threads with small stacks share their inputs and make calls of every kind. All get the same bits."""
    count = min(8, 2 * (os.cpu_count() or 1))
    # Small, large enough for several threads, and so large that results are written past the cache.
    tensors = [[torch.randn(n, 7).t(), torch.randn(7, n)] for n in (3, 20_000, 1_000_000)]
    expected = [a * b + 0.5 for a, b in tensors]
    begin, until = threading.Barrier(count), time.monotonic() + seconds

    def work():
        outs = [torch.empty_like(a) for a, _ in tensors]
        own = [torch.randn(4, 5).requires_grad_() for _ in range(2)]
        done = 0
        begin.wait()
        while not done or time.monotonic() < until:
            every_kind(*own, torch.empty(4, 5))
            for (a, b), out, right in zip(tensors, outs, expected, strict=True):
                muladd_nb.mymuladd(a, b, 0.5, out=out)
                assert torch.allclose(out, right, atol=1e-5)
                x = a.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(muladd_nb.mymul(x, b).sum(), x)
                assert torch.equal(gradient, b)
            done += 9 + 3 * len(tensors)
        return done

    before = threading.stack_size(512 * 1024)  # as macOS gives to threads that C++ starts
    try:
        with ThreadPoolExecutor(count) as pool:
            done = sum(running.result() for running in [pool.submit(work) for _ in range(count)])
    finally:
        threading.stack_size(before)
    return f"{done:,} calls in {count} threads"


def interrupts(seconds):
    """After a signal in the middle of a call, the call ends, Python raises, and the next call is right."""
    a, b = torch.randn(2, 500_000)
    out, right = torch.empty_like(a), torch.addcmul(torch.full_like(a, 0.5), a, b)
    interrupted, calls, until = 0, 0, time.monotonic() + seconds

    def interrupt(number, frame):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while time.monotonic() < until:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
                while True:
                    calls += 1
                    muladd_nb.mymuladd(a, b, 0.5, out=out)
            except InterruptedError:
                interrupted += 1
            assert torch.allclose(muladd_nb.mymuladd(a, b, 0.5), right, atol=1e-5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return f"{interrupted:,} of {calls:,} calls interrupted"


def forks(seconds):
    """A child that is forked after the parent has used its threads computes with one, as DataLoader's workers do."""
    code = f"""
import os, time, torch, muladd_nb
a = torch.randn(1 << 17, requires_grad=True)
def computed():
    result = muladd_nb.mymuladd(a, a, 0.5)
    return torch.stack([result, *torch.autograd.grad(result.sum(), a)])
right, count, until = computed(), 0, time.monotonic() + {seconds}
while not count or time.monotonic() < until:
    if (child := os.fork()) == 0:
        torch.set_num_threads(1)
        os._exit(not torch.equal(computed(), right))
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(computed(), right) and torch.equal(right[1], 2 * a)
    count += 1
print(f"{{count:,}} children")
"""
    return alone(code, seconds)


def allocations(seconds):
    """If memory runs out, at any size, there is an error message, and the process goes on."""
    code = f"""
import random, resource, time, torch, muladd_nb
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
refused, right, until = 0, 0, time.monotonic() + {seconds}
a = torch.ones(1)
while not refused or time.monotonic() < until:
    n = int(2 ** random.uniform(10, 45))
    try:
        result = muladd_nb.mymuladd(a.expand(n), a.expand(n), 0.5)
        assert result[-1] == 1.5
        right += 1
    except RuntimeError as error:
        assert str(error).startswith("mymuladd: could not allocate the result, "), error
        refused += 1
print(f"{{refused:,}} refused, {{right:,}} right")
"""
    return alone(code, seconds)


def alone(code, seconds):
    run = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=seconds + 120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def sizes(seconds):
    """With more than 2^31 elements, the last one is in its place. Needs 12 GiB, and says so if there is less."""
    with open("/proc/meminfo") as file:  # noqa: PTH123
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    if free < 12 << 20:
        return "not run: needs 12 GiB of free memory"
    n, checked, until = (1 << 31) + 5, 0, time.monotonic() + seconds
    b = torch.zeros(n, dtype=torch.bfloat16)
    while not checked or time.monotonic() < until:
        place = random.choice([n - 1, 1 << 31, (1 << 31) - 1, random.randrange(n)])
        b[place] = 2
        out = muladd_nb.mymuladd(torch.tensor([1.5], dtype=torch.bfloat16).expand(n), b, 1.0)
        assert out[place] == 4
        assert out[place - 1] == 1
        b[place] = 0
        checked += 1
        del out
    return f"{checked:,} tensor{'s' * (checked > 1)} of {n:,} elements"


SOAKS = {soak.__name__: soak for soak in (leaks, threads, interrupts, forks, allocations, sizes)}


def main():
    parser = argparse.ArgumentParser("tests/soak.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(SOAKS)}; by default all")
    parser.add_argument("--seconds", type=float, default=60, help="the time of each test")
    parser.add_argument("--record", action="store_true", help="put the figures into docs/reliability.csv")
    arguments = parser.parse_args()
    for name in arguments.names or SOAKS:
        result = SOAKS[name](arguments.seconds)
        print(f"{name}: {result}", flush=True)
        if arguments.record:
            command = f"nox -s soak -- {name} --seconds {arguments.seconds:.0f}"
            record(f"soak: {name}", inspect.getdoc(SOAKS[name]), result, command)


if __name__ == "__main__":
    main()
