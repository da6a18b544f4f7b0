"""The public functions: what ``torch.ops.muladd_nb`` offers, with checked arguments and ``out=``."""

from __future__ import annotations

from torch import Tensor

from ._layer.public import public
from ._operators import FORMS

__all__ = ["myadd_out", "mymul", "mymuladd"]


@public(FORMS)
def mymuladd(a: Tensor, b: Tensor, c: float | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``a * b + c``, rounded once.

    float32 and float64 results are the correctly rounded fused multiply-add, bit for bit the same on every
    device, in every layout and number of threads. float16 and bfloat16 are computed in float32 and
    rounded once more, to nearest even.

    Parameters
    ----------
    a, b
        Tensors of one shape, one dtype (float16, bfloat16, float32 or float64) and one device. Any strides are read in
        place.
    c
        A number, which is rounded to the dtype that is computed in, and has no gradient; or a tensor of that dtype and
        device, which has one. Three tensors are broadcast together, as those of ``torch.addcmul`` are.
    out
        Where to write the result: a tensor of its shape, dtype and device, which may be an input itself. It is never
        resized, and no gradient is recorded through it.

    Returns
    -------
    Tensor
        A new tensor with the strides that ``torch.empty_like`` gives the first input of its shape (contiguous, where
        none has it), or ``out``.

    Raises
    ------
    TypeError
        If ``a``, ``b`` or ``out`` is no tensor, or ``c`` neither a real number nor a tensor.
    OverflowError
        If ``c`` is an int that no float is near to.
    RuntimeError
        If shapes differ, or those of three tensors do not broadcast; if dtypes or devices differ; if ``out`` overlaps
        itself or part of an input; if ``out`` is given and an argument requires grad.

    Examples
    --------
    >>> a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> b = torch.tensor([4.0, 5.0, 6.0])
    >>> muladd_nb.mymuladd(a, b, 0.5)
    tensor([ 4.5000, 10.5000, 18.5000], grad_fn=<MulBackward0>)
    >>> with torch.no_grad():
    ...     muladd_nb.mymuladd(a, b, 0.5, out=b)
    tensor([ 4.5000, 10.5000, 18.5000])

    A feature-wise modulation, with a ``beta`` that is learned:

    >>> x, gamma, beta = torch.ones(2, 3), torch.full((3,), 2.0), torch.zeros(3, requires_grad=True)
    >>> y = muladd_nb.mymuladd(x, gamma, beta)
    >>> y.sum().backward()
    >>> beta.grad
    tensor([2., 2., 2.])
    """


@public(FORMS)
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


@public(FORMS)
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
