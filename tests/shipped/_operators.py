"""The table of the operators. ``Elementwise`` in ``_layer/operator.py`` describes an entry."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from ._layer import Elementwise, register


def clamped(x: Tensor, limit: Tensor) -> Tensor:
    # Its derivative at a bound is 1, as was torch.clamp's before torch 2.15.
    return torch.where(x.abs() > limit, x.detach().clamp(-limit, limit), x)


def swiglu(gate: Tensor, up: Tensor, alpha: Any, limit: Any) -> Tensor:
    bound = torch.as_tensor(limit, dtype=gate.dtype, device=gate.device)
    x = gate.minimum(bound)
    return (clamped(up, bound) + 1) * (x * torch.sigmoid(x * alpha))


def gelu_fast(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(x * 0.79788456080286535588 * (1 + 0.044715 * x * x)))


def bias_act(x: Tensor, b: Tensor | None, act: int, alpha: Any, gain: Any, clamp: Any) -> Tensor:
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


def leaky_relu(x: Tensor, bias: Tensor | None, alpha: Any, scale: Any) -> Tensor:
    x = x if bias is None else x + bias
    return torch.where(x > 0, x, x * alpha) * scale


def focal_loss(x: Tensor, target: Tensor, of_column: Tensor, weight: Tensor | None, gamma: Any, alpha: Any) -> Tensor:
    p, least = torch.sigmoid(x), 1.17549435e-38
    of_target = -alpha * (1 - p) ** gamma * p.clamp(min=least).log()
    of_others = (alpha - 1) * p**gamma * (1 - p).clamp(min=least).log()
    loss = torch.where(target == of_column, of_target, of_others)
    return loss if weight is None else loss * weight


def normalized(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: Any) -> tuple[Tensor, Tensor]:
    norm = (x - mean) / (var + eps).sqrt()
    return norm, norm * weight + bias


gelu_tanh = partial(f.gelu, approximate="tanh")
NONE = Elementwise(differentiable=False)

# The declarations are those of the operators in C++.
TABLE: dict[str, Elementwise] = {
    "silu_and_mul(Tensor x, Tensor y)": Elementwise(formula=lambda x, y: f.silu(x) * y),
    "mul_and_silu(Tensor x, Tensor y)": Elementwise(formula=lambda x, y: x * f.silu(y)),
    "gelu_and_mul(Tensor x, Tensor y)": Elementwise(formula=lambda x, y: f.gelu(x) * y),
    "gelu_tanh_and_mul(Tensor x, Tensor y)": Elementwise(formula=lambda x, y: gelu_tanh(x) * y),
    "fatrelu_and_mul(Tensor x, Tensor y, float threshold)": Elementwise(
        formula=lambda x, y, threshold: torch.where(x > threshold, x, 0) * y
    ),
    "swigluoai_and_mul(Tensor gate, Tensor up, float alpha=1.702, float limit=7.0)": Elementwise(formula=swiglu),
    "gelu_new(Tensor x)": Elementwise(formula=lambda x: gelu_tanh(x)),
    "gelu_fast(Tensor x)": Elementwise(formula=gelu_fast),
    "gelu_quick(Tensor x)": Elementwise(formula=lambda x: x * torch.sigmoid(1.702 * x)),
    "silu_and_mul_quant(Tensor x, Tensor y, Tensor scale)": Elementwise(),
    "static_scaled_fp8_quant(Tensor x, Tensor scale)": Elementwise(),
    "static_scaled_int8_quant(Tensor x, Tensor scale, Tensor? azp=None)": Elementwise(),
    "convert_fp8(Tensor source, float scale)": Elementwise(),
    "convert_from_fp8_(Tensor(a!) dst, Tensor source, float scale)": Elementwise(),
    "apply_repetition_penalties_(Tensor(a!) logits, Tensor in_prompt, Tensor in_output, "
    "Tensor penalties)": Elementwise(),
    "merge_attn_states(Tensor prefix, Tensor prefix_lse, Tensor suffix, Tensor suffix_lse)": NONE,
    "merge_lse(Tensor prefix, Tensor suffix)": Elementwise(),
    "update_scale_hysteresis_(Tensor(a!) scale, Tensor(b!) growth_tracker, Tensor(c!) hysteresis_tracker, "
    "Tensor found_inf, float growth_factor, float backoff_factor, int growth_interval, int hysteresis)": Elementwise(),
    "fused_rope(Tensor x1, Tensor x2, Tensor freqs1, Tensor freqs2)": Elementwise(),
    "fused_rope_cached(Tensor x1, Tensor x2, Tensor cos1, Tensor cos2, Tensor sin1, Tensor sin2)": Elementwise(
        formula=lambda x1, x2, cos1, cos2, sin1, sin2: (x1 * cos1 - x2 * sin1, x2 * cos2 + x1 * sin2)
    ),
    "bias_act(Tensor x, Tensor? b=None, int act=3, float alpha=0.2, float gain=1.4142135623730951, "
    "float clamp=-1.0)": Elementwise(formula=bias_act),
    "fused_bias_leakyrelu(Tensor x, Tensor? bias=None, float alpha=0.2, float scale=1.4142135623730951)": Elementwise(
        formula=leaky_relu
    ),
    "sigmoid_focal_loss(Tensor x, Tensor target, Tensor of_column, Tensor? weight, float gamma, "
    "float alpha)": Elementwise(formula=focal_loss),
    "sync_bn_forward_output(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias, float eps)": Elementwise(
        formula=normalized
    ),
    "sync_bn_running_(Tensor(a!) running_mean, Tensor(b!) running_var, Tensor mean, Tensor var, float momentum, "
    "int count)": Elementwise(),
    "sync_bn_backward_data(Tensor grad_output, Tensor weight, Tensor grad_weight, Tensor grad_bias, Tensor norm, "
    "Tensor std, int count)": Elementwise(
        formula=lambda grad_output, weight, grad_weight, grad_bias, norm, std, count: (
            weight * (grad_output - (grad_weight * norm + grad_bias) / count) / std
        )
    ),
    "mymuladd(Tensor a, Tensor b, float c)": Elementwise(formula=lambda a, b, c: a * b + c),
    "mymul(Tensor a, Tensor b)": Elementwise(formula=lambda a, b: a * b),
    "myadd(Tensor a, Tensor b)": Elementwise(),
}

FORMS = register(TABLE)
