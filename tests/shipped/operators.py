"""The reference of each operator, and arguments for its tests. The tests know nothing else about an operator."""

from functools import partial

import shipped_ops as ops
import torch
from cases import Case
from torch.nn import functional as f

FINITE = (0.5, 1.0, 1.5, 2.0, 300.0, 1e4)
NEAR_ONE = (0.5, 1.0, 1.5, 2.0)  # so that no sums of large terms cancel, which leaves few of 16 bits
EIGHT_BITS = {torch.uint8: (0, 1), torch.int8: (0, 1)}  # a tie may have been rounded before


def fp8(x):
    return x.float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)


def scale_after(scale, growth, hysteresis, found_inf, growth_factor, backoff_factor, interval, most):
    found = found_inf > 0
    left = torch.where(found, hysteresis - 1, most)
    backs_off, grows = found & (left <= 0), ~found & (growth + 1 == interval)
    grown = scale * growth_factor
    following = torch.where(grows & grown.isfinite(), grown, scale)
    return (
        torch.where(backs_off, scale * backoff_factor, following),
        torch.where(found | grows, 0, growth + 1).int(),
        left.int(),
    )


def merged(prefix, prefix_lse, suffix, suffix_lse):
    of_prefix, of_suffix = torch.softmax(torch.stack(torch.broadcast_tensors(prefix_lse, suffix_lse)), 0)
    return prefix * of_prefix + suffix * of_suffix


def rope(x1, x2, freqs1, freqs2):
    return x1 * freqs1.cos() - x2 * freqs1.sin(), x2 * freqs2.cos() + x1 * freqs2.sin()


def clamped(x, limit):
    # The derivative is 1 at a bound, as was torch.clamp's before torch 2.15, and 0 where x is NaN, as torch.clamp's is.
    return torch.where(x.abs() <= limit, x, x.detach().clamp(-limit, limit))


def swiglu(gate, up, alpha, limit):
    bound = torch.as_tensor(limit, dtype=gate.dtype, device=gate.device)
    x = gate.minimum(bound)
    return (clamped(up, bound) + 1) * (x * torch.sigmoid(x * alpha))


def gelu_fast(x):
    return 0.5 * x * (1 + torch.tanh(x * 0.79788456080286535588 * (1 + 0.044715 * x * x)))


def bias_act(x, b, act, alpha, gain, clamp):
    x = x if b is None else x + b
    activations = {
        2: lambda x: torch.where(x > 0, x, 0),
        3: lambda x: torch.where(x > 0, x, x * alpha),
        4: torch.tanh,
        5: torch.sigmoid,
        6: f.elu,
        7: f.selu,
        8: lambda x: x.maximum(torch.zeros_like(x)) + torch.log1p(torch.exp(-x.abs())),
        9: f.silu,
    }
    y = activations.get(act, lambda x: x)(x) * gain
    limit = torch.as_tensor(clamp, dtype=y.dtype, device=y.device)
    return torch.where(limit >= 0, clamped(y, limit), y)


def leaky_relu(x, bias, alpha, scale):
    x = x if bias is None else x + bias
    return torch.where(x > 0, x, x * alpha) * scale


def focal_loss(x, target, of_column, weight, gamma, alpha):
    p, least = torch.sigmoid(x), 1.17549435e-38
    of_target = -alpha * (1 - p) ** gamma * p.clamp(min=least).log()
    of_others = (alpha - 1) * p**gamma * (1 - p).clamp(min=least).log()
    loss = torch.where(target == of_column, of_target, of_others)
    return loss if weight is None else loss * weight


def normalized(x, mean, var, weight, bias, eps):
    norm = (x - mean) / (var + eps).sqrt()
    return norm, norm * weight + bias


gelu_tanh = partial(f.gelu, approximate="tanh")


def two(tensor, either):
    return tensor(), tensor()


OPERATORS: list[Case] = [
    Case(ops.silu_and_mul, reference=lambda x, y: f.silu(x) * y, arguments=two),
    Case(ops.mul_and_silu, reference=lambda x, y: x * f.silu(y), arguments=two),
    Case(ops.gelu_and_mul, reference=lambda x, y: f.gelu(x) * y, arguments=two),
    Case(ops.gelu_tanh_and_mul, reference=lambda x, y: gelu_tanh(x) * y, arguments=two),
    Case(
        ops.fatrelu_and_mul,
        reference=lambda x, y, threshold: torch.where(x > threshold, x, 0) * y,
        arguments=lambda tensor, either: (*two(tensor, either), either(0.5, -0.25)),
    ),
    Case(
        ops.swigluoai_and_mul,
        reference=swiglu,
        arguments=lambda tensor, either: (tensor(-9, 9), tensor(-9, 9), either(1.702, 0.5), either(7.0, 1.25)),
    ),
    Case(ops.gelu_new, reference=gelu_tanh, arguments=lambda tensor, either: (tensor(),)),
    Case(ops.gelu_fast, reference=gelu_fast, arguments=lambda tensor, either: (tensor(),)),
    Case(
        ops.gelu_quick, reference=lambda x: x * torch.sigmoid(1.702 * x), arguments=lambda tensor, either: (tensor(),)
    ),
    Case(
        ops.silu_and_mul_quant,
        reference=lambda x, y, scale: fp8(f.silu(x) * y / scale),
        arguments=lambda tensor, either: (tensor(-20, 20), tensor(-20, 20), tensor(0.25, 4)),
        tolerance=EIGHT_BITS,
        extremes=FINITE,
    ),
    Case(
        ops.static_scaled_fp8_quant,
        reference=lambda x, scale: fp8(x / scale),
        arguments=lambda tensor, either: (tensor(-600, 600), tensor(0.25, 4)),
        tolerance=EIGHT_BITS,
        extremes=FINITE,
    ),
    Case(
        ops.static_scaled_int8_quant,
        reference=lambda x, scale, azp: (
            ((x / scale).round() + (0 if azp is None else azp)).clamp(-128, 127).to(torch.int8)
        ),
        arguments=lambda tensor, either: (tensor(-200, 200), tensor(0.25, 4), either(tensor(-9, 9), None)),
        tolerance=EIGHT_BITS,
        extremes=FINITE,
    ),
    Case(
        ops.convert_fp8,
        reference=lambda source, scale: fp8(source / scale),
        arguments=lambda tensor, either: (tensor(-600, 600), either(1.5, 0.5)),
        tolerance=EIGHT_BITS,
        extremes=FINITE,
    ),
    Case(
        ops.convert_from_fp8_,
        reference=lambda dst, source, scale: (source.view(torch.float8_e4m3fn).to(dst.dtype) * scale,),
        arguments=lambda tensor, either: (tensor(), tensor(0, 256), either(1.5, 0.5)),
    ),
    Case(
        ops.apply_repetition_penalties_,
        reference=lambda logits, in_prompt, in_output, penalties: (
            torch.where(in_prompt | in_output, torch.where(logits > 0, logits / penalties, logits * penalties), logits),
        ),
        arguments=lambda tensor, either: (tensor(), tensor(), tensor(), tensor(1, 2)),
    ),
    Case(
        ops.merge_attn_states,
        reference=merged,
        arguments=lambda tensor, either: [tensor() for _ in range(4)],
        extremes=FINITE,
    ),
    Case(ops.merge_lse, reference=torch.logaddexp, arguments=two, extremes=FINITE),
    Case(
        ops.update_scale_hysteresis_,
        reference=scale_after,
        arguments=lambda tensor, either: (
            tensor(1, 100),
            tensor(0, 4),
            tensor(0, 4),
            tensor(-1, 1).relu(),
            either(2.0, 1.5),
            either(0.5, 0.25),
            either(3, 2),
            either(2, 1),
        ),
    ),
    Case(ops.fused_rope, reference=rope, arguments=lambda tensor, either: [tensor() for _ in range(4)]),
    Case(
        ops.fused_rope_cached,
        reference=lambda x1, x2, cos1, cos2, sin1, sin2: (x1 * cos1 - x2 * sin1, x2 * cos2 + x1 * sin2),
        arguments=lambda tensor, either: [tensor(-1, 1) for _ in range(6)],
    ),
    Case(
        ops.bias_act,
        reference=bias_act,
        arguments=lambda tensor, either: (
            tensor(),
            either(tensor(), None),
            either(3, 1, 2, 4, 5, 6, 7, 8, 9),
            0.2,
            either(1.5, 0.5),
            either(-1.0, 1.25),
        ),
    ),
    Case(
        ops.fused_bias_leakyrelu,
        reference=leaky_relu,
        arguments=lambda tensor, either: (tensor(), either(tensor(), None), either(0.2, 0.5), either(1.5, 0.5)),
    ),
    Case(
        ops.sigmoid_focal_loss,
        reference=focal_loss,
        arguments=lambda tensor, either: (
            tensor(),
            tensor(0, 3),
            tensor(0, 3),
            either(tensor(0.5, 2), None),
            either(2.0, 1.5),
            either(0.25, 0.75),
        ),
        extremes=NEAR_ONE,
    ),
    Case(
        ops.sync_bn_forward_output,
        reference=normalized,
        arguments=lambda tensor, either: (
            tensor(),
            tensor(),
            tensor().abs() + 0.5,
            tensor(),
            tensor(),
            either(1e-5, 1e-3),
        ),
        extremes=NEAR_ONE,
    ),
    Case(
        ops.sync_bn_running_,
        reference=lambda running_mean, running_var, mean, var, momentum, count: (
            running_mean + momentum * (mean - running_mean),
            running_var + momentum * (var * count / (count - 1) - running_var),
        ),
        arguments=lambda tensor, either: (*(tensor(0.5, 2) for _ in range(4)), either(0.125, 0.5), either(10, 300)),
    ),
    Case(
        ops.sync_bn_backward_data,
        reference=lambda grad_output, weight, grad_weight, grad_bias, norm, std, count: (
            weight * (grad_output - (grad_weight * norm + grad_bias) / count) / std
        ),
        arguments=lambda tensor, either: (*(tensor() for _ in range(5)), tensor(0.5, 2), either(10, 300)),
        extremes=NEAR_ONE,
    ),
    Case(
        ops.mymuladd,
        reference=lambda a, b, c: a * b + c,
        arguments=lambda tensor, either: (*two(tensor, either), either(1.5, -0.5)),
    ),
    Case(ops.mymul, reference=torch.mul, arguments=two),
    Case(ops.myadd_out, reference=torch.add, arguments=two),
]
