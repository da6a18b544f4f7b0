"""Calls of every operator with random shapes, layouts, dtypes and absent tensors.

A call returns the same bits as for contiguous tensors of one shape. On the meta device it returns a result with the
same shape, strides and dtype. If an argument is wrong, both raise the same error.
"""

import os
import random

import pytest
import torch

from muladd_nb._operators import FORMS

CALLS = int(os.environ.get("MULADD_NB_CALLS", "60"))  # for each operator
FORMS = [form for form in FORMS if not form.tensor_numbers]


class Calls:
    """Random calls of a form."""

    def __init__(self, form, seed):
        self.form, self.choose = form, random.Random(seed)
        torch.manual_seed(seed)

    def elements(self, shape, dtype):
        if dtype.is_floating_point:
            return torch.randn(shape, dtype=torch.float64).to(dtype)
        return torch.randint(2 if dtype == torch.bool else 5, shape).to(dtype)

    def laid_out(self, x, *, written=False):
        """Return a tensor of these elements in any memory order, with gaps, or one with repeated elements."""
        order = self.choose.sample(range(x.dim()), x.dim())
        strides, step = [0] * x.dim(), 1
        for d in order:
            step += self.choose.choice([0, 0, 1, 3])
            strides[d], step = step, step * max(x.shape[d], 1)
        if not written and x.dim() and self.choose.random() < 0.2:
            strides[self.choose.randrange(x.dim())] = 0
        offset = self.choose.choice([0, 1, 5])
        memory = torch.zeros(offset + step + 1, dtype=x.dtype)
        y = memory.as_strided(x.shape, strides, offset)
        if 0 in strides:
            memory.copy_(self.elements(memory.shape, x.dtype))
        else:
            y.copy_(x)
        return y

    def broadcast(self, shape):
        """Return a shape that broadcasts to this one."""
        kept = shape[self.choose.choice([0, 0, self.choose.randint(0, len(shape))]) :]
        return tuple(1 if self.choose.random() < 0.2 else size for size in kept)

    def arguments(self):
        """Return the arguments of a call, of which one may be wrong, and the tensors that it writes to."""
        form, dtype = self.form, self.choose.choice(self.form.dtypes)
        shape = tuple(self.choose.choice([1, 2, 3, 7, 65]) for _ in range(self.choose.randint(0, 4)))
        wrong = self.choose.choice([*form.inputs, *[None] * 6])
        args = []
        for name, kind in form.kinds.items():
            written = name in form.writes
            if kind in ("Tensor", "Tensor?"):
                of = self.broadcast(shape) if form.broadcasts and not written else shape
                own = form.own.get(name, dtype)
                if name == wrong:
                    own, of = self.choose.choice([(own, (*of, 4)), (torch.complex64, of), (own, (0,))])
                absent = kind == "Tensor?" and self.choose.random() < 0.4
                args.append(None if absent else self.laid_out(self.elements(of, own), written=written))
            else:
                args.append({"float": self.choose.uniform(0.5, 2), "int": self.choose.randint(1, 4)}.get(kind, True))
        if form.kind not in ("writing", "out"):
            return args, None
        return args, self.laid_out(self.elements(shape, form.result_dtypes(args)[0]), written=True)


def run(form, args, out):
    """Return the results of a call, or the tensors that it has written, as a list."""
    given = args if out is None else [*args, out]
    names = [x.name for x in form.op._schema.arguments if x.kwarg_only]
    by_place = len(given) - len(names)
    result = form.op(*given[:by_place], **dict(zip(names, given[by_place:], strict=True)))
    if form.kind == "updating":
        return [args[place] for place in form.writes.values()]
    return [out] if out is not None else list(result) if isinstance(result, tuple) else [result]


def tried(form, args, out):
    try:
        return run(form, args, out), ""
    except RuntimeError as error:
        return [], str(error).splitlines()[0]


def copied(x, of):
    return of(x) if isinstance(x, torch.Tensor) else x


def to_meta(x):
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def contiguous(x, shape):
    return x.expand(shape).clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.op.name())
def test_any_call(form):
    calls, right = Calls(form, 1), 0
    for _ in range(CALLS):
        args, out = calls.arguments()
        meta, on_meta = tried(form, [copied(x, to_meta) for x in args], copied(out, to_meta))
        if not on_meta:
            right += 1
            shape = torch.broadcast_shapes(*(x.shape for x in args if isinstance(x, torch.Tensor)))
            expanded = [copied(x, lambda x: contiguous(x, shape)) for x in args]
            for place in [form.integers[x] for x in form.integers if x == "needs__"]:
                expanded[place] = -1  # asks for all gradients
            alike = run(form, expanded, copied(out, torch.empty_like))
        results, sentence = tried(form, args, out)
        assert sentence == on_meta
        assert not sentence or sentence.startswith(f"{form.name}: "), sentence
        gradients = form.gradients_of or [""] * len(results)
        for x, result, expected, fake in zip(gradients, results, alike, meta, strict=True) if results else ():
            if x and x not in form.wanted(args):
                assert result.shape == (0,)
            elif form.gradients_of and result.shape != expected.shape:  # the kernel sums in another order
                summed = expected.double().sum_to_size(result.shape).to(result.dtype)
                eps = torch.finfo(result.dtype).eps
                atol = 4 * eps * float(expected.double().abs().sum())
                torch.testing.assert_close(result, summed, rtol=eps, atol=atol, equal_nan=True)
            else:
                torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
            assert (fake.shape, fake.dtype) == (result.shape, result.dtype)
            assert fake.stride() == result.stride() or not result.numel()
    assert right > CALLS // 4
