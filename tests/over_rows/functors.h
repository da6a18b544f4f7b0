// Functors of norms, softmaxes, losses and quantizers of other projects. In a generated project this file is
// src/functors.h.
#pragma once

#include <cmath>

#include "elementwise/math.h"
#include "elementwise/rows/row.h"
#include "float8.h"

namespace row_ops::inline ELEMENTWISE_TARGET {

using elementwise::Elements, elementwise::Optional, elementwise::Probabilities, elementwise::Results;

struct Softmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Probabilities<C> operator()(Row& row, Elements<C> x, int64_t /*dim*/) const {
    return row.softmax(x);
  }
};

struct LogSoftmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, int64_t /*dim*/) const {
    // Computed as in torch. With log_sum_exp, the rounding error would be relative to x and not to the result.
    const auto most = row.range(x);
    const C log_total = elementwise::log(row.sum([=](C x) { return elementwise::exp(x - most); }, x));
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
    const C mean = row.mean(x);
    const C squares = row.sum([=](C x) { return (x - mean) * (x - mean); }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    const auto scaled = [=](C x, Optional<C> w, Optional<C> b) {
      return (x - mean) * factor * w.value_or(1) + b.value_or(0);
    };
    return row.each(scaled, x, weight, bias);
  }
};

// apex: it keeps the mean and the inverse of the deviation. A row extends over several dimensions.
struct LayerNormStats {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<C>, C, C> operator()(
      Row& row, Elements<C> x, int64_t /*normalized_shape*/, Elements<C> weight, Elements<C> bias, C eps) const {
    const C mean = row.mean(x);
    const C squares = row.sum([=](C x) { return (x - mean) * (x - mean); }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    return {row.each([=](C x, C w, C b) { return (x - mean) * factor * w + b; }, x, weight, bias), {mean, {factor}}};
  }
};

// apex: it keeps the inverse of the root mean square.
struct RmsNormStats {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<C>, C> operator()(
      Row& row, Elements<C> x, int64_t /*normalized_shape*/, Elements<C> weight, C eps) const {
    const C squares = row.sum([](C x) { return x * x; }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    return {row.each([=](C x, C w) { return x * factor * w; }, x, weight), {factor}};
  }
};

// sgl-kernel: Gemma stores its weights minus 1.
struct GemmaRmsNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, Elements<C> weight, C eps) const {
    const C squares = row.sum([](C x) { return x * x; }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    return row.each([=](C x, C w) { return x * factor * (1 + w); }, x, weight);
  }
};

// A distribution and its entropy, as reinforcement learning needs them.
struct SoftmaxEntropy {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Probabilities<C>, C> operator()(Row& row, Elements<C> x) const {
    const auto p = row.softmax(x);
    const C entropy = -row.sum([](C p) { return p == 0 ? C(0) : p * elementwise::log(p); }, p);
    return {p, {entropy}};
  }
};

// apex
struct ScaledSoftmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Probabilities<C> operator()(Row& row, Elements<C> x, C scale) const {
    return row.softmax([=](C x) { return x * scale; }, x);
  }
};

// vllm: each row has its own temperature. The backward pass reads x, for the gradient of the temperature.
struct TemperedSoftmax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Probabilities<C> operator()(Row& row, Elements<C> x, C temperature) const {
    return row.softmax([=](C x) { return x / temperature; }, x);
  }
};

// log(1 + exp(x))
template <class C>
ELEMENTWISE_INLINE C softplus(C x) {
  return elementwise::max(x, C(0)) + elementwise::log1p(elementwise::exp(-elementwise::abs(x)));
}

// apex: the loss of an anchor, over its classes. A target of -1 is no class, and one of -2 is ignored. Classes from
// num_real_classes on are padding. The caller adds up the losses, and divides the sum.
struct FocalLoss {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(
      Row& row, Elements<C> logits, int64_t target, int64_t num_real_classes, C alpha, C gamma, C smoothing) const {
    const auto loss = [=](C x, int64_t column) {
      const bool is_class = column == target;
      const C p = elementwise::sigmoid(is_class ? -x : x);
      const C wanted = is_class ? 1 - smoothing / 2 : smoothing / 2;
      const C entropy = softplus(-x) + (1 - wanted) * x;
      const C value = (is_class ? alpha : 1 - alpha) * elementwise::pow(p, gamma) * entropy;
      return target == -2 || column >= num_real_classes ? C(0) : value;
    };
    return row.sum(loss, logits, row.columns());
  }
};

// mmcv: the loss of a row of logits. A negative target is ignored. There may be a weight for each class.
struct SoftmaxFocalLoss {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C
  operator()(Row& row, Elements<C> logits, int64_t target, Optional<Elements<C>> weight, C gamma, C alpha) const {
    const int64_t label = target < 0 ? 0 : target;
    const C log_p = row.at(logits, label) - row.log_sum_exp(logits);
    const C of_class = weight ? row.at(*weight, label) : C(1);
    const C loss = -alpha * elementwise::pow(1 - elementwise::exp(log_p), gamma) * log_p * of_class;
    return target < 0 ? C(0) : loss;
  }
};

// pytorch3d: how much of a pixel its faces cover. A negative face is none.
struct SigmoidAlphaBlend {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> distances, Elements<int64_t> faces, C sigma) const {
    const auto free = [=](C d, int64_t face) { return face < 0 ? C(1) : elementwise::sigmoid(d / sigma); };
    return 1 - row.product(free, distances, faces);
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

// If dim is not the last dimension, the scale of each row lacks a dimension in the middle.
struct ScaledSquares {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, C scale, int64_t /*dim*/) const {
    return row.sum([](C x) { return x * x; }, x) * scale;
  }
};

// The mask is true for the first elements of a row; the result is the last of them.
struct LastOf {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, Elements<bool> mask) const {
    const C count = row.sum([](bool is_counted) { return is_counted ? C(1) : C(0); }, mask);
    return row.at(x, static_cast<int64_t>(count) - 1);
  }
};

// Rotary embeddings: a function of elements reads another element.
struct RotateHalf {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x) const {
    const auto half = static_cast<int64_t>(row.size()) / 2;
    const auto rotated = [&row, x, half](int64_t column) {
      return column < half ? -row.at(x, column + half) : row.at(x, column - half);
    };
    return row.each(rotated, row.columns());
  }
};

// The first tensor has one value for each row.
struct Scaled {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, C scale, Elements<C> x) const {
    return row.each([=](C x) { return x * scale; }, x);
  }
};

// A bool for each row is no label.
struct KeptRows {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, bool keep) const {
    return row.each([=](C x) { return keep ? x : C(0); }, x);
  }
};

// As torch.nn.functional.cross_entropy with reduction="none".
struct CrossEntropy {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C
  operator()(Row& row, Elements<C> logits, int64_t label, int64_t ignore_index, C smoothing) const {
    const bool is_ignored = label == ignore_index;
    const auto most = row.range(logits);
    const C log_total = elementwise::log(row.sum([=](C x) { return elementwise::exp(x - most); }, logits));
    const C mean = row.sum([=](C x) { return x - most; }, logits) / row.size();
    const C picked = row.at(logits, is_ignored ? 0 : label) - most;
    const C loss = log_total - (1 - smoothing) * picked;
    return is_ignored ? C(0) : smoothing == 0 ? loss : loss - smoothing * mean; // a mean of -inf counts only if it must
  }
};

// apex: it keeps the logarithm of the sum.
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
  ELEMENTWISE_FUNCTION Probabilities<C> operator()(Row& row, Elements<C> x, C scale) const {
    const int64_t last = row.index();
    const C none = -INFINITY;
    return row.softmax([=](C x, int64_t column) { return column <= last ? x * scale : none; }, x, row.columns());
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

// Rounds, and keeps within a range of int8, which has no NaN.
template <class C>
ELEMENTWISE_INLINE int8_t to_int8(C x, C least, C most) {
  const C q = elementwise::clamp(elementwise::rint(x), least, most);
  return static_cast<int8_t>(q == q ? q : C(0));
}

// vllm's dynamic_scaled_int8_quant, with one scale for each token.
struct Int8Quant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<int8_t>, float> operator()(Row& row, Elements<C> x) const {
    const C most = row.max([](C x) { return elementwise::abs(x); }, x);
    const C inverse = most > 0 ? 127 / most : C(0);
    return {row.each([=](C x) { return to_int8(x * inverse, C(-127), C(127)); }, x), {static_cast<float>(most / 127)}};
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
        row.each([=](C x) { return to_int8(elementwise::rint(x / scale) + zero, C(-128), C(127)); }, x),
        {static_cast<float>(scale), {static_cast<int32_t>(zero)}}};
  }
};

// sgl-kernel: the rows are the groups, x.unflatten(-1, (-1, group_size)).
struct GroupQuantInt8 {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<int8_t>, float> operator()(
      Row& row, Elements<C> x, C eps, C least, C most) const {
    const C scale = elementwise::max(row.max([](C x) { return elementwise::abs(x); }, x), eps) / most;
    return {row.each([=](C x) { return to_int8(x / scale, least, most); }, x), {static_cast<float>(scale)}};
  }
};

// bitsandbytes: elements from the threshold on are outliers, which become 0 and do not count for the scale.
struct Int8VectorwiseQuant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<int8_t>, float> operator()(Row& row, Elements<C> x, C threshold) const {
    const auto inlier = [=](C x) { return threshold > 0 && elementwise::abs(x) >= threshold ? C(0) : x; };
    const C most = row.max([=](C x) { return elementwise::abs(inlier(x)); }, x);
    const C factor = most > 0 ? 127 / most : C(0);
    return {row.each([=](C x) { return to_int8(inlier(x) * factor, C(-127), C(127)); }, x), {static_cast<float>(most)}};
  }
};

// vllm: the scale of a row whose greatest magnitude is given, for float8.
template <class C>
ELEMENTWISE_INLINE C scale_of_float8(C most, Optional<float> bound) {
  const C kept = bound ? elementwise::min(most, static_cast<C>(*bound)) : most;
  return elementwise::max(kept / 448, C(1.0 / (448 * 512)));
}

// vllm, sgl-kernel: one scale for each token. x.flatten() has one for the whole tensor.
struct Fp8Quant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<uint8_t>, float> operator()(
      Row& row, Elements<C> x, Optional<float> bound) const {
    const C scale = scale_of_float8(row.max([](C x) { return elementwise::abs(x); }, x), bound);
    return {
        row.each([=](C x) { return float8::to_float8(static_cast<float>(x / scale)); }, x),
        {static_cast<float>(scale)}};
  }
};

// vllm's silu_and_mul_per_block_quant: x and y are the halves of its input, and the rows are the groups of these.
struct SiluAndMulQuant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<uint8_t>, float> operator()(
      Row& row, Elements<C> x, Elements<C> y, Optional<float> bound) const {
    const auto product = row.keep([](C x, C y) { return x * elementwise::sigmoid(x) * y; }, x, y);
    const C scale = scale_of_float8(row.max([](C x) { return elementwise::abs(x); }, product), bound);
    return {
        row.each([=](C x) { return float8::to_float8(static_cast<float>(x / scale)); }, product),
        {static_cast<float>(scale)}};
  }
};

// vllm: with one scale for the whole tensor, of shape [1].
struct RmsNormFp8Quant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<uint8_t> operator()(
      Row& row, Elements<C> x, Elements<C> weight, float scale, C eps) const {
    const C squares = row.sum([](C x) { return x * x; }, x);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    const C inverse = 1 / static_cast<C>(scale);
    return row.each(
        [=](C x, C w) { return float8::to_float8(static_cast<float>(x * factor * w * inverse)); }, x, weight);
  }
};

// vllm: adds a residual, if there is one, to the input first, and returns the sum, too.
struct RmsNormInt8Quant {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<int8_t>, float, Elements<C>> operator()(
      Row& row, Elements<C> x, Elements<C> weight, C eps, Optional<Elements<C>> residual) const {
    const auto total = row.keep([](C x, Optional<C> y) { return x + y.value_or(0); }, x, residual);
    const C squares = row.sum([](C x) { return x * x; }, total);
    const C factor = elementwise::rsqrt(squares / row.size() + eps);
    const C most = row.max([=](C x, C w) { return elementwise::abs(x * factor * w); }, total, weight);
    const C inverse = most > 0 ? 127 / most : C(0);
    return {
        row.each([=](C x, C w) { return to_int8(x * factor * w * inverse, C(-127), C(127)); }, total, weight),
        {static_cast<float>(most / 127), {row.each(total)}}};
  }
};

// vllm: residual becomes input + residual, and input becomes the norm of this sum.
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

struct Prod {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, int64_t /*dim*/) const {
    return row.product(x);
  }
};

// The largest magnitude, by our own join function.
struct InfNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x) const {
    const auto larger = [](auto a, auto b) { return elementwise::max(a, b); };
    return row.reduce(C(0), larger, [](C x) { return elementwise::abs(x); }, x);
  }
};

struct MaxWithPlace {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<C, int64_t> operator()(
      Row& row, Elements<C> x, int64_t /*dim*/, bool /*keepdim*/) const {
    return {row.max(x), {row.argmax(x)}};
  }
};

// The result has one value for each row, and has a derivative.
struct ScaledVariance {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<Elements<C>, C> operator()(Row& row, Elements<C> x, C scale) const {
    const C mean = row.mean(x);
    const C variance = row.sum([=](C x) { return (x - mean) * (x - mean); }, x) / row.size();
    return {row.each([=](C x) { return (x - mean) * scale; }, x), {variance * scale}};
  }
};

// As exact as torch.var, also where the mean is much larger than the deviations. The rounding error of the mean is the
// mean of x - mean.
struct Variance {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, int64_t /*dim*/) const {
    const C mean = row.mean(x);
    const C error = row.mean([=](C x) { return x - mean; }, x);
    const auto deviation = [=](C x) { return x - mean - error; };
    return row.mean([=](C x) { return deviation(x) * deviation(x); }, x);
  }
};

// The scale has another dtype than C, so there is no derivative by it.
struct ScaledNorm {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, float scale, elementwise::OneOf<1, 2> order) const {
    if (order == 1) return row.sum([](C x) { return elementwise::abs(x); }, x) * C(scale);
    return elementwise::sqrt(row.sum([](C x) { return x * x; }, x)) * C(scale);
  }
};

// Reads a place only for some labels.
struct Picked {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, int64_t label, int64_t ignore_index) const {
    if (label == ignore_index) return C(0);
    return row.at(x, label);
  }
};

// Reads an element of the kept row, and searches that row, before the result overwrites it.
struct RelativeTo {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x, int64_t place) const {
    const auto kept = row.keep([](C x) { return 2 * x; }, x);
    const C one = row.at(kept, place);
    const int64_t least = row.argmin(kept);
    return row.each([=](C x, int64_t column) { return column == least ? C(0) : x - one; }, kept, row.columns());
  }
};

// As torch.nn.functional.cosine_similarity. The compiler chooses which reduction of the expression it computes first.
struct CosineSimilarity {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, Elements<C> x, Elements<C> y) const {
    return row.sum([](C x, C y) { return x * y; }, x, y) /
           elementwise::sqrt(row.sum([](C x) { return x * x; }, x) * row.sum([](C y) { return y * y; }, y));
  }
};

// QuatE: the score of two embeddings of quaternions, whose parts lie in separate tensors.
struct QuaternionDot {
  using dtypes = elementwise::List<float>;
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(
      Row& row, Elements<C> a, Elements<C> b, Elements<C> c, Elements<C> d, Elements<C> e, Elements<C> f, Elements<C> g,
      Elements<C> h) const {
    const auto score = [](C a, C b, C c, C d, C e, C f, C g, C h) { return a * e + b * f + c * g + d * h; };
    return row.sum(score, a, b, c, d, e, f, g, h);
  }
};

// Takes integers. Their sum, and the negative of the smallest one, do not fit into their type.
struct Least {
  using dtypes = elementwise::List<uint8_t, int8_t, int64_t>;
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<C, int64_t, int64_t> operator()(Row& row, Elements<C> x) const {
    return {row.min(x), {row.argmin(x), {row.sum(x)}}};
  }
};

// It only writes. The first tensor and the result have one value for each row.
struct ScaledTotal {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION C operator()(Row& row, C scale, Elements<C> x, int64_t /*dim*/) const {
    return row.sum(x) * scale;
  }
};

// Updates a tensor that has one value for each row, and one that has a value for each element.
struct Running {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<C, Elements<C>> operator()(Row& row, C state, Elements<C> x, C momentum) const {
    const C now = state + (row.mean(x) - state) * momentum;
    return {now, {row.each([=](C x) { return x - now; }, x)}};
  }
};

// The first result is an integer, and the second has a derivative.
struct PlaceOfMax {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Results<int64_t, C> operator()(Row& row, Elements<C> x) const {
    return {row.argmax(x), {row.max(x)}};
  }
};

} // namespace row_ops::inline ELEMENTWISE_TARGET
