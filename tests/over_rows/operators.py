"""The cases of the tests: what each operator computes in PyTorch, and which arguments it is tested with."""

import row_ops
import torch
import torch.nn.functional as F
from cases import Case

NONE = -float("inf")


def rms_norm(x, weight, eps):
    return x * (x.square().mean(-1, True) + eps).rsqrt() * weight


def layer_norm(x, weight, bias, eps):
    y = (x - x.mean(-1, True)) * (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def layer_norm_stats(x, weight, bias, eps):
    return layer_norm(x, weight, bias, eps), x.mean(-1), (x.var(-1, correction=0) + eps).rsqrt()


def cross_entropy(logits, label, ignore_index, smoothing):
    if logits.shape[-1] == 0 or logits.numel() == 0:
        return logits.sum(-1)
    rows = logits.reshape(-1, logits.shape[-1])
    loss = F.cross_entropy(
        rows, label.reshape(-1), ignore_index=ignore_index, label_smoothing=smoothing, reduction="none"
    )
    return loss.reshape(label.shape)


def causal_softmax(x, scale):
    later = torch.ones(x.shape[-2:], device=x.device).triu(1).bool() if x.dim() > 1 else torch.arange(len(x)) > 0
    return (x * scale).masked_fill(later, NONE).softmax(-1)


def masked_softmax(x, mask, scale):
    y = (x * scale).masked_fill(mask, NONE).softmax(-1)
    return torch.where(mask.all(-1, True), 0, y)


def int8_quant(x):
    most = x.abs().amax(-1)
    inverse = torch.where(most > 0, 127 / most, 0)
    return (x * inverse[..., None]).round().clamp(-127, 127), most / 127


def int8_quant_azp(x):
    least, most = x.amin(-1), x.amax(-1)
    scale = torch.where(most > least, (most - least) / 255, 1)
    zero = (-128 - least / scale).round()
    return ((x / scale[..., None]).round() + zero[..., None]).clamp(-128, 127), scale, zero


def fused_add_rms_norm(x, residual, weight, eps):
    return rms_norm(x + residual, weight, eps), x + residual


def poly_norm(x, a, b, c, bias, eps):
    def normalised(y):
        return y * (y.square().mean(-1, True) + eps).rsqrt()

    return a * normalised(x**3) + b * normalised(x**2) + c * normalised(x) + bias


def max_with_place(x, dim, keepdim):
    # All elements that are the maximum share the gradient of amax.
    return x.amax(dim, keepdim), x.max(dim, keepdim).indices


def scaled_variance(x, scale):
    return (x - x.mean(-1, True)) * scale[..., None], x.var(-1, correction=0) * scale


def label(tensor, more=0):
    n = tensor.shape[-1]
    return tensor(0, n, tensor.shape[:-1], torch.int64)


FINITE = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 8.0, -8.0)
INTEGERS = {torch.int8: (0, 1), torch.float32: (1e-5, 1e-5), torch.int32: (0, 1)}
SQUARE = ((3, 3), (5,), (0, 4, 4), (2, 33, 33), (300, 300))


def case(name, *given, **more):
    """Return the Case of an operator, if the project has it."""
    return Case(getattr(row_ops, name), *given, **more) if hasattr(row_ops, name) else None


CASES = [
    case("softmax", lambda tensor, either: (tensor(), either(-1, 0)), lambda x, dim: x.softmax(dim)),
    case("log_softmax", lambda tensor, either: (tensor(), either(-1, 0)), lambda x, dim: x.log_softmax(dim)),
    case(
        "logsumexp",
        lambda tensor, either: (tensor(), either(-1, 0), either(False, True)),
        lambda x, dim, keepdim: x.logsumexp(dim, keepdim),
    ),
    case("rms_norm", lambda tensor, either: (tensor(), tensor(), either(0.5, 0.01)), rms_norm),
    case(
        "layer_norm",
        lambda tensor, either: (tensor(), either(tensor(), None), either(tensor(), None), either(0.5, 0.01)),
        layer_norm,
    ),
    case(
        "layer_norm_stats",
        lambda tensor, either: (tensor(), tensor(), tensor(), either(0.5, 0.01)),
        layer_norm_stats,
    ),
    case(
        "l2_normalize",
        lambda tensor, either: (tensor(), either(-1, 0), either(1e-3, 1.7)),
        lambda x, dim, eps: F.normalize(x, dim=dim, eps=eps),
    ),
    case(
        "weighted_sum",
        lambda tensor, either: (
            tensor(0.5, 2),
            tensor(0.5, 2, tensor.shape[1:] or tensor.shape),
            either(-1, 0, len(tensor.shape) // 2),
        ),
        lambda x, weight, dim: (x * weight).sum(dim),
    ),
    case(
        "cross_entropy",
        lambda tensor, either: (tensor(), label(tensor), either(-100, 0), either(0.0, 0.25)),
        cross_entropy,
        extremes=FINITE,
    ),
    case(
        "softmax_xentropy",
        lambda tensor, either: (tensor(), label(tensor), either(0.0, 0.25)),
        lambda x, label, smoothing: (cross_entropy(x, label, -100, smoothing), x.logsumexp(-1)),
        extremes=FINITE,
    ),
    case("causal_softmax", lambda tensor, either: (tensor(), either(0.5, -2.0)), causal_softmax, shapes=SQUARE),
    case(
        "masked_softmax",
        lambda tensor, either: (tensor(), tensor(dtype=torch.bool), either(0.5, -2.0)),
        masked_softmax,
    ),
    case("int8_quant", lambda tensor, either: (tensor(),), int8_quant, tolerance=INTEGERS, extremes=FINITE),
    case(
        "int8_quant_azp",
        lambda tensor, either: (tensor(),),
        int8_quant_azp,
        tolerance=INTEGERS,
        extremes=FINITE,
        mean=None,
    ),
    case(
        "fused_add_rms_norm",
        lambda tensor, either: (tensor(), tensor(), tensor(), either(0.5, 0.01)),
        fused_add_rms_norm,
    ),
    case(
        "poly_norm",
        lambda tensor, either: (
            tensor(),
            either(0.3, -1.0),
            either(0.4, 2.0),
            0.5,
            either(0.1, 1.0),
            either(0.5, 0.01),
        ),
        poly_norm,
        extremes=FINITE,
    ),
    case(
        "product_and_size",
        lambda tensor, either: (tensor(),),
        lambda x: (x.prod(-1), x.abs().amax(-1) if x.shape[-1] else x.sum(-1)),
        tolerance={torch.float32: (1e-5, 1e-5)},
        extremes=FINITE,
    ),
    case(
        "max_with_place",
        lambda tensor, either: (tensor(), either(-1, 0), either(False, True)),
        max_with_place,
        shapes=((2, 3), (5,), (3, 1, 33), (2, 2100), (300, 501)),
        results=(),
    ),
    case(
        "scaled_variance",
        lambda tensor, either: (tensor(), tensor(shape=tensor.shape[:-1])),
        scaled_variance,
    ),
]
OPERATORS: list[Case] = [x for x in CASES if x]
