// Functors of norms, softmaxes, losses and quantizers of other projects. In a generated project this file is
// src/functors.h.
#pragma once

#include <cmath>

#include "elementwise/math.h"
#include "elementwise/rows/row.h"

namespace row_ops::inline ELEMENTWISE_TARGET {

using elementwise::Elements, elementwise::Optional, elementwise::Results;

struct Softmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, int64_t /*dim*/) const {
    const auto most = row.range(x);
    const auto power = row.keep([=](C x) { return elementwise::exp(x - most); }, x);
    const C inverse = 1 / row.sum(power); // one division for the row
    return row.each([=](C power) { return power * inverse; }, power);
  }
};

struct LogSoftmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, int64_t /*dim*/) const {
    // Computed as in torch. With log_sum_exp, the rounding error would be relative to x and not to the result.
    const auto most = row.range(x);
    const C log_total = elementwise::log(row.sum(row.keep([=](C x) { return elementwise::exp(x - most); }, x)));
    return row.each([=](C x) { return x - most - log_total; }, x);
  }
};

struct Logsumexp {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, int64_t /*dim*/, bool /*keepdim*/) const {
    return row.log_sum_exp(x);
  }
};

struct RmsNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, Elements<C> weight, C eps) const {
    const C squares = row.sum([](C x) { return x * x; }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    return row.each([=](C x, C w) { return x * factor * w; }, x, weight);
  }
};

struct LayerNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(
      Row& row, Elements<C> x, Optional<Elements<C>> weight, Optional<Elements<C>> bias, C eps) const {
    const C mean = row.sum(x) / row.size();
    const C squares = row.sum([=](C x) { return (x - mean) * (x - mean); }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    const auto scaled = [=](C x, Optional<C> w, Optional<C> b) {
      return (x - mean) * factor * w.value_or(1) + b.value_or(0);
    };
    return row.each(scaled, x, weight, bias);
  }
};

// apex, which keeps the mean and the inverse of the deviation.
struct LayerNormStats {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<C>, C, C> operator()(
      Row& row, Elements<C> x, Elements<C> weight, Elements<C> bias, C eps) const {
    const C mean = row.sum(x) / row.size();
    const C squares = row.sum([=](C x) { return (x - mean) * (x - mean); }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    return {row.each([=](C x, C w, C b) { return (x - mean) * factor * w + b; }, x, weight, bias), {mean, {factor}}};
  }
};

struct L2Normalize {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, int64_t /*dim*/, C eps) const {
    const C norm = elementwise::sqrt(row.sum([](C x) { return x * x; }, x));
    const C divisor = norm < eps ? eps : norm; // if they are equal, the gradient is that of clamp_min
    return row.each([=](C x) { return x / divisor; }, x);
  }
};

// If dim is not the last dimension, the elements of the gradient of a shared weight are not adjacent.
struct WeightedSum {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, Elements<C> weight, int64_t /*dim*/) const {
    return row.sum([](C x, C w) { return x * w; }, x, weight);
  }
};

// As torch.nn.functional.cross_entropy with reduction="none".
struct CrossEntropy {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C
  operator()(Row& row, Elements<C> logits, int64_t label, int64_t ignore_index, C smoothing) const {
    const bool is_ignored = label == ignore_index;
    const auto most = row.range(logits);
    const C log_total = elementwise::log(row.sum(row.keep([=](C x) { return elementwise::exp(x - most); }, logits)));
    const C mean = row.sum([=](C x) { return x - most; }, logits) / row.size();
    const C picked = row.at(logits, is_ignored ? 0 : label) - most;
    return is_ignored ? C(0) : log_total - (1 - smoothing) * picked - smoothing * mean;
  }
};

// apex, which keeps the logarithm of the sum.
struct SoftmaxXentropy {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<C, C> operator()(Row& row, Elements<C> logits, int64_t label, C smoothing) const {
    const C all = row.log_sum_exp(logits);
    const C mean = row.sum(logits) / row.size();
    return {all - (1 - smoothing) * row.at(logits, label) - smoothing * mean, {all}};
  }
};

// apex: elements after the diagonal are masked.
struct CausalSoftmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, C scale) const {
    const int64_t last = row.index();
    const C none = -INFINITY;
    const auto scaled = [=](C x, int64_t column) { return column <= last ? x * scale : none; };
    const auto most = row.range(scaled, x, row.columns());
    const auto power = [=](C x, int64_t column) { return column <= last ? elementwise::exp(x * scale - most) : C(0); };
    const auto kept = row.keep(power, x, row.columns());
    const C inverse = 1 / row.sum(kept);
    return row.each([=](C power) { return power * inverse; }, kept);
  }
};

// apex: an element is masked if the mask is true. If all elements of a row are masked, the result is 0.
struct MaskedSoftmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, Elements<bool> mask, C scale) const {
    const C none = -INFINITY;
    const auto most = row.range([=](C x, bool is_masked) { return is_masked ? none : x * scale; }, x, mask);
    const auto power = [=](C x, bool is_masked) { return is_masked ? C(0) : elementwise::exp(x * scale - most); };
    const auto kept = row.keep(power, x, mask);
    const C total = row.sum(kept);
    const C inverse = 1 / (total == 0 ? C(1) : total);
    return row.each([=](C power) { return power * inverse; }, kept);
  }
};

// vllm's dynamic_scaled_int8_quant, with one scale for each token.
struct Int8Quant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<int8_t>, float> operator()(Row& row, Elements<C> x) const {
    const C most = row.max([](C x) { return elementwise::abs(x); }, x);
    const C inverse = most > 0 ? 127 / most : C(0);
    return {
        row.each(
            [=](C x) {
              const C q = elementwise::clamp(elementwise::rint(x * inverse), C(-127), C(127));
              return static_cast<int8_t>(q == q ? q : C(0)); // int8 has no NaN
            },
            x),
        {static_cast<float>(most / 127)}};
  }
};

// vllm's dynamic_scaled_int8_quant with a zero point: the least and the greatest of a token are -128 and 127.
struct Int8QuantAzp {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<int8_t>, float, int32_t> operator()(Row& row, Elements<C> x) const {
    const C least = row.min(x), most = row.max(x);
    const C scale = most > least ? (most - least) / 255 : C(1);
    const C zero = elementwise::rint(-128 - least / scale);
    return {
        row.each(
            [=](C x) {
              const C q = elementwise::clamp(elementwise::rint(x / scale) + zero, C(-128), C(127));
              return static_cast<int8_t>(q == q ? q : C(0));
            },
            x),
        {static_cast<float>(scale), {static_cast<int32_t>(zero)}}};
  }
};

// vllm: residual becomes input + residual, and input the norm of that.
struct FusedAddRmsNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<C>, Elements<C>> operator()(
      Row& row, Elements<C> input, Elements<C> residual, Elements<C> weight, C eps) const {
    const C squares = row.sum([](C x, C y) { return (x + y) * (x + y); }, input, residual);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    return {
        row.each([=](C x, C y, C w) { return (x + y) * factor * w; }, input, residual, weight),
        {row.each([](C x, C y) { return x + y; }, input, residual)}};
  }
};

// Motif: a polynomial of normalised powers.
struct PolyNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, C a, C b, C c, C bias, C eps) const {
    const C one = row.sum([](C x) { return x * x; }, x);
    const C two = row.sum([](C x) { return x * x * (x * x); }, x);
    const C three = row.sum([](C x) { return x * x * (x * x) * (x * x); }, x);
    const C of_cube = a * elementwise::rsqrt(three / row.size() + eps);
    const C of_square = b * elementwise::rsqrt(two / row.size() + eps);
    const C of_x = c * elementwise::rsqrt(one / row.size() + eps);
    return row.each([=](C x) { return ((of_cube * x + of_square) * x + of_x) * x + bias; }, x);
  }
};

// The product, and the largest magnitude by a join of our own. They are of float, and not C, so they have no
// derivative.
struct ProductAndSize {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<float, float> operator()(Row& row, Elements<C> x) const {
    const auto larger = [](auto a, auto b) { return elementwise::max(a, b); };
    const C size = row.reduce(C(0), larger, [](C x) { return elementwise::abs(x); }, x);
    return {static_cast<float>(row.product(x)), {static_cast<float>(size)}};
  }
};

struct MaxWithPlace {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<C, int64_t> operator()(
      Row& row, Elements<C> x, int64_t /*dim*/, bool /*keepdim*/) const {
    return {row.max(x), {row.argmax(x)}};
  }
};

// One value for each row, which has a derivative.
struct ScaledVariance {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<C>, C> operator()(Row& row, Elements<C> x, C scale) const {
    const C mean = row.sum(x) / row.size();
    const C variance = row.sum([=](C x) { return (x - mean) * (x - mean); }, x) / row.size();
    return {row.each([=](C x) { return (x - mean) * scale; }, x), {variance * scale}};
  }
};

} // namespace row_ops::inline ELEMENTWISE_TARGET
