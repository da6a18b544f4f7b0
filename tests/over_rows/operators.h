// The entries of these functors. In a generated project this file is src/operators.h.
#pragma once

#include "elementwise/operator.h"
#include "functors.h"

namespace row_ops {

using elementwise::differentiable, elementwise::Operator;
using elementwise::functional, elementwise::writing, elementwise::out, elementwise::updating;

// clang-format off
using Operators = elementwise::List<
    Operator<"softmax(Tensor x, int dim=-1)", Softmax, functional | writing | out | differentiable>,
    Operator<"log_softmax(Tensor x, int dim=-1)", LogSoftmax, functional | writing | out | differentiable>,
    Operator<"softmax_entropy(Tensor x)", SoftmaxEntropy, functional | differentiable>,
    Operator<"logsumexp(Tensor x, int dim=-1, *, bool keepdim=False)", Logsumexp, functional | writing | out | differentiable>,
    Operator<"rms_norm(Tensor x, Tensor weight, float eps=1e-05)", RmsNorm, functional | writing | out | differentiable>,
    Operator<"layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps=1e-05)", LayerNorm, functional | writing | out | differentiable>,
    Operator<"layer_norm_stats(Tensor x, int[] normalized_shape, Tensor weight, Tensor bias, float eps)", LayerNormStats, functional | differentiable>,
    Operator<"l2_normalize(Tensor x, int dim=-1, float eps=1e-12)", L2Normalize, functional | writing | out | differentiable>,
    Operator<"cross_entropy(Tensor logits, Tensor label, int ignore_index=-100, float smoothing=0.0)", CrossEntropy, functional | writing | out | differentiable>,
    Operator<"softmax_xentropy(Tensor logits, Tensor label, float smoothing)", SoftmaxXentropy, functional | differentiable>,
    Operator<"causal_softmax(Tensor x, float scale)", CausalSoftmax, functional | writing | out | differentiable>,
    Operator<"masked_softmax(Tensor x, Tensor mask, float scale)", MaskedSoftmax, functional | writing | out | differentiable>,
    Operator<"int8_quant(Tensor x)", Int8Quant, functional | differentiable>,
    Operator<"int8_quant_azp(Tensor x)", Int8QuantAzp, functional | differentiable>,
    Operator<"fused_add_rms_norm(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float eps)", FusedAddRmsNorm, updating>,
    Operator<"rms_norm_stats(Tensor x, int[] normalized_shape, Tensor weight, float eps)", RmsNormStats, functional | differentiable>,
    Operator<"gemma_rms_norm(Tensor x, Tensor weight, float eps)", GemmaRmsNorm, functional | writing | out | differentiable>,
    Operator<"scaled_softmax(Tensor x, float scale)", ScaledSoftmax, functional | writing | out | differentiable>,
    Operator<"focal_loss(Tensor logits, Tensor target, int num_real_classes, float alpha, float gamma, float smoothing)", FocalLoss, functional | writing | out | differentiable>,
    Operator<"softmax_focal_loss(Tensor logits, Tensor target, Tensor? weight, float gamma, float alpha)", SoftmaxFocalLoss, functional | writing | out | differentiable>,
    Operator<"sigmoid_alpha_blend(Tensor distances, Tensor faces, float sigma)", SigmoidAlphaBlend, functional | writing | out | differentiable>,
    Operator<"group_quant_int8(Tensor x, float eps, float least, float most)", GroupQuantInt8, functional | differentiable>,
    Operator<"int8_vectorwise_quant(Tensor x, float threshold=0.0)", Int8VectorwiseQuant, functional | differentiable>,
    Operator<"fp8_quant(Tensor x, Tensor? bound)", Fp8Quant, functional | differentiable>,
    Operator<"silu_and_mul_quant(Tensor x, Tensor y, Tensor? bound)", SiluAndMulQuant, functional | differentiable>,
    Operator<"rms_norm_fp8_quant(Tensor x, Tensor weight, Tensor scale, float eps)", RmsNormFp8Quant, functional | writing | out | differentiable>,
    Operator<"rms_norm_int8_quant(Tensor x, Tensor weight, float eps, Tensor? residual)", RmsNormInt8Quant, functional>,
    Operator<"poly_norm(Tensor x, float a, float b, float c, float bias, float eps=1e-06)", PolyNorm, functional | writing | out | differentiable>,
    Operator<"product_and_size(Tensor x)", ProductAndSize, functional | differentiable>,
    Operator<"max_with_place(Tensor x, int dim=-1, bool keepdim=False)", MaxWithPlace, functional | differentiable>,
    Operator<"weighted_sum(Tensor x, Tensor weight, int dim=-1)", WeightedSum, functional | writing | out | differentiable>,
    Operator<"scaled_variance(Tensor x, Tensor scale)", ScaledVariance, functional | differentiable>,
    Operator<"scaled_squares(Tensor x, Tensor scale, int dim=-1)", ScaledSquares, functional | writing | out | differentiable>,
    Operator<"scaled_norm(Tensor x, Tensor scale)", ScaledNorm, functional | writing | out | differentiable>,
    Operator<"picked(Tensor x, Tensor label, int ignore_index)", Picked, functional | writing | out | differentiable>,
    Operator<"least(Tensor x)", Least, functional | differentiable>
>;
// clang-format on

} // namespace row_ops
