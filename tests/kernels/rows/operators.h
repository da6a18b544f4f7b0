// Some operators of tests/over_rows, which together use every feature of a kernel: several results, places, optional
// tensors, written tensors. Derivatives take long to compile, so only a few operators have them.
#pragma once

#include "elementwise/operator.h"
#include "over_rows/functors.h"

namespace row_ops {

using elementwise::Operator, elementwise::functional, elementwise::updating, elementwise::differentiable;

// This functor keeps two rows. The first one is in the memory of its result, and only the second one needs more memory.
struct TwoKept {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x) const {
    const auto positive = row.keep([](C x) { return elementwise::exp(x); }, x);
    const auto negative = row.keep([](C x) { return elementwise::exp(-x); }, x);
    const C both = row.sum(positive) + row.sum(negative);
    return row.each([=](C p, C n) { return (p - n) / both; }, positive, negative);
  }
};

// clang-format off
using Operators = elementwise::List<
    Operator<"softmax(Tensor x, int dim=-1)", Softmax, functional>,
    Operator<"rms_norm(Tensor x, Tensor weight, float eps=1e-5)", RmsNorm, functional | differentiable>,
    Operator<"layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps=1e-5)", LayerNorm, functional>,
    Operator<"cross_entropy(Tensor logits, Tensor label, int ignore_index=-100, float smoothing=0.0)", CrossEntropy, functional | differentiable>,
    Operator<"causal_softmax(Tensor x, float scale)", CausalSoftmax, functional | differentiable>,
    Operator<"masked_softmax(Tensor x, Tensor mask, float scale)", MaskedSoftmax, functional>,
    Operator<"int8_quant(Tensor x)", Int8Quant, functional>,
    Operator<"fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float eps)", FusedAddRmsNorm, updating>,
    Operator<"max_with_place(Tensor x, int dim=-1, bool keepdim=False)", MaxWithPlace, functional | differentiable>,
    Operator<"scaled_variance(Tensor x, Tensor scale)", ScaledVariance, functional | differentiable>,
    Operator<"relative_to(Tensor x, Tensor place)", RelativeTo, functional>,
    Operator<"two_kept(Tensor x)", TwoKept, functional | differentiable>
>;
// clang-format on

} // namespace row_ops
