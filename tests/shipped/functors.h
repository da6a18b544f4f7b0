// Element-wise operators that projects ship, computed as in their sources. Where a project computes with two halves of
// a tensor, an operator here has two tensors, which may be views of one.
#pragma once

#include <cmath>

#include "elementwise/math.h"
#include "float8.h"

namespace shipped_ops::inline ELEMENTWISE_TARGET {

using namespace elementwise;
using namespace float8;

// ---- vllm: activations

template <class C>
ELEMENTWISE_INLINE C silu(C x) {
  return x * sigmoid(x);
}
template <class C>
ELEMENTWISE_INLINE C gelu(C x) {
  return C(0.5) * x * (C(1) + erf(x * C(0.70710678118654752440)));
}
template <class C>
ELEMENTWISE_INLINE C gelu_tanh(C x) {
  return C(0.5) * x * (C(1) + tanh(C(0.79788456080286535588) * (x + C(0.044715) * x * x * x)));
}

struct SiluAndMul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, C y) const {
    return silu(x) * y;
  }
};

struct MulAndSilu {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, C y) const {
    return x * silu(y);
  }
};

struct GeluAndMul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, C y) const {
    return gelu(x) * y;
  }
};

struct GeluTanhAndMul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, C y) const {
    return gelu_tanh(x) * y;
  }
};

struct FatreluAndMul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x, C y, C threshold) const {
    return (x > threshold ? x : C(0)) * y;
  }
};

struct SwigluoaiAndMul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C gate, C up, C alpha, C limit) const {
    const C x = min(gate, limit);
    return (clamp(up, -limit, limit) + C(1)) * (x * sigmoid(x * alpha));
  }
};

struct GeluNew {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x) const {
    return gelu_tanh(x);
  }
};

struct GeluFast {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x) const {
    return C(0.5) * x * (C(1) + tanh(x * C(0.79788456080286535588) * (C(1) + C(0.044715) * x * x)));
  }
};

struct GeluQuick {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C x) const {
    return x * sigmoid(C(1.702) * x);
  }
};

// ---- vllm: quantized to 8 bits

using Quantized = List<float16, bfloat16, float>;

struct SiluAndMulQuant {
  using dtypes = Quantized;
  template <class C>
  ELEMENTWISE_FUNCTION uint8_t operator()(C x, C y, float scale) const {
    return to_float8(silu(x) * y / scale);
  }
};

struct StaticScaledFp8Quant {
  using dtypes = Quantized;
  template <class C>
  ELEMENTWISE_FUNCTION uint8_t operator()(C x, float scale) const {
    return to_float8(x / scale);
  }
};

struct StaticScaledInt8Quant {
  using dtypes = Quantized;
  template <class C>
  ELEMENTWISE_FUNCTION int8_t operator()(C x, float scale, Optional<int32_t> azp) const {
    const C q = std::rint(x / scale) + static_cast<C>(azp.value_or(0));
    return static_cast<int8_t>(q < -128 ? -128 : q > 127 ? 127 : q == q ? q : C(0));
  }
};

struct ConvertFp8 {
  using dtypes = Quantized;
  template <class C>
  ELEMENTWISE_FUNCTION uint8_t operator()(C source, C scale) const {
    return to_float8(source / scale);
  }
};

struct ConvertFromFp8 {
  using dtypes = Quantized;
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C, uint8_t source, C scale) const {
    return from_float8(source) * scale;
  }
};

// ---- vllm: sampling and attention

struct ApplyRepetitionPenalties {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C logits, bool in_prompt, bool in_output, C penalty) const {
    const C p = in_prompt || in_output ? penalty : C(1);
    return logits > C(0) ? logits / p : logits * p;
  }
};

struct MergeAttnStates {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C prefix, float prefix_lse, C suffix, float suffix_lse) const {
    const float most = max(prefix_lse, suffix_lse);
    const float of_prefix = exp(prefix_lse - most), of_suffix = exp(suffix_lse - most);
    return (prefix * of_prefix + suffix * of_suffix) / (of_prefix + of_suffix);
  }
};

struct MergeLse {
  using dtypes = List<float>;
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C prefix, C suffix) const {
    const C most = max(prefix, suffix);
    return log(exp(prefix - most) + exp(suffix - most)) + most;
  }
};

// ---- apex: the scale of a loss, rotary embedding

struct UpdateScaleHysteresis {
  using dtypes = List<float>;
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, int32_t, int32_t> operator()(
      C scale, int32_t growth, int32_t hysteresis, C found_inf, C growth_factor, C backoff_factor,
      int64_t growth_interval, int64_t most_hysteresis) const {
    const bool found = found_inf > C(0);
    const int32_t left = found ? hysteresis - 1 : static_cast<int32_t>(most_hysteresis);
    const bool backs_off = found && left <= 0, grows = !found && growth + 1 == growth_interval;
    const C grown = scale * growth_factor;
    const C next = backs_off ? scale * backoff_factor : grows && grown - grown == C(0) ? grown : scale;
    return {next, {found || grows ? 0 : growth + 1, {left}}};
  }
};

struct FusedRope {
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(C x1, C x2, float freqs1, float freqs2) const {
    const C f1 = static_cast<C>(freqs1), f2 = static_cast<C>(freqs2);
    return {x1 * cos(f1) - x2 * sin(f1), {x2 * cos(f2) + x1 * sin(f2)}};
  }
};

struct FusedRopeCached {
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(C x1, C x2, C cos1, C cos2, C sin1, C sin2) const {
    return {x1 * cos1 - x2 * sin1, {x2 * cos2 + x1 * sin2}};
  }
};

// ---- stylegan3 and mmcv: an activation after a bias, losses, normalization

template <class C>
ELEMENTWISE_INLINE C activated(C x, int64_t act, C alpha) {
  switch (act) {
    case 2:
      return x > C(0) ? x : C(0);
    case 3:
      return x > C(0) ? x : x * alpha;
    case 4:
      return tanh(x);
    case 5:
      return sigmoid(x);
    case 6:
      return x > C(0) ? x : expm1(x);
    case 7:
      return C(1.0507009873554804934193349852946) * (x > C(0) ? x : C(1.6732632423543772848170429916717) * expm1(x));
    case 8:
      return max(x, C(0)) + log1p(exp(-abs(x)));
    case 9:
      return silu(x);
    default:
      return x;
  }
}

struct BiasAct {
  template <class C>
  ELEMENTWISE_FUNCTION C
  operator()(C x, Optional<C> b, OneOf<1, 2, 3, 4, 5, 6, 7, 8, 9> act, C alpha, C gain, C clamp) const {
    const C y = activated(x + b.value_or(0), act, alpha) * gain;
    return clamp >= C(0) ? elementwise::clamp(y, -clamp, clamp) : y;
  }
};

struct FusedBiasLeakyrelu {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C input, Optional<C> bias, C alpha, C scale) const {
    const C x = input + bias.value_or(0);
    return (x > C(0) ? x : x * alpha) * scale;
  }
};

struct SigmoidFocalLoss {
  template <class C>
  ELEMENTWISE_FUNCTION C
  operator()(C input, int64_t target, int64_t of_column, Optional<C> weight, C gamma, C alpha) const {
    constexpr C kLeast = C(1.17549435e-38);
    const C p = sigmoid(input), q = C(1) - p;
    const bool is_target = target == of_column;
    // Both sides of a condition are computed, so the arguments are chosen, and not the results.
    const C factor = is_target ? -alpha : alpha - C(1), right = is_target ? p : q, wrong = is_target ? q : p;
    return factor * pow(wrong, gamma) * log(max(right, kLeast)) * weight.value_or(1);
  }
};

struct SyncBnForwardOutput {
  template <class C>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(C input, C mean, C var, C weight, C bias, C eps) const {
    const C norm = (input - mean) / sqrt(var + eps);
    return {norm, {norm * weight + bias}};
  }
};

struct SyncBnRunning {
  template <class C>
  ELEMENTWISE_FUNCTION Results<float, float> operator()(
      float running_mean, float running_var, C mean, C var, double momentum, int64_t count) const {
    const auto by = static_cast<float>(momentum), n = static_cast<float>(count);
    return {
        running_mean + by * (static_cast<float>(mean) - running_mean),
        {running_var + by * (static_cast<float>(var) * n / (n - 1) - running_var)}};
  }
};

struct SyncBnBackwardData {
  template <class C>
  ELEMENTWISE_FUNCTION C
  operator()(C grad_output, C weight, C grad_weight, C grad_bias, C norm, C std, int64_t count) const {
    return weight * (grad_output - (grad_weight * norm + grad_bias) / static_cast<C>(count)) / std;
  }
};

// ---- extension-cpp, PyTorch's tutorial

struct Mymuladd {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b, C c) const {
    return a * b + c;
  }
};

struct Mymul {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b) const {
    return a * b;
  }
};

struct Myadd {
  template <class C>
  ELEMENTWISE_FUNCTION C operator()(C a, C b) const {
    return a + b;
  }
};

} // namespace shipped_ops::inline ELEMENTWISE_TARGET
