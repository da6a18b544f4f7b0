"""torch.library.opcheck on every operator, and the samples of the custom-operator tutorial."""

import layouts
import pytest
import torch
from calls import OPERATORS

ops = torch.ops.muladd_nb
opcheck = torch.library.opcheck

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
        opcheck(call.form.op, args, kwargs, **({"test_utils": WITHOUT_AOT} if call.returns_out else {}))


def tutorial_samples(device, requires_grad):
    """The sample inputs of PyTorch's tutorial on custom C++ and CUDA operators."""

    def differentiable(*size):
        return torch.randn(size, device=device, requires_grad=requires_grad)

    def constant(*size):
        return torch.randn(size, device=device)

    return [
        (differentiable(3), differentiable(3), 1),
        (differentiable(20), differentiable(20), 3.14),
        (differentiable(20), constant(20), -123),
        (constant(2, 3), differentiable(2, 3), -0.3),
    ]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_tutorial_samples(device, requires_grad):
    for a, b, c in tutorial_samples(device, requires_grad):
        result, expected = ops.mymuladd(a, b, c), a * b + c
        torch.testing.assert_close(result, expected)
        opcheck(ops.mymuladd.default, (a, b, c))
        opcheck(ops.mymul.default, (a, b))
        if requires_grad:
            needs = [x for x in (a, b) if x.requires_grad]
            grad = torch.randn_like(result)
            torch.testing.assert_close(
                torch.autograd.grad(result, needs, grad), torch.autograd.grad(expected, needs, grad)
            )
