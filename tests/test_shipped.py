"""Operators that other projects ship: as an entry, as a kernel, or refused with a reason."""

import csv
import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from generated import install, its_tests, run

from muladd_nb import _new
from muladd_nb._new._schema import read

HERE = Path(__file__).parent / "shipped"
# Schemas of vllm, apex, stylegan3, mmcv, torchvision, ao, mamba, causal-conv1d, extension-cpp, pytorch_scatter and
# xformers, as their sources define them.
SHIPPED = list(csv.DictReader((HERE / "census.csv").open()))
REFUSED = {
    "stylegan3 filtered_lrelu": "its results must be tensors, one by one, as compiled programs need, got ",
    "mamba selective_scan_fwd": "its results must be tensors, one by one, as compiled programs need, got List[Tensor]",
}
# The entries of those that are element-wise. Where a project computes with two halves of an input, these operators have
# two tensors, which may be views of one. A float8 is passed as its bits, and a class with the number of each column.
SCHEMAS = [
    "silu_and_mul(Tensor x, Tensor y) -> Tensor",
    "mul_and_silu(Tensor x, Tensor y) -> Tensor",
    "gelu_and_mul(Tensor x, Tensor y) -> Tensor",
    "gelu_tanh_and_mul(Tensor x, Tensor y) -> Tensor",
    "fatrelu_and_mul(Tensor x, Tensor y, float threshold) -> Tensor",
    "swigluoai_and_mul(Tensor gate, Tensor up, float alpha=1.702, float limit=7.0) -> Tensor",
    "gelu_new(Tensor x) -> Tensor",
    "gelu_fast(Tensor x) -> Tensor",
    "gelu_quick(Tensor x) -> Tensor",
    "silu_and_mul_quant(Tensor x, Tensor y, Tensor scale) -> Tensor",
    "static_scaled_fp8_quant(Tensor x, Tensor scale) -> Tensor",
    "static_scaled_int8_quant(Tensor x, Tensor scale, Tensor? azp=None) -> Tensor",
    "convert_fp8(Tensor source, float scale) -> Tensor",
    "convert_from_fp8_(Tensor! dst, Tensor source, float scale) -> ()",
    "apply_repetition_penalties_(Tensor! logits, Tensor in_prompt, Tensor in_output, Tensor penalties) -> ()",
    "merge_attn_states(Tensor prefix, Tensor prefix_lse, Tensor suffix, Tensor suffix_lse) -> Tensor",
    "merge_lse(Tensor prefix, Tensor suffix) -> Tensor",
    "update_scale_hysteresis_(Tensor! scale, Tensor! growth_tracker, Tensor! hysteresis_tracker, Tensor found_inf, "
    "float growth_factor, float backoff_factor, int growth_interval, int hysteresis) -> ()",
    "fused_rope(Tensor x1, Tensor x2, Tensor freqs1, Tensor freqs2) -> (Tensor, Tensor)",
    "fused_rope_cached(Tensor x1, Tensor x2, Tensor cos1, Tensor cos2, Tensor sin1, Tensor sin2) -> (Tensor, Tensor)",
    "bias_act(Tensor x, Tensor? b=None, int act=3, float alpha=0.2, float gain=1.4142135623730951, "
    "float clamp=-1.0) -> Tensor",
    "fused_bias_leakyrelu(Tensor x, Tensor? bias=None, float alpha=0.2, float scale=1.4142135623730951) -> Tensor",
    "sigmoid_focal_loss(Tensor x, Tensor target, Tensor of_column, Tensor? weight, float gamma, float alpha) -> Tensor",
    "sync_bn_forward_output(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias, float eps) "
    "-> (Tensor, Tensor)",
    "sync_bn_running_(Tensor! running_mean, Tensor! running_var, Tensor mean, Tensor var, float momentum, "
    "int count) -> ()",
    "sync_bn_backward_data(Tensor grad_output, Tensor weight, Tensor grad_weight, Tensor grad_bias, Tensor norm, "
    "Tensor std, int count) -> Tensor",
    "mymuladd(Tensor a, Tensor b, float c) -> Tensor",
    "mymul(Tensor a, Tensor b) -> Tensor",
    "myadd_out(Tensor a, Tensor b, Tensor(a!) out) -> ()",
]


def refusal(schema, *, kernel=True):
    """Return the error message for a schema, or an empty string if it is accepted with all its arguments."""
    try:
        taken = read(schema, kernel=kernel)
    except ValueError as error:
        return str(error)
    declared = torch._C.parse_schema(schema)
    assert len(taken.arguments) + (declared.name.endswith("_out") and not kernel) == len(declared.arguments)
    return ""


def test_a_kernel_takes_what_people_ship():
    sentences = {f"{row['project']} {row['schema'].partition('(')[0]}": refusal(row["schema"]) for row in SHIPPED}
    refused = {operator: sentence for operator, sentence in sentences.items() if sentence}
    assert refused.keys() == REFUSED.keys()
    assert all(sentence in refused[operator] for operator, sentence in REFUSED.items())


def test_half_of_what_people_ship_is_element_wise_by_its_schema():
    """Others have lists, strings, dtypes or symbolic sizes, write to optional tensors, or return what they write."""
    taken = [row["schema"] for row in SHIPPED if not refusal(row["schema"], kernel=False)]
    assert len(taken) == 53
    assert all("[]" not in schema and "!?" not in schema and "str " not in schema for schema in taken)


def test_each_that_is_element_wise_has_entries_or_a_reason():
    element_wise = [row for row in SHIPPED if row["here"] or row["reason"]]
    assert len(element_wise) == 32
    assert {name for row in element_wise for name in row["here"].split(", ")} - {""} == {
        schema.partition("(")[0] for schema in SCHEMAS
    }


def test_the_benchmark_writes_a_project_with_their_functors(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE.parent.parent / "benchmarks")
    benchmark = importlib.import_module("shipped")
    project = _new.create("tour_ops", list(benchmark.OPERATORS), tmp_path)
    benchmark.edit(project)
    used = re.findall(r'Operator<".*", (\w+),', (project / "src/operators.h").read_text())
    functors = (project / "src/functors.h").read_text()
    assert len(used) == len(benchmark.OPERATORS)
    assert {*used} <= {*re.findall(r"^struct (\w+) {", functors, re.MULTILINE)}
    assert "namespace tour_ops" in functors


CHOICES = """
import itertools, torch, shipped_ops
x, bias = torch.randn(2, 3, 4), torch.randn(3, 1)
for act, where in itertools.product((0, 10, -1, 2**40), ("cpu", "meta")):
    given = x.clone().to(where), bias.to(where), act
    for call in (
        lambda: shipped_ops.bias_act(*given),
        lambda: torch.ops.shipped_ops.bias_act(*given),
        lambda: shipped_ops.bias_act(*given, out=torch.empty_like(given[0])),
        lambda: torch.func.vmap(shipped_ops.bias_act, (0, None, None))(*given),
        lambda: torch.compile(shipped_ops.bias_act, backend="eager")(*given),
        lambda: shipped_ops.bias_act(given[0].clone().requires_grad_(), *given[1:]),
    ):
        try:
            call()
        except Exception as error:
            told = f"bias_act: act must be 1, 2, 3, 4, 5, 6, 7, 8 or 9, got {act}"
            assert told.partition(":")[2] in str(error), str(error)
        else:
            raise AssertionError(f"{act} on {where} is taken")
_C = shipped_ops._C
before = _C.calls_past_dispatcher()
for act, b in itertools.product(range(1, 10), (bias, None)):
    shipped_ops.bias_act(x, b, act)
print(_C.calls_past_dispatcher() - before)
"""

# The gradient of a tensor that is saved, and that was broadcast, has the layout of the tensor.
LAYOUT = """
import torch, shipped_ops
x = torch.randn(5, 2, 3, 4, requires_grad=True)
y = torch.randn(1, 2, 3, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
by_x, by_y = torch.autograd.grad(shipped_ops.silu_and_mul(x, y), (x, y), torch.ones_like(x))
print(by_x.stride() == x.stride(), by_y.stride() == y.stride())
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a project with all entries."""
    folder = tmp_path_factory.mktemp("shipped")
    project = _new.create("shipped_ops", SCHEMAS, folder)
    for name, to in {"functors.h": "src", "../float8.h": "src", "operators.py": "tests"}.items():
        shutil.copy(HERE / name, project / to)
    table = project / "python/shipped_ops/_operators.py"
    entry = r'("merge_attn_states\(.*": Elementwise)\(\)'  # it has none
    table.write_text(re.sub(entry, r"\1(differentiable=False)", table.read_text()))
    return project


@pytest.mark.slow
def test_those_pass_all_their_tests(project):
    install(project, project.parent / "site")
    its_tests(project, project.parent / "site", "-k", "not template")  # its documentation is the template's
    # A number that chooses a kernel must be one of its values, however the operator is called, even on the fast path.
    assert run(sys.executable, "-c", CHOICES, cwd="/", PYTHONPATH=str(project.parent / "site")).strip() == "18"
    assert run(sys.executable, "-c", LAYOUT, cwd="/", PYTHONPATH=str(project.parent / "site")).strip() == "True True"
