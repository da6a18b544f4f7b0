"""Contiguous tensors of 2^10 to 2^26 elements: a fresh result, and `out=`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from harness import DTYPES, C, Sides, constant, device, eager, mul_add, peers, run

import muladd_nb


def _triton() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(a, b, out, c, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = i < n
        x, y = tl.load(a + i, mask=inside), tl.load(b + i, mask=inside)
        if x.dtype != tl.float64:
            x, y = x.to(tl.float32), y.to(tl.float32)
        value = x * y + c
        tl.store(out + i, value.to(out.dtype.element_ty), mask=inside)

    def muladd(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        kernel[(triton.cdiv(out.numel(), 2048),)](a, b, out, C, out.numel(), BLOCK=2048)

    return muladd


def cases(quick: bool) -> Iterator[tuple[dict[str, Any], Sides]]:
    on_gpu = device() == "cuda"
    peer = None if on_gpu else peers()
    triton_muladd = _triton() if on_gpu else None
    compiled = torch.compile(eager, dynamic=True)
    largest = 28 if on_gpu else 26
    for name, dtype in DTYPES.items():
        for exponent in (14, 22) if quick else range(10, largest + 1, 2):
            a, b, out = (torch.randn(1 << exponent, device=device()).to(dtype) for _ in range(3))
            c = constant(a)
            case = {"dtype": name, "numel": 1 << exponent}
            fresh: Sides = {
                "mymuladd": partial(muladd_nb.mymuladd, a, b, C),
                "eager": partial(eager, a, b),
                "mul + add": partial(mul_add, a, b),
                "addcmul": partial(torch.addcmul, c, a, b),
                "compile": partial(compiled, a, b),
            }
            if peer is not None and dtype == torch.float32:
                fresh["naive kernel"] = partial(peer.naive, a, b, C)
            yield {"result": "fresh", **case}, fresh
            into: Sides = {
                "mymuladd": partial(muladd_nb.mymuladd, a, b, C, out=out),
                "addcmul": partial(torch.addcmul, c, a, b, out=out),
            }
            if peer is not None:
                into["triad"] = partial(peer.triad, a, b, out)
                into["streaming triad"] = partial(peer.streaming_triad, a, b, out)
            if triton_muladd is not None:
                into["Triton"] = partial(triton_muladd, a, b, out)
                # A copy moves two arrays, and we move three, so our limit is the time of 1.5 copies.
                into["copy"] = partial(out.copy_, a)
            yield {"result": "out=", **case}, into


if __name__ == "__main__":
    run("throughput", cases)
