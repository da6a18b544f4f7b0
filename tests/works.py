"""A list of calls for each capability, for a process in which torch lacks some private names."""

import re
from functools import partial

import pytest
import torch
from lacking import import_without
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor

LACKS = r"which torch \S+ lacks; use another torch, or a newer muladd_nb$"


def tensors(*shape, **options):
    return [torch.randn(*shape, dtype=torch.float64, **options) for _ in range(3)]


def of_each(check, *, slow):
    """Return calls of `check` with each operator, or only each public function, and its formula."""
    from calls import RETURNING  # calls.py imports the package

    def checked(call):
        check(*(lambda *x, f=f: f(*x) * x[2] for f in (call, call.expected)))

    return [partial(checked, call) for call in RETURNING if slow or call.is_public]


def values(f, g):
    a, b, c = (x.t() for x in tensors(3, 2))
    assert_close(f(a, b, c), g(a, b, c))
    with torch.no_grad():
        assert_close(f(a, b, c), g(a, b, c))
    with torch.inference_mode():
        assert_close(f(a, b, c), g(a, b, c))
    assert_close(f(torch._neg_view(a), b, c), g(-a, b, c))


def writes():
    from calls import WRITES

    import muladd_nb
    from muladd_nb._layer import torch_private as private

    a, b, out = tensors(3)
    for call in WRITES:
        version = out._version
        call(a, b, out=out)
        assert_close(out, call.expected(a, b))
        # If torch cannot tell whether the kernel has counted its write, the write may be counted twice.
        assert out._version - version in ({1} if private.version(out) is not None else {1, 2})
    with pytest.raises(RuntimeError, match="no gradient is recorded through out"):
        muladd_nb.mymul(a.requires_grad_(), b, out=out)
    with pytest.warns(UserWarning, match="no gradient is recorded through out"):
        torch.ops.muladd_nb.myadd_out(a, b, out)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="tangents do not pass through out"):
        muladd_nb.myadd_out(forward_ad.make_dual(b, b), b, out)


def wrapper_subclasses():
    import muladd_nb

    x = TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_() * 2
    loss = (x * x).sum()
    with torch.no_grad():
        muladd_nb.myadd_out(torch.ones(3), torch.ones(3), x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def reverse(f, g):
    import muladd_nb

    x = tensors(3, requires_grad=True)
    assert_close(torch.autograd.grad(f(*x).sum(), x), torch.autograd.grad(g(*x).sum(), x))
    assert torch.autograd.gradgradcheck(f, x)
    with torch.inference_mode(), torch.enable_grad():
        assert not muladd_nb.mymuladd(*x).requires_grad


def batches(f, g):
    x = tensors(2, 3, requires_grad=True)
    assert_close(vmap(f)(*x), vmap(g)(*x))
    assert_close(*(torch.autograd.grad(vmap(h)(*x).sum(), x) for h in (f, g)))


def autocast():
    import muladd_nb

    a, b, _ = (x.float() for x in tensors(3))
    with torch.autocast("cpu"):
        assert_close(muladd_nb.mymul(a, b), a.bfloat16() * b.bfloat16())


def under(transform):
    def check(f, g):
        x = tensors(3)
        assert_close(transform(f)(*x), transform(g)(*x))

    return check


TRANSFORMS = [
    lambda f: grad(lambda *x: f(*x).sum(), (0, 1, 2)),
    lambda f: jacrev(f, (0, 1, 2)),
    lambda f: lambda *x: jvp(f, x, x),
    lambda f: jacfwd(jacfwd(f)),
    lambda f: hessian(f, (0, 1)),
    lambda f: vmap(grad(f, (0, 1, 2))),
    lambda f: grad(lambda *x: jvp(f, x, x)[1].sum()),
]


def duals(f, g):
    x, tangents = tensors(3), tensors(3)
    for requires_grad in (False, True):
        with forward_ad.dual_level():
            dual = [forward_ad.make_dual(p.clone().requires_grad_(requires_grad), t) for p, t in zip(x, tangents)]
            ours, atens = (forward_ad.unpack_dual(h(*dual)) for h in (f, g))
            assert_close(tuple(ours), tuple(atens))


def jagged_tensors():
    offsets = torch.tensor([0, 2, 5])
    return [torch.nested.nested_tensor_from_jagged(x, offsets) for x in tensors(5, 2)]


def jagged(f, g):
    x = [x.requires_grad_() for x in jagged_tensors()]
    results = []
    for h in (f, g):
        y = h(*x)
        results.append([y.detach().values(), *(x.values() for x in torch.autograd.grad(y.sum(), x))])
    assert_close(*results)


def jagged_write():
    import muladd_nb

    a, b, out = jagged_tensors()
    muladd_nb.mymul(a, b, out=out)
    assert_close(out.values(), a.values() * b.values())


def compiled_lengths():
    import muladd_nb

    offsets, lengths = torch.tensor([0, 3, 6]), torch.tensor([3, 1])
    a, b, _ = (torch.nested.nested_tensor_from_jagged(x, offsets, lengths=lengths) for x in tensors(6, 2))
    try:
        y = torch.compile(muladd_nb.mymul, fullgraph=True, backend="aot_eager")(a, b)
    except torch._dynamo.exc.TorchDynamoException as error:
        raise RuntimeError(*re.findall("mymul: .* a newer muladd_nb", str(error))[:1]) from None
    assert_close(y.unbind(), (a * b).unbind())


def batches_of_out():
    a, b, out = tensors(2, 3)
    vmap(lambda a, b, out: torch.ops.muladd_nb.mymul.out(a, b, out=out))(a, b, out)
    assert_close(out, a * b)


def kernel_of_ones_own():
    from muladd_nb._layer.derivative import derivative
    from muladd_nb._layer.kernel import Kernel

    with torch.library._scoped_library("muladd_nb", "FRAGMENT") as library:
        library.define("scaled(Tensor x, Tensor? y, float c) -> Tensor")
        library.impl("scaled", lambda x, y, c: x * c, "CPU")
        op = torch.ops.muladd_nb.scaled.default
        form = Kernel.of(op, (torch.float64,))
        form.fake(lambda x, y, c: x.new_empty(x.shape))
        form.batched(lambda info, in_dims, *args: (form.call(*form.batch_first(info, in_dims, args)), 0))
        derivative(
            op,
            save=lambda needs, inputs, results: inputs,
            vjp=lambda needs, saved, grad: (grad * saved[2], None, None),
            jvp=lambda saved, tangent, *_: tangent * saved[2],
        )
        x, y, _ = tensors(2, 3, requires_grad=True)
        assert_close(vmap(op, (0, None, None))(x, None, 2.0), x * 2)
        assert_close(*torch.autograd.grad(op(x, None, 2.0), x, y), y * 2)


def traced(f, g):
    x = tensors(3)
    assert_close(torch.jit.trace(f, x)(*x), g(*x))


def compiled(f, g):
    x = tensors(3, requires_grad=True)
    y = torch.compile(f, fullgraph=True, backend="aot_eager")(*x)
    assert_close(y, g(*x))
    assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(g(*x).sum(), x))


def compiled_autograd():
    import muladd_nb

    x, y = (torch.randn(2**20 + 1, requires_grad=True) for _ in range(2))  # large enough for the node in Python
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(lambda loss: loss.backward(inputs=[x]), backend="eager")(muladd_nb.mymul(x, y).sum())
    assert_close(x.grad, y)


def calls(slow):
    """Return the calls for each capability that can be lost, and those that need none."""
    from muladd_nb._layer import torch_private as private

    each = partial(of_each, slow=slow)
    always = [
        *each(values),
        writes,
        wrapper_subclasses,
        *each(reverse),
        *each(batches),
        autocast,
        *each(traced),
        kernel_of_ones_own,
    ]
    return {
        None: always + (each(compiled) if slow else []),
        private.TRANSFORMS: [call for transform in TRANSFORMS for call in each(under(transform))],
        private.FORWARD_MODE: each(duals),
        private.JAGGED: [*each(jagged), jagged_write],
        private.COMPILED_LENGTHS: [compiled_lengths] if slow else [],
        private.COMPILED_AUTOGRAD: [compiled_autograd] if slow else [],
        private.VMAP_OF_OUT: [batches_of_out],
    }


def check(path, *, slow):
    """Import the package while torch lacks a name, and try everything: only what needs the name raises."""
    (warning,) = import_without("muladd_nb", path)
    import muladd_nb
    from muladd_nb._layer.torch_private import names

    name = path.replace(":", ".")
    assert name in warning and torch.__version__ in warning
    assert name in " ".join(muladd_nb.build_info()["missing_in_torch"])
    lost = {x for name, needed_for in names.items() if name.startswith(path) for x in needed_for}
    of_each_capability = calls(slow)
    assert of_each_capability.keys() - {None} == {x for x in sum(names.values(), ()) if x.becomes == "is refused"}
    for capability, of_it in of_each_capability.items():
        for call in of_it:
            if capability in lost:
                with pytest.raises(RuntimeError, match=LACKS):
                    call()
            else:
                call()
