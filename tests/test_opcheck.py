"""torch.library.opcheck on every operator, and the samples of the custom-operator tutorial."""

import layouts
import pytest
import torch

ops = torch.ops.muladd_nb
opcheck = torch.library.opcheck

LAYOUTS = {
    "contiguous": lambda *size, **options: torch.randn(*size, **options),
    "transposed": lambda *size, **options: layouts.transposed(torch.randn(*size, **options)),
    "sliced": lambda *size, **options: layouts.every_other_column(torch.randn(*size, **options)),
    "empty": lambda *size, **options: torch.randn(0, *size, **options),
    "zero_dim": lambda *size, **options: torch.randn((), **options),
}


@pytest.mark.parametrize(("layout", "requires_grad"), [
    *((layout, True) for layout in LAYOUTS),
    ("sliced", False),
    *(pytest.param(layout, False, marks=pytest.mark.slow) for layout in LAYOUTS if layout != "sliced"),
])  # fmt: skip
def test_opcheck(device, layout, requires_grad):
    def tensor():
        return LAYOUTS[layout](3, 4, device=device).detach().requires_grad_(requires_grad)

    opcheck(ops.mymuladd.default, (tensor(), tensor(), 0.5))
    opcheck(ops.mymul.default, (tensor(), tensor()))
    opcheck(ops.mymul_out.default, (tensor(), tensor(), tensor()))
    opcheck(ops.myadd_out.default, (tensor(), tensor(), tensor()))
    opcheck(ops.mymuladd_out.default, (tensor(), tensor(), 0.5, tensor()))
    c = torch.tensor(0.5, dtype=torch.float64)
    opcheck(ops.mymuladd.Tensor, (tensor(), tensor(), tensor()))
    opcheck(ops.mymuladd_out.Tensor, (tensor(), tensor(), tensor(), tensor()))
    opcheck(ops.mymuladd.tensor_c, (tensor(), tensor(), c))
    opcheck(ops.mymuladd_out.tensor_c, (tensor(), tensor(), c, tensor()))


# torch.compile refuses operators that return an argument, so their AOT dispatch cannot be checked.
WITHOUT_AOT = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_of_the_out_variants(device, requires_grad):
    a, b, out = (torch.randn(3, device=device, requires_grad=requires_grad) for _ in range(3))
    opcheck(ops.mymuladd.out, (a, b, 0.5), {"out": out}, test_utils=WITHOUT_AOT)
    opcheck(ops.mymuladd.Tensor_out, (a, b, b), {"out": out}, test_utils=WITHOUT_AOT)
    opcheck(ops.mymul.out, (a, b), {"out": out}, test_utils=WITHOUT_AOT)


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


def test_tutorial_myadd_out_with_gradients(device):
    a, b, out = (torch.randn(3, device=device, requires_grad=True) for _ in range(3))
    opcheck(ops.myadd_out.default, (a, b, out))
