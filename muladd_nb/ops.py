"""The public functions. They check their arguments, take ``out=``, and call ``torch.ops.muladd_nb``."""

from __future__ import annotations

from torch import Tensor

from ._layer.public import public
from ._operators import FORMS

__all__ = ["myadd_out", "mymul", "mymuladd"]


@public(FORMS)
def mymuladd(a: Tensor, b: Tensor, c: float | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``a * b + c``, rounded once.

    float32 and float64 results are the correctly rounded fused multiply-add, with the same bits for every instruction
    set, layout and number of threads. float16 and bfloat16 are computed in float32 and rounded once more, to nearest
    even.

    Parameters
    ----------
    a, b
        Tensors with the same dtype (float16, bfloat16, float32 or float64), on the same device, with any strides. If
        ``c`` is a number, they must have the same shape.
    c
        A number, which is rounded to the dtype of the computation and has no gradient; or a tensor with the dtype and
        device of ``a``, which may have a gradient. Then all three tensors are broadcast together, as in
        ``torch.addcmul``.
    out
        A tensor for the result, with its shape, dtype and device. It may be an input itself. It is never resized, and
        no gradient passes through it.

    Returns
    -------
    Tensor
        ``out``, or a new tensor with the strides that ``torch.empty_like`` gives the first input of the same shape. If
        no input has that shape, the result is contiguous.

    Raises
    ------
    TypeError
        If ``a``, ``b`` or ``out`` is not a tensor, or ``c`` is neither a real number nor a tensor.
    OverflowError
        If ``c`` is an int that is too large for a float.
    RuntimeError
        If ``a`` or ``b`` is None; if shapes differ, or those of three tensors do not broadcast; if dtypes or devices
        differ; if ``out`` overlaps itself or part of an input; if ``out`` is given and an argument requires grad.

    Examples
    --------
    >>> a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> b = torch.tensor([4.0, 5.0, 6.0])
    >>> muladd_nb.mymuladd(a, b, 0.5)
    tensor([ 4.5000, 10.5000, 18.5000], grad_fn=<MulBackward0>)
    >>> with torch.no_grad():
    ...     muladd_nb.mymuladd(a, b, 0.5, out=b)
    tensor([ 4.5000, 10.5000, 18.5000])

    A scale and a shift for each column:

    >>> x, gamma, beta = torch.ones(2, 3), torch.full((3,), 2.0), torch.zeros(3, requires_grad=True)
    >>> y = muladd_nb.mymuladd(x, gamma, beta)
    >>> y.sum().backward()
    >>> beta.grad
    tensor([2., 2., 2.])
    """


@public(FORMS)
def mymul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``a * b``.

    Parameters
    ----------
    a, b
        Tensors with the same shape, dtype (float16, bfloat16, float32 or float64) and device, with any strides.
    out
        A tensor for the result, with the same shape, dtype and device. It may be ``a`` or ``b`` itself. It is never
        resized, and no gradient passes through it.

    Returns
    -------
    Tensor
        A new tensor with the strides of ``torch.empty_like(a)``, or ``out``.

    Raises
    ------
    TypeError
        If an argument is not a tensor.
    RuntimeError
        If ``a`` or ``b`` is None; if shapes, dtypes or devices differ; if ``out`` overlaps itself or part of an input;
        if ``out`` is given and an argument requires grad.

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
        Tensors with the same shape, dtype (float16, bfloat16, float32 or float64) and device, with any strides.
    out
        A tensor with the same shape, dtype and device. It may be ``a`` or ``b`` itself. It is never resized,
        and no gradient passes through it.

    Raises
    ------
    TypeError
        If an argument is not a tensor.
    RuntimeError
        If an argument is None; if shapes, dtypes or devices differ; if ``out`` overlaps itself or part of an input; if
        an argument requires grad.

    Examples
    --------
    >>> out = torch.empty(2)
    >>> muladd_nb.myadd_out(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0]), out)
    >>> out
    tensor([ 4., -2.])
    """
