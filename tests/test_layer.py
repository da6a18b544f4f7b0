"""The steps in CONTRIBUTING are enough to add an operator.

The test adds some in a copy of the tree. There they pass the tests that `muladd-nb new` copies into a project, with the
cases of layer/operators.py, and more tests of their own.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from generated import QUICKLY, functor, run
from test_codebase import ROOT, sources

HERE = Path(__file__).parent

FUNCTORS = [
    functor("Sum8", "C", "C a, C b, C c, C d, C e, C f, C g, C h", "return std::exp(a) + b + c + d + e + f + g + h;"),
    functor("Blend", "C", "C x, C alpha, C y, C w, C beta", "return alpha * x + beta * y * w;"),
    functor("Bent", "C", "C x", "return x / (1 + elementwise::abs(x));"),
    functor("MaskedScale", "C", "C x, bool keep, C scale", "return keep ? x * scale : C(0);"),
    functor("Dequantize", "C", "int8_t q, C scale", "return static_cast<C>(q) * scale;"),
    functor("Weigh", "C", "C x, float weight", "return x * static_cast<C>(weight);"),
    functor("Gauge", "C", "C x, double scale", "const C y = x * static_cast<C>(scale);\nreturn x * y * y;"),
    functor("Quantize", "int8_t", "C x, C scale",
            "const C q = std::rint(x * scale);\n"
            "return static_cast<int8_t>(q < -128 ? -128 : q > 127 ? 127 : q == q ? q : C(0));"),
    functor("Product", "double", "C x, C y", "return static_cast<double>(x) * static_cast<double>(y);"),
    functor("SumDifference", "elementwise::Results<C, C>", "C x, C y", "return {x + y, x - y};"),
    # One of two results has a derivative, of the functor.
    functor("ProductAbove", "elementwise::Results<C, bool>", "C x, C y", "return {x * y, x > y};"),
    functor("Clip", "elementwise::Results<C, bool, float>", "C x, C limit",
            "const bool clipped = x > limit;\n"
            "return {clipped ? limit : x, clipped, clipped ? static_cast<float>(x * x) : 0.0f};"),
    functor("Shift", "C", "C x, int64_t n", "return x + n;", "using dtypes = elementwise::List<int64_t>;"),
    functor("Ramp", "C", "C x, C slope, int64_t n, C bias, bool twice",
            "const C y = x * slope * static_cast<C>(n) + bias;\nreturn twice ? C(2) * y : y;"),
    functor("Adam", "elementwise::Results<C, C, C>",
            "C p, C m, C v, C gradient, C lr, double beta1, double beta2, C eps",
            "m = C(beta1) * m + C(1 - beta1) * gradient;\nv = C(beta2) * v + C(1 - beta2) * gradient * gradient;\n"
            "return {p - lr * m / (std::sqrt(v) + eps), m, v};"),
    functor("Rescale", "C", "C by, C x, int64_t n", "return x * by * static_cast<C>(n);"),
    functor("Affine", "C",
            "elementwise::Optional<C> w, C x, elementwise::Optional<C> bias, C c, elementwise::Optional<int32_t> n",
            "const C y = w ? *w * x : x;\nreturn c * (y + bias.value_or(0)) * static_cast<C>(n.value_or(1));"),
    functor("Fade", "C", "C x, elementwise::Optional<bool> keep, C by", "return keep && *keep ? x : x * by;"),
    functor("Popcount", "C", "C x",
            "int n = 0;\nfor (uint64_t bits = x, i = 0; i < 8 * sizeof(C); i++) n += bits >> i & 1;\nreturn n;",
            "using dtypes = elementwise::List<uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;"),
]  # fmt: skip
FORMS = """\
    Operator<"blend(Tensor x, float alpha, Tensor y, Tensor w, float beta)", Blend,
             functional | writing | out | elementwise::differentiable>,
    Operator<"bent(Tensor x)", Bent, functional | writing | out | elementwise::differentiable>,
    Operator<"popcount(Tensor x)", Popcount, functional>,
    Operator<"ramp(Tensor x, float slope=2.0, *, int n=-3, float bias=1e-3, bool twice=False)", Ramp,
             functional | writing | out | elementwise::differentiable>,
    Operator<"adam_(Tensor(a!) p, Tensor(b!) m, Tensor(c!) v, Tensor gradient, float lr, *, float beta1=0.5, "
             "float beta2=0.75, float eps=0.125)", Adam, elementwise::updating>,
    Operator<"rescale_(Tensor by, Tensor! x, int n=2)", Rescale, elementwise::updating>,
    Operator<"affine(Tensor? weight, Tensor x, Tensor? bias=None, float c=2.0, Tensor? n=None)", Affine,
             functional | writing | out | elementwise::differentiable>,
    Operator<"fade_(Tensor! x, Tensor? keep=None, float by=0.5)", Fade, elementwise::updating>,
    Operator<"shift(Tensor x, int n)", Shift, functional | writing | out>,
    Operator<"masked_scale(Tensor x, Tensor keep, float scale)", MaskedScale, functional | writing | out>,
    Operator<"dequantize(Tensor q, Tensor scale)", Dequantize,
             functional | writing | out | elementwise::differentiable>,
    Operator<"weigh(Tensor x, Tensor weight)", Weigh, functional | writing | out>,
    Operator<"gauge(Tensor x, Tensor scale)", Gauge, functional | elementwise::differentiable>,
    Operator<"quantize(Tensor x, float scale)", Quantize, functional | writing | out>,
    Operator<"sum_difference(Tensor x, Tensor y)", SumDifference, functional | elementwise::differentiable>,
    Operator<"product_above(Tensor x, Tensor y)", ProductAbove, functional | elementwise::differentiable>,
    Operator<"clip(Tensor x, float limit)", Clip, functional>,
    Operator<"product(Tensor x, Tensor y)", Product, functional | writing | out>,
    Operator<"sum8(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h)", Sum8, functional>,
"""
ENTRIES = """\
    "blend(Tensor x, float alpha, Tensor y, Tensor w, float beta)": Elementwise(flops=4),
    "bent(Tensor x)": Elementwise(formula=lambda x: x / (1 + x.abs()), flops=3, autocast="float32"),
    "popcount(Tensor x)": Elementwise(),
    "ramp(Tensor x, float slope=2.0, *, int n=-3, float bias=1e-3, bool twice=False)": Elementwise(
        fused=lambda ops, x, slope, n, bias, twice: (
            (x * slope * ops.to_dtype(n, torch.float32) + bias) * ops.where(twice, 2.0, 1.0)
        ),
    ),
    "adam_(Tensor(a!) p, Tensor(b!) m, Tensor(c!) v, Tensor gradient, float lr, *, float beta1=0.5, "
    "float beta2=0.75, float eps=0.125)": Elementwise(flops=13),
    "rescale_(Tensor by, Tensor! x, int n=2)": Elementwise(),
    "affine(Tensor? weight, Tensor x, Tensor? bias=None, float c=2.0, Tensor? n=None)": Elementwise(
        fused=lambda ops, weight, x, bias, c, n: (
            c * ((x if weight is None else weight * x) + (0 if bias is None else bias))
            * (1 if n is None else ops.to_dtype(n, torch.float32))
        ),
    ),
    "fade_(Tensor! x, Tensor? keep=None, float by=0.5)": Elementwise(),
    "shift(Tensor x, int n)": Elementwise(),
    "masked_scale(Tensor x, Tensor keep, float scale)": Elementwise(
        formula=lambda x, keep, scale: torch.where(keep, x * scale, 0),
        fused=lambda ops, x, keep, scale: ops.where(keep, x * scale, 0),
    ),
    "dequantize(Tensor q, Tensor scale)": Elementwise(
        fused=lambda ops, q, scale: ops.to_dtype(q, torch.float32) * scale,
    ),
    "weigh(Tensor x, Tensor weight)": Elementwise(formula=lambda x, weight: (x * weight).to(x.dtype)),
    "gauge(Tensor x, Tensor scale)": Elementwise(formula=lambda x, scale: (x * (x * scale.to(x.dtype)).square())),
    "quantize(Tensor x, float scale)": Elementwise(
        formula=lambda x, scale: (x * scale).round().nan_to_num().clamp(-128, 127).to(torch.int8), autocast="leave"
    ),
    "sum_difference(Tensor x, Tensor y)": Elementwise(
        fused=lambda ops, x, y: (x + y, x - y),
        linear=({"x", "y"},),
    ),
    "product_above(Tensor x, Tensor y)": Elementwise(),
    "clip(Tensor x, float limit)": Elementwise(
        formula=lambda x, limit: (
            torch.where(x > limit, limit, x).to(x.dtype), x > limit, torch.where(x > limit, x.double() ** 2, 0).float()
        )
    ),
    "product(Tensor x, Tensor y)": Elementwise(
        formula=lambda x, y: x.double() * y.double(),
        fused=lambda ops, x, y: ops.to_dtype(x, torch.float64) * ops.to_dtype(y, torch.float64),
    ),
    "sum8(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h)": Elementwise(
        derivative={
            "save": lambda needs, inputs, results: inputs[:1],
            "vjp": lambda needs, saved, grad: (grad * saved[0].exp(), *[grad] * 6, None),
            "jvp": lambda saved, a, *others: a * saved[0].exp() + sum(others[:6]),
        },
        autocast="leave",
    ),
"""
# For each step of CONTRIBUTING's "Adding an operator": the file, the line before which it adds something, and what.
STEPS = [
    ("src/functors.h", "} // namespace muladd_nb", "".join(FUNCTORS)),
    ("src/operators.h", "    Operator<", FORMS),
    ("muladd_nb/_operators.py", "}\n\nFORMS", ENTRIES),
]


# If this package is installed in editable mode, its finder comes before PYTHONPATH.
PYTEST = """
import sys, pytest
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "MesonpyMetaFinder"]
sys.exit(pytest.main(sys.argv[1:]))
"""

TESTS = ["any_call", "added_operators", "optional_tensors", "test_operators"]
# Finite differences of float32 tensors and results are not exact; added_operators.py tests these derivatives.
CHOSEN = "not ((weigh or clip) and (subset or derivatives))"


@pytest.mark.slow
def test_an_operator_is_a_functor_a_row_and_an_entry(tmp_path):
    tree, package = tmp_path / "tree", tmp_path / "package"
    for source in sources():
        copy = tree / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for path, before, added in STEPS:
        text = (tree / path).read_text()
        assert before in text
        (tree / path).write_text(text.replace(before, added + before, 1))
    options = [*QUICKLY, "--config-settings=setup-args=-Dcuda=disabled", "--config-settings=setup-args=-Dwerror=true"]
    pip = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    run(*pip, *options, "--target", package, tree, cwd=tmp_path)
    tests = tmp_path / "tests"
    tests.mkdir()
    for path in [*(ROOT / "muladd_nb/_new/copied/tests").glob("*.py"), *(HERE / "layer").glob("*.py")]:
        (tests / path.name).write_text(path.read_text().replace("my_ops", "muladd_nb"))
    paths = os.pathsep.join([str(package), str(HERE)])
    # -n0: the processes of pytest-xdist would find an editable install.
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-o", "markers=slow", "-m", "not slow", "-k", CHOSEN]
    run(sys.executable, "-c", PYTEST, *options, *(f"{name}.py" for name in TESTS), PYTHONPATH=paths, cwd=tests)
