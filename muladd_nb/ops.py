"""The public functions: what ``torch.ops.muladd_nb`` offers, with checked arguments and ``out=``."""

from __future__ import annotations

from numbers import Complex, Real
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling

from . import _compiled
from . import _torch_private as private
from ._register.public import refuse_gradients

__all__ = ["myadd_out", "mymul", "mymuladd"]

# What the short way needs, by names of their own: a look-up in a module takes time too.
_BelowAutograd = private.BelowAutograd
_nothing_to_record = private.nothing_to_record
_NUMBERS = (float, int)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)

_ops = torch.ops.muladd_nb
_mymuladd = _ops.mymuladd.default
_mymul = _ops.mymul.default
_myadd_out = _ops.myadd_out.default
_mymuladd_out = _ops.mymuladd_out.default
_mymuladd_tensor = _ops.mymuladd.Tensor
_mymuladd_out_tensor = _ops.mymuladd_out.Tensor
_mymul_dot_out = _ops.mymul.out
_mymuladd_entry = private.entry_point(_mymuladd)
_mymuladd_tensor_entry = private.entry_point(_mymuladd_tensor)
_mymuladd_out_tensor_entry = private.entry_point(_mymuladd_out_tensor)
_mymul_entry = private.entry_point(_mymul)
_myadd_out_entry = private.entry_point(_myadd_out)
_mymuladd_out_entry = private.entry_point(_mymuladd_out)


def mymuladd(a: Tensor, b: Tensor, c: float | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``a * b + c``, rounded once.

    float32 and float64 results are the correctly rounded fused multiply-add, bit for bit the same on every
    device, in every layout and number of threads. float16 and bfloat16 are computed in float32 and
    rounded once more, to nearest even.

    Parameters
    ----------
    a, b
        Tensors of one shape (nothing is broadcast), one dtype (float16, bfloat16, float32 or float64) and one
        device. Any strides are read in place.
    c
        A number, which is rounded to the dtype that is computed in, and has no gradient; or a tensor like ``a`` and
        ``b``, which has one.
    out
        Where to write the result: a tensor of the same shape, dtype and device, which may be an input itself. It is
        never resized, and no gradient is recorded through it.

    Returns
    -------
    Tensor
        A new tensor with the strides of ``torch.empty_like(a)``, or ``out``.

    Raises
    ------
    TypeError
        If ``c`` is a complex number.
    RuntimeError
        If shapes, dtypes or devices differ; if ``out`` overlaps itself or part of an input; if ``out`` is given
        and an argument requires grad.

    Examples
    --------
    >>> a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> b = torch.tensor([4.0, 5.0, 6.0])
    >>> muladd_nb.mymuladd(a, b, 0.5)
    tensor([ 4.5000, 10.5000, 18.5000], grad_fn=<MyMulAddBackward>)
    >>> with torch.no_grad():
    ...     muladd_nb.mymuladd(a, b, 0.5, out=b)
    tensor([ 4.5000, 10.5000, 18.5000])

    A feature-wise modulation, with a ``beta`` that is learned:

    >>> x, gamma, beta = torch.ones(2, 3), torch.full((3,), 2.0), torch.zeros(3, requires_grad=True)
    >>> y = muladd_nb.mymuladd(x, gamma.expand_as(x), beta.expand_as(x))
    >>> y.sum().backward()
    >>> beta.grad
    tensor([2., 2., 2.])
    """
    number = type(c) in _NUMBERS
    if _short(a, b) and (number or _plain(c)) and (out is None or _plain(out)):
        with _BelowAutograd():
            if out is None:
                return (_mymuladd_entry if number else _mymuladd_tensor_entry)(a, b, c)
            (_mymuladd_out_entry if number else _mymuladd_out_tensor_entry)(a, b, c, out)
            return out
    if not number and isinstance(c, Complex) and not isinstance(c, Real):
        raise TypeError(f"mymuladd: c must be a real number or a tensor, got {c!r}")
    compiling = is_compiling() or (not number and isinstance(c, _SYMBOLIC))
    of_tensors = not number and isinstance(c, Tensor)
    if out is None:
        if compiling:
            return _compiled.mymuladd(a, b, c)
        return (_mymuladd_tensor if of_tensors else _mymuladd)(a, b, c)
    refuse_gradients("mymuladd", a=a, b=b, out=out)
    if of_tensors:
        refuse_gradients("mymuladd", c=c)
    if compiling:
        _compiled.mymuladd_out(a, b, c, out)
    else:
        (_mymuladd_out_tensor if of_tensors else _mymuladd_out)(a, b, c, out)
    return out


def mymul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``a * b``, which the gradients of :func:`mymuladd` are made of.

    Parameters
    ----------
    a, b
        Tensors of one shape (nothing is broadcast), one dtype (float16, bfloat16, float32 or float64) and one
        device. Any strides are read in place.
    out
        Where to write the result: a tensor of the same shape, dtype and device, which may be ``a`` or ``b``
        itself. It is never resized, and no gradient is recorded through it.

    Returns
    -------
    Tensor
        A new tensor with the strides of ``torch.empty_like(a)``, or ``out``.

    Raises
    ------
    RuntimeError
        If shapes, dtypes or devices differ; if ``out`` overlaps itself or part of an input; if ``out`` is given
        and an argument requires grad.

    Examples
    --------
    >>> muladd_nb.mymul(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0]))
    tensor([ 3., -8.])
    """
    if out is None:
        if _short(a, b):
            with _BelowAutograd():
                return _mymul_entry(a, b)
        return _compiled.mymul(a, b) if is_compiling() else _mymul(a, b)
    refuse_gradients("mymul", a=a, b=b, out=out)
    if is_compiling():
        _compiled.mymul_out(a, b, out)
    else:
        _mymul_dot_out(a, b, out=out)
    return out


def myadd_out(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write ``a + b`` to ``out``.

    Parameters
    ----------
    a, b
        Tensors of one shape (nothing is broadcast), one dtype (float16, bfloat16, float32 or float64) and one
        device. Any strides are read in place.
    out
        A tensor of the same shape, dtype and device, which may be ``a`` or ``b`` itself. It is never resized,
        and no gradient is recorded through it.

    Raises
    ------
    RuntimeError
        If shapes, dtypes or devices differ; if ``out`` overlaps itself or part of an input; if an argument
        requires grad.

    Examples
    --------
    >>> out = torch.empty(2)
    >>> muladd_nb.myadd_out(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0]), out)
    >>> out
    tensor([ 4., -2.])
    """
    if _short(a, b) and _plain(out):
        with _BelowAutograd():
            _myadd_out_entry(a, b, out)
    else:
        refuse_gradients("myadd_out", a=a, b=b, out=out)
        (_compiled.myadd_out if is_compiling() else _myadd_out)(a, b, out)


def _short(a: Tensor, b: Tensor) -> bool:
    # The Autograd kernels are in Python: without them a small call is twice as fast (benchmarks/per_call.py).
    # A subclass, or no tensor at all, is left to the dispatcher, and a program being compiled to what is below.
    return type(a) is Tensor and type(b) is Tensor and not is_dynamo_compiling() and _nothing_to_record(a, b)


def _plain(x: Any) -> bool:
    return type(x) is Tensor and not x.requires_grad
