"""torch.library.opcheck on every operator."""

import layouts
import pytest
import torch
from calls import OPERATORS

LAYOUTS = {
    "contiguous": lambda *size, **options: torch.randn(*size, **options),
    "transposed": lambda *size, **options: layouts.transposed(torch.randn(*size, **options)),
    "sliced": lambda *size, **options: layouts.every_other_column(torch.randn(*size, **options)),
    "empty": lambda *size, **options: torch.randn(0, *size, **options),
    "zero_dim": lambda *size, **options: torch.randn((), **options),
}


# torch.compile refuses operators that return an argument, so their AOT dispatch cannot be checked.
WITHOUT_AOT = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize(("layout", "requires_grad"), [
    *((layout, True) for layout in LAYOUTS),
    ("sliced", False),
    *(pytest.param(layout, False, marks=pytest.mark.slow) for layout in LAYOUTS if layout != "sliced"),
])  # fmt: skip
def test_opcheck(device, layout, requires_grad):
    def tensor():
        return LAYOUTS[layout](3, 4, device=device).detach().requires_grad_(requires_grad)

    for call in OPERATORS:
        args, kwargs = call.arguments(*(tensor() for _ in call.names), out=tensor())
        torch.library.opcheck(call.form.op, args, kwargs, **({"test_utils": WITHOUT_AOT} if call.returns_out else {}))
