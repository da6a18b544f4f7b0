"""Write the project of these operators as an author would: generate it, then replace the functors and the tests."""

import re
import shutil
from pathlib import Path

from muladd_nb import _new

HERE = Path(__file__).parent

SCHEMAS = [
    "softmax(Tensor x, int dim=-1) -> Tensor",
    "log_softmax(Tensor x, int dim=-1) -> Tensor",
    "softmax_entropy(Tensor x) -> (Tensor, Tensor)",
    "logsumexp(Tensor x, int dim=-1, *, bool keepdim=False) -> Tensor",
    "rms_norm(Tensor x, Tensor weight, float eps=1e-5) -> Tensor",
    "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps=1e-5) -> Tensor",
    "layer_norm_stats(Tensor x, SymInt[] normalized_shape, Tensor weight, Tensor bias, float eps) "
    "-> (Tensor, Tensor, Tensor)",
    "l2_normalize(Tensor x, int dim=-1, float eps=1e-12) -> Tensor",
    "cross_entropy(Tensor logits, Tensor label, int ignore_index=-100, float smoothing=0.0) -> Tensor",
    "softmax_xentropy(Tensor logits, Tensor label, float smoothing) -> (Tensor, Tensor)",
    "causal_softmax(Tensor x, float scale) -> Tensor",
    "masked_softmax(Tensor x, Tensor mask, float scale) -> Tensor",
    "int8_quant(Tensor x) -> (Tensor, Tensor)",
    "int8_quant_azp(Tensor x) -> (Tensor, Tensor, Tensor)",
    "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float eps) -> ()",
    "rms_norm_stats(Tensor x, int[] normalized_shape, Tensor weight, float eps) -> (Tensor, Tensor)",
    "gemma_rms_norm(Tensor x, Tensor weight, float eps) -> Tensor",
    "scaled_softmax(Tensor x, float scale) -> Tensor",
    "tempered_softmax(Tensor x, Tensor temperature) -> Tensor",
    "focal_loss(Tensor logits, Tensor target, int num_real_classes, float alpha, float gamma, float smoothing) "
    "-> Tensor",
    "softmax_focal_loss(Tensor logits, Tensor target, Tensor? weight, float gamma, float alpha) -> Tensor",
    "sigmoid_alpha_blend(Tensor distances, Tensor faces, float sigma) -> Tensor",
    "group_quant_int8(Tensor x, float eps, float least, float most) -> (Tensor, Tensor)",
    "int8_vectorwise_quant(Tensor x, float threshold=0.0) -> (Tensor, Tensor)",
    "fp8_quant(Tensor x, Tensor? bound) -> (Tensor, Tensor)",
    "silu_and_mul_quant(Tensor x, Tensor y, Tensor? bound) -> (Tensor, Tensor)",
    "rms_norm_fp8_quant(Tensor x, Tensor weight, Tensor scale, float eps) -> Tensor",
    "rms_norm_int8_quant(Tensor x, Tensor weight, float eps, Tensor? residual) -> (Tensor, Tensor, Tensor)",
    "poly_norm(Tensor x, Tensor a, Tensor b, Tensor c, Tensor bias, float eps=1e-6) -> Tensor",
    "prod(Tensor x, int dim=-1) -> Tensor",
    "inf_norm(Tensor x) -> Tensor",
    "max_with_place(Tensor x, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)",
    "weighted_sum(Tensor x, Tensor weight, int dim=-1) -> Tensor",
    "variance(Tensor x, int dim=-1) -> Tensor",
    "scaled_variance(Tensor x, Tensor scale) -> (Tensor, Tensor)",
    "scaled_squares(Tensor x, Tensor scale, int dim=-1) -> Tensor",
    "scaled(Tensor scale, Tensor x) -> Tensor",
    "kept_rows(Tensor x, Tensor keep) -> Tensor",
    "scaled_norm(Tensor x, Tensor scale, int order) -> Tensor",
    "picked(Tensor x, Tensor label, int ignore_index) -> Tensor",
    "relative_to(Tensor x, Tensor place) -> Tensor",
    "last_of(Tensor x, Tensor mask) -> Tensor",
    "rotate_half(Tensor x) -> Tensor",
    "cosine_similarity(Tensor x, Tensor y) -> Tensor",
    "quaternion_dot(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h) -> Tensor",
    "least(Tensor x) -> (Tensor, Tensor, Tensor)",
    "scaled_total_out(Tensor scale, Tensor x, int dim, Tensor(a!) out) -> ()",
    "running_(Tensor(a!) state, Tensor(b!) x, float momentum) -> ()",
    "place_of_max(Tensor x) -> (Tensor, Tensor)",
]


def write_project(parent, *names):
    """Write the project ``row_ops``, with the named operators or all, into a folder; return the project's folder."""
    schemas = [schema for schema in SCHEMAS if schema.partition("(")[0] in (names or schema)]
    project = _new.create("row_ops", schemas, parent, rows=True)
    for header in (HERE / "functors.h", HERE.parent / "float8.h"):
        shutil.copy(header, project / "src")
    shutil.copy(HERE / "operators.py", project / "tests")
    entries = project / "src/operators.h"
    # These have no derivative: a float scale beside a result of C, row.at of a kept row, a place computed from a float,
    # row.at in a function of elements, and row.reduce.
    without = re.compile(r"((RmsNormInt8Quant|RelativeTo|LastOf|RotateHalf|InfNorm), .*) \| differentiable")
    entries.write_text(without.sub(r"\1", entries.read_text()))
    table = project / "python/row_ops/_operators.py"
    of_inf_norm = "formula=lambda x: x.abs().amax(-1) if x.shape[-1] else x.sum(-1)"
    inf_norm = '"inf_norm(Tensor x)": Elementwise('  # row.reduce has no derivative, but its formula has one
    table.write_text(table.read_text().replace(inf_norm, inf_norm + of_inf_norm))
    entry = '"relative_to(Tensor x, Tensor place)": Elementwise('
    if entry in table.read_text():
        shutil.copy(HERE / "relative.py", table.parent)
        text = table.read_text().replace(entry, entry + "derivative=DERIVATIVE")
        imported = "from ._layer import Elementwise, register\n"
        table.write_text(text.replace(imported, imported + "from .relative import DERIVATIVE\n"))
    said = "what tests/operators.py says"  # a test wants no text of the template
    for path in (project / "python/row_ops/ops.py", project / "README.md"):
        text = re.sub(r'"""(?:Return|Write|Divide) .*"""', f'"""Compute {said}."""', path.read_text())
        path.write_text(re.sub(r"(?m)^(\| `row_ops[^`]*` \|)[^|]*\|", rf"\1 {said} |", text))
    if not names:
        shutil.copy(HERE / "row_tests.py", project / "tests/test_rows.py")
    return project
