"""Translations of the operators for ``torch.onnx.export``. Needs onnxscript.

ONNX has no fused multiply-add. float16 and bfloat16 are computed in float32, so their results have the same bits.
float32 and float64 results are rounded twice, after the product and after the sum. An ONNX graph cannot contain
operators that write into ``out``: export a model that uses ``mymuladd`` and ``mymul``.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    from onnxscript import ir, opset18
except ImportError as error:
    raise ImportError("muladd_nb.onnx needs onnxscript: run 'pip install onnxscript'.") from error

_onnx: Any = opset18
_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE


def _mymuladd(a: Any, b: Any, c: float) -> Any:
    constant = _onnx.Constant(value=ir.tensor(c, dtype=_compute_dtype(a)))
    return _onnx.CastLike(_onnx.Add(_product(a, b), constant), a)


def _mymuladd_tensor(a: Any, b: Any, c: Any) -> Any:
    return _onnx.CastLike(_onnx.Add(_product(a, b), _onnx.Cast(c, to=_compute_dtype(a).value)), a)


def _mymul(a: Any, b: Any) -> Any:
    return _onnx.CastLike(_product(a, b), a)


def _product(a: Any, b: Any) -> Any:
    dtype = _compute_dtype(a).value
    return _onnx.Mul(_onnx.Cast(a, to=dtype), _onnx.Cast(b, to=dtype))


def _compute_dtype(a: Any) -> Any:
    return _DOUBLE if a.dtype == _DOUBLE else _FLOAT


_ops = torch.ops.muladd_nb

translation_table = {
    _ops.mymuladd.default: _mymuladd,
    _ops.mymuladd.Tensor: _mymuladd_tensor,
    _ops.mymuladd.tensor_c: _mymuladd_tensor,
    _ops.mymul.default: _mymul,
}
"""Pass it to ``torch.onnx.export(..., dynamo=True, custom_translation_table=muladd_nb.onnx.translation_table)``."""
