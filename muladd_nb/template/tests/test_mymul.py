"""The promises of ``mymul``, seen from the outside."""

import pytest
import torch

import my_ops

CUDA = torch.cuda.is_available() and torch._C._dispatch_has_kernel_for_dispatch_key("my_ops::mymul", "CUDA")
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no CUDA device here, or no kernel for one")),
]
pytestmark = pytest.mark.parametrize("device", DEVICES)


def pair(device, *shape, **options):
    return [torch.randn(shape, device=device, dtype=torch.float64, **options) for _ in range(2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (100_003,)])
def test_values(device, dtype, shape):
    a, b = (x.to(dtype) for x in pair(device, *shape))
    assert torch.equal(my_ops.mymul(a, b), a * b)


def test_inputs_need_not_be_contiguous(device):
    a, b = pair(device, 3, 3)
    assert torch.equal(my_ops.mymul(a.t(), b[:1].expand(3, 3)), a.t() * b[:1])


def test_bad_input_is_refused(device):
    a, b = pair(device, 3)
    for bad, sentence in (
        (b.float(), "mymul: a and b must have the same dtype"),
        (b[:2], "mymul: a and b must have the same shape"),
        (b.to("meta"), "mymul: a and b must be on the same device"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            my_ops.mymul(a, bad)
    with pytest.raises(RuntimeError, match="mymul: a must be float32 or float64"):
        my_ops.mymul(a.long(), b.long())


@pytest.mark.parametrize("requires_grad", [False, True])
def test_registrations(device, requires_grad):
    """Schema, fake kernel, autograd registration and compilation agree with what the kernel does."""
    for shape in ((3, 4), (4, 3)):
        a, b = pair(device, *shape)
        a, b = (x.t().requires_grad_(requires_grad) for x in (a, b))
        torch.library.opcheck(torch.ops.my_ops.mymul.default, (a, b))


def test_derivatives(device):
    a, b = pair(device, 3, 4, requires_grad=True)
    assert torch.autograd.gradcheck(my_ops.mymul, (a, b))
    assert torch.autograd.gradgradcheck(my_ops.mymul, (a, b))


@pytest.mark.parametrize("in_dims", [(0, 0), (1, 0), (None, 0), (1, None)])
def test_vmap(device, in_dims):
    a, b = (x if dim is not None else x[0] for x, dim in zip(pair(device, 3, 3), in_dims, strict=True))
    assert torch.equal(torch.vmap(my_ops.mymul, in_dims)(a, b), torch.vmap(torch.mul, in_dims)(a, b))


def test_compiled(device):
    a, b = pair(device, 3, 4)
    compiled = torch.compile(lambda a, b: my_ops.mymul(a.sin(), b).cos(), fullgraph=True)
    torch.testing.assert_close(compiled(a, b), (a.sin() * b).cos())
