"""The operators that test_layer.py adds, as cases of the tests that ``muladd-nb new`` copies into a project."""

import inspect

import torch
from cases import Case

from muladd_nb._layer.public import public
from muladd_nb._operators import FORMS

REQUIRED = inspect.Parameter.empty


def public_function(name):
    """Return the public function of an operator: with the arguments of its schema, and ``out`` if a form has it."""
    forms = [form for form in FORMS if form.operator == name and not form.role]
    parameters = [
        inspect.Parameter(
            x.name,
            inspect.Parameter.KEYWORD_ONLY if x.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=x.default_value if x.has_default_value() else REQUIRED,
        )
        for x in forms[0].op._schema.arguments
    ]
    if any(form.kind == "writing" for form in forms):
        parameters.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))

    def declared():
        pass

    declared.__name__ = name
    declared.__signature__ = inspect.Signature(parameters)
    return public(FORMS)(declared)


adam_, affine, fade_, ramp, rescale_ = map(public_function, ("adam_", "affine", "fade_", "ramp", "rescale_"))


def stepped(p, m, v, gradient, lr, *, beta1=0.5, beta2=0.75, eps=0.125):
    m = beta1 * m + (1 - beta1) * gradient
    v = beta2 * v + (1 - beta2) * gradient * gradient
    root = v.double().sqrt().to(v.dtype)  # if MKL computes torch's float32 sqrt, it is not correctly rounded
    return p - lr * m / (root + eps), m, v


def ramped(x, slope=2.0, *, n=-3, bias=1e-3, twice=False):
    y = x * slope * n + bias
    return 2 * y if twice else y


def scaled(weight, x, bias=None, c=2.0, n=None):
    """Return the result of ``affine``."""
    y = x if weight is None else weight * x
    y = c * (y + (0 if bias is None else bias))
    return y if n is None else y * n.to(x.dtype)


# If the table has a formula, it is the reference.
OPERATORS = [
    Case(
        public_function("blend"),
        reference=lambda x, alpha, y, w, beta: alpha * x + beta * y * w,
        arguments=lambda tensor, either: (tensor(), either(0.5, 1.5), tensor(), tensor(), either(-3.0, 0.5)),
    ),
    Case(public_function("bent"), arguments=lambda tensor, either: (tensor(),), autocast="float32"),
    Case(
        public_function("popcount"),
        reference=lambda x: sum((x.long() >> bit) & 1 for bit in range(8 * x.itemsize)).to(x.dtype),
        arguments=lambda tensor, either: (tensor(0, 100),),
    ),
    Case(
        ramp,
        reference=lambda x, slope, n, bias, twice: ramped(x, slope, n=n, bias=bias, twice=twice),
        arguments=lambda tensor, either: (
            tensor(),
            either(2.0, 0.25),
            either(-3, 4),
            either(1e-3, 2.0),
            either(False, True),
        ),
    ),
    Case(
        adam_,
        reference=lambda p, m, v, gradient, lr, beta1, beta2, eps: stepped(
            p, m, v, gradient, lr, beta1=beta1, beta2=beta2, eps=eps
        ),
        arguments=lambda tensor, either: (
            tensor(),
            tensor(),
            tensor(0, 2),
            tensor(),
            either(0.5, 2.0),
            either(0.5, 0.25),
            0.75,
            0.125,
        ),
    ),
    Case(
        rescale_,
        reference=lambda by, x, n: (x * by * n,),
        arguments=lambda tensor, either: (tensor(), tensor(), either(2, -3)),
    ),
    Case(
        affine,
        reference=scaled,
        arguments=lambda tensor, either: (
            either(tensor(), None),
            tensor(),
            either(tensor(), None),
            either(0.5, 2.0),
            either(tensor(-3, 4), None),
        ),
    ),
    Case(  # the other subsets of its optional tensors: none, and each alone
        affine,
        reference=scaled,
        arguments=lambda tensor, either: (
            either(None, tensor()),
            tensor(),
            either(None, tensor()),
            0.5,
            either(None, tensor(-3, 4)),
        ),
        differentiable=("weight", "x", "bias"),
    ),
    Case(
        fade_,
        reference=lambda x, keep, by: (x * by if keep is None else torch.where(keep, x, x * by),),
        arguments=lambda tensor, either: (tensor(), either(tensor(), None), either(0.5, 0.25)),
    ),
    Case(
        public_function("shift"),
        reference=lambda x, n: x + n,
        arguments=lambda tensor, either: (tensor(), either(5, -(2**40))),
    ),
    Case(public_function("masked_scale"), arguments=lambda tensor, either: (tensor(), tensor(), either(0.5, -1.5))),
    Case(
        public_function("dequantize"),
        reference=lambda q, scale: q.to(scale.dtype) * scale,
        arguments=lambda tensor, either: (tensor(-100, 100), tensor()),
    ),
    Case(public_function("weigh"), arguments=lambda tensor, either: (tensor(), tensor())),
    Case(
        public_function("quantize"),
        arguments=lambda tensor, either: (tensor(), either(64.0, 20.0)),
        tolerance={torch.int8: (0, 1)},
    ),
    Case(
        public_function("sum_difference"),
        reference=lambda x, y: (x + y, x - y),
        arguments=lambda tensor, either: (tensor(), tensor()),
    ),
    Case(
        public_function("product_above"),
        reference=lambda x, y: (x * y, x > y),
        arguments=lambda tensor, either: (tensor(), tensor()),
    ),
    Case(public_function("clip"), arguments=lambda tensor, either: (tensor(), either(0.25, -0.5))),
    Case(public_function("product"), arguments=lambda tensor, either: (tensor(), tensor())),
]
