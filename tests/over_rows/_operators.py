"""What the operators over rows promise. In a generated project this file is beside the layer."""

from __future__ import annotations

from ._layer import Elementwise, register

TABLE = {
    "softmax(Tensor x, int dim=-1)": Elementwise(),
    "log_softmax(Tensor x, int dim=-1)": Elementwise(),
    "logsumexp(Tensor x, int dim=-1, bool keepdim=False)": Elementwise(),
    "rms_norm(Tensor x, Tensor weight, float eps=1e-5)": Elementwise(),
    "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps=1e-5)": Elementwise(),
    "l2_normalize(Tensor x, int dim=-1, float eps=1e-12)": Elementwise(),
    "cross_entropy(Tensor logits, Tensor label, int ignore_index=-100, float smoothing=0.0)": Elementwise(),
    "causal_softmax(Tensor x, float scale)": Elementwise(),
    "masked_softmax(Tensor x, Tensor mask, float scale)": Elementwise(),
    "int8_quant(Tensor x)": Elementwise(),
    "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float eps)": Elementwise(),
    "poly_norm(Tensor x, float a, float b, float c, float bias, float eps=1e-6)": Elementwise(),
    "max_with_place(Tensor x, int dim=-1, bool keepdim=False)": Elementwise(),
    "scaled_variance(Tensor x, Tensor scale)": Elementwise(),
}

FORMS = register(TABLE)
