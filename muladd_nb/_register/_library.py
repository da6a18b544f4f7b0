"""The handle under which Python kernels are registered; they live as long as it does."""

import torch

library = torch.library.Library("muladd_nb", "FRAGMENT")

_ops = torch.ops.muladd_nb

# Every operator, for what is registered alike for all.
operators = (
    _ops.mymuladd.default,
    _ops.mymul.default,
    _ops.myadd_out.default,
    _ops.mymuladd_out.default,
    _ops.mymuladd.tensor_c,
    _ops.mymuladd_out.tensor_c,
    _ops.mymuladd.out,
    _ops.mymul.out,
)
