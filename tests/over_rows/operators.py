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


def layer_norm_stats(x, normalized_shape, weight, bias, eps):
    dims = [*range(-len(normalized_shape), 0)]
    mean, variance = x.mean(dims, True), x.var(dims, correction=0, keepdim=True)
    factor = (variance + eps).rsqrt()
    return (x - mean) * factor * weight + bias, *(y.reshape(x.shape[: -len(dims)]) for y in (mean, factor))


def cross_entropy(logits, label, ignore_index, smoothing):
    if logits.shape[-1] == 0 or logits.numel() == 0:
        return logits.sum(-1)
    rows = logits.reshape(-1, logits.shape[-1])
    loss = F.cross_entropy(
        rows, label.reshape(-1), ignore_index=ignore_index, label_smoothing=smoothing, reduction="none"
    )
    return loss.reshape(label.shape)


def not_empty(tensor):
    mask = tensor(dtype=torch.bool)
    mask[..., :1] = True
    return mask


def rotate_half(x):
    column = torch.arange(x.shape[-1], device=x.device)
    first, half = column < x.shape[-1] // 2, x.shape[-1] // 2
    rotated = x[..., torch.where(first, column + half, column - half)]
    return torch.where(first, -rotated, rotated)


def softmax_entropy(x):
    y = x.softmax(-1)
    return y, -torch.xlogy(y, y).sum(-1)


def causal_softmax(x, scale):
    shape = x.shape[-2:] if x.dim() > 1 else (1, *x.shape)
    later = torch.ones(shape, device=x.device).triu(1).bool().reshape(x.shape[-2:])
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

    a, b, c, bias = (x[..., None] for x in (a, b, c, bias))
    return a * normalised(x**3) + b * normalised(x**2) + c * normalised(x) + bias


def max_with_place(x, dim, keepdim):
    # amax divides its gradient among all elements that equal the maximum.
    return x.amax(dim, keepdim), x.max(dim, keepdim).indices


def scaled_variance(x, scale):
    return (x - x.mean(-1, True)) * scale[..., None], x.var(-1, correction=0) * scale


def rms_norm_stats(x, normalized_shape, weight, eps):
    dims = [*range(-len(normalized_shape), 0)]
    factor = (x.square().mean(dims, True) + eps).rsqrt()
    return x * factor * weight, factor.reshape(x.shape[: -len(dims)])


def focal_loss(x, target, num_real_classes, alpha, gamma, smoothing):
    column = torch.arange(x.shape[-1], device=x.device)
    is_class = column == target[..., None]
    wanted = is_class.to(x) * (1 - smoothing) + smoothing / 2
    entropy = F.binary_cross_entropy_with_logits(x, wanted, reduction="none")
    p = torch.where(is_class, -x, x).sigmoid()
    loss = (is_class.to(x) * (2 * alpha - 1) + 1 - alpha) * p**gamma * entropy
    return torch.where((target[..., None] == -2) | (column >= num_real_classes), 0, loss).sum(-1)


def softmax_focal_loss(x, target, weight, gamma, alpha):
    place = target.clamp(min=0)[..., None]
    log_p = x.log_softmax(-1).gather(-1, place)[..., 0]
    loss = -alpha * (1 - log_p.exp()) ** gamma * log_p
    if weight is not None:
        loss = loss * weight.gather(-1, place)[..., 0]
    return torch.where(target < 0, 0, loss)


def group_quant_int8(x, eps, least, most):
    scale = x.abs().amax(-1).clamp(min=eps) / most
    return (x / scale[..., None]).round().clamp(least, most), scale


def int8_vectorwise_quant(x, threshold):
    kept = torch.where(x.abs() >= threshold, 0, x) if threshold > 0 else x
    quantised, _ = int8_quant(kept)
    return quantised, kept.abs().amax(-1)


def fp8(x):
    return x.float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)


def fp8_quant(x, bound):
    most = x.abs().amax(-1)
    scale = (most if bound is None else torch.minimum(most, bound)).div(448).clamp(min=1 / (448 * 512))
    return fp8(x / scale[..., None]), scale


def rms_norm_int8_quant(x, weight, eps, residual):
    total = x if residual is None else x + residual
    return *(y.detach() for y in int8_quant(rms_norm(total, weight, eps))), total


def trailing(tensor, either):
    return either([*tensor.shape[-1:]], [*tensor.shape[-2:]])


def label(tensor, more=0):
    n = tensor.shape[-1]
    return tensor(0, n, tensor.shape[:-1], torch.int64)


def relative(x, place):
    y = 2 * x
    return (y - y.gather(-1, place[..., None])).scatter(-1, y.argmin(-1, True), 0)


def running(state, x, momentum):
    now = state + (x.mean(-1) - state) * momentum
    return now, x - now[..., None]


FINITE = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 8.0, -8.0)
INTEGERS = {torch.int8: (0, 1), torch.uint8: (0, 1), torch.float32: (1e-5, 1e-5), torch.int32: (0, 1)}
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
        lambda tensor, either: (tensor(), trailing(tensor, either), tensor(), tensor(), either(0.5, 0.01)),
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
        "masked_softmax", lambda tensor, either: (tensor(), tensor(dtype=torch.bool), either(0.5, -2.0)), masked_softmax
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
        lambda tensor, either: (tensor(), tensor(), tensor(shape=tensor.shape[-1:]), either(0.5, 0.01)),
        fused_add_rms_norm,
    ),
    case(
        "rms_norm_stats",
        lambda tensor, either: (tensor(), trailing(tensor, either), tensor(), either(0.5, 0.01)),
        rms_norm_stats,
    ),
    case(
        "gemma_rms_norm",
        lambda tensor, either: (tensor(), tensor(), either(0.5, 0.01)),
        lambda x, weight, eps: rms_norm(x, 1 + weight, eps),
    ),
    case("softmax_entropy", lambda tensor, either: (tensor(),), softmax_entropy),
    case(
        "scaled_softmax", lambda tensor, either: (tensor(), either(0.5, -2.0)), lambda x, scale: (x * scale).softmax(-1)
    ),
    case(
        "focal_loss",
        lambda tensor, either: (
            tensor(),
            tensor(-2, tensor.shape[-1], tensor.shape[:-1], torch.int64),
            either(tensor.shape[-1], 1),
            either(0.25, 0.75),
            either(2.0, 1.5),
            either(0.0, 0.25),
        ),
        focal_loss,
        extremes=FINITE,
    ),
    case(
        "softmax_focal_loss",
        lambda tensor, either: (
            tensor(),
            tensor(-1, tensor.shape[-1], tensor.shape[:-1], torch.int64),
            either(tensor(0.5, 2), None),
            either(2.0, 1.5),
            either(0.25, 0.75),
        ),
        softmax_focal_loss,
        extremes=FINITE,
    ),
    case(
        "sigmoid_alpha_blend",
        lambda tensor, either: (tensor(), tensor(-1, 5, dtype=torch.int64), either(0.5, 2.0)),
        lambda d, faces, sigma: 1 - torch.where(faces < 0, 1, (d / sigma).sigmoid()).prod(-1),
        extremes=FINITE,
    ),
    case(
        "group_quant_int8",
        lambda tensor, either: (tensor(), either(1e-5, 0.5), -128.0, either(127.0, 100.0)),
        group_quant_int8,
        tolerance=INTEGERS,
        extremes=FINITE,
    ),
    case(
        "int8_vectorwise_quant",
        lambda tensor, either: (tensor(), either(0.0, 1.5)),
        int8_vectorwise_quant,
        tolerance=INTEGERS,
        extremes=FINITE,
    ),
    case(
        "fp8_quant",
        lambda tensor, either: (tensor(), either(tensor(0.5, 1.5, tensor.shape[:-1], torch.float32), None)),
        fp8_quant,
        tolerance=INTEGERS,
        extremes=FINITE,
    ),
    case(
        "silu_and_mul_quant",
        lambda tensor, either: (tensor(), tensor(), either(tensor(0.5, 1.5, tensor.shape[:-1], torch.float32), None)),
        lambda x, y, bound: fp8_quant(F.silu(x) * y, bound),
        tolerance=INTEGERS,
        extremes=FINITE,
    ),
    case(
        "rms_norm_fp8_quant",
        lambda tensor, either: (
            tensor(),
            tensor(),
            tensor(0.25, 4, tensor.shape[:-1], torch.float32),
            either(0.5, 0.01),
        ),
        lambda x, weight, scale, eps: fp8(rms_norm(x, weight, eps) / scale[..., None]),
        tolerance=INTEGERS,
        extremes=FINITE,
    ),
    case(
        "rms_norm_int8_quant",
        lambda tensor, either: (tensor(), tensor(), either(0.5, 0.01), either(tensor(), None)),
        rms_norm_int8_quant,
        tolerance=INTEGERS,
        extremes=FINITE,
    ),
    case(
        "poly_norm",
        lambda tensor, either: (
            tensor(),
            *(tensor(shape=tensor.shape[:-1]) for _ in range(2)),
            *(tensor(shape=()) for _ in range(2)),
            either(0.5, 0.01),
        ),
        poly_norm,
        extremes=FINITE,
    ),
    case(
        "prod",
        lambda tensor, either: (tensor(), either(-1, 0)),
        lambda x, dim: x.prod(dim),
        tolerance={torch.float32: (1e-5, 1e-5)},
        extremes=FINITE,
    ),
    case(
        "inf_norm",
        lambda tensor, either: (tensor(),),
        lambda x: x.abs().amax(-1) if x.shape[-1] else x.sum(-1),
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
        "variance",
        lambda tensor, either: (tensor(), either(-1, 0)),
        lambda x, dim: x.var(dim, correction=0),
        extremes=FINITE,
    ),
    case("scaled_variance", lambda tensor, either: (tensor(), tensor(shape=tensor.shape[:-1])), scaled_variance),
    case(
        "scaled_squares",
        lambda tensor, either: (tensor(), either(tensor(shape=tensor.shape[1:]), tensor(shape=())), 0),
        lambda x, scale, dim: x.square().sum(dim) * scale,
    ),
    case(
        "last_of",
        lambda tensor, either: (tensor(), not_empty(tensor)),
        lambda x, mask: x.gather(-1, mask.sum(-1, keepdim=True) - 1)[..., 0],
    ),
    case(
        "tempered_softmax",
        lambda tensor, either: (tensor(), tensor(0.5, 2, shape=tensor.shape[:-1])),
        lambda x, temperature: F.softmax(x / temperature[..., None], -1),
    ),
    case("rotate_half", lambda tensor, either: (tensor(),), rotate_half),
    case(
        "scaled",
        lambda tensor, either: (tensor(shape=tensor.shape[:-1]), tensor()),
        lambda scale, x: x * scale[..., None],
    ),
    case(
        "kept_rows",
        lambda tensor, either: (tensor(), tensor(shape=tensor.shape[:-1], dtype=torch.bool)),
        lambda x, keep: torch.where(keep[..., None], x, 0),
    ),
    case(
        "scaled_norm",
        lambda tensor, either: (tensor(), tensor(shape=tensor.shape[:-1], dtype=torch.float32), either(1, 2)),
        lambda x, scale, order: (x.norm(order, -1) * scale).to(x.dtype),
    ),
    case(
        "picked",
        lambda tensor, either: (tensor(), label(tensor), either(-100, 0)),
        lambda x, label, ignore_index: (
            x.gather(-1, label.where(label != ignore_index, 0)[..., None])[..., 0] * (label != ignore_index)
        ),
        extremes=FINITE,
    ),
    case("relative_to", lambda tensor, either: (tensor(), label(tensor)), relative),
    case(
        "cosine_similarity",
        lambda tensor, either: (tensor(), tensor()),
        lambda x, y: (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt(),
    ),
    case(
        "quaternion_dot",
        lambda tensor, either: tuple(tensor() for _ in range(8)),
        lambda *x: sum(a * b for a, b in zip(x[:4], x[4:], strict=True)).sum(-1),
        tolerance={torch.float32: (1e-4, 5e-3)},
    ),
    case("least", lambda tensor, either: (tensor(),), lambda x: (x.amin(-1), x.argmin(-1), x.sum(-1))),
    case(
        "scaled_total_out",
        lambda tensor, either: (tensor(shape=tensor.shape[1:]), tensor(), 0),
        lambda scale, x, dim: x.sum(dim) * scale,
        extremes=FINITE,
        tolerance={torch.float32: (1e-4, 1e-4)},
    ),
    case(
        "running_",
        lambda tensor, either: (tensor(shape=tensor.shape[:-1]), tensor(), either(0.5, 1.5)),
        running,
        extremes=FINITE,
    ),
    case(
        "place_of_max",
        lambda tensor, either: (tensor(),),
        lambda x: (x.argmax(-1), x.amax(-1)),
        shapes=((2, 3), (5,), (3, 1, 33), (2, 2100), (300, 501)),
        extremes=FINITE,
        results=(),
    ),
]
OPERATORS: list[Case] = [x for x in CASES if x]
