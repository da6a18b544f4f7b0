"""``muladd-nb new`` and ``add``: a generated project passes its own tests, unchanged and edited."""

import functools
import itertools
import os
import re
import shutil
import sys
import types
from pathlib import Path

import conftest
import pytest
import torch
from conftest import MODULE, needs
from generated import QUICKLY, contents, install, its_tests, recorded, run
from ten import BLEND, EVERY_ARGUMENT, KERNEL, POPCOUNT, REFLECT, RMS_NORM, ROOT, SOFTCLIP, edit, write_project

import muladd_nb
from muladd_nb import _C, _new
from muladd_nb.__main__ import main
from muladd_nb._new import _schema, _write
from muladd_nb._new._copies import RECORD
from muladd_nb._new._schema import check_identifier

PAIR = "pair(Tensor x, Tensor y, float c) -> (Tensor, Tensor)"
AFFINE = "affine(Tensor? weight, Tensor x, Tensor? the_bias_of_it=None, float factor=2.0, Tensor? other=None) -> Tensor"
FADE = "fade_(Tensor! x, Tensor? keep, float by=0.5) -> ()"
RAMP = "ramp(Tensor grad, float op=2.0, *, int by_0=-3, float info=0.001, bool in_dims=False) -> Tensor"
ROWS = [
    "spread(Tensor x, int[] normalized_shape, Tensor? of_the_columns, float eps=1e-5) -> Tensor",
    "mean_square(Tensor x, int dim=-1, *, bool keepdim=False) -> Tensor",
    "twice(Tensor x, int n, bool b) -> (Tensor, Tensor)",
    "fade_rows_(Tensor! x, SymInt[] normalized_shape, Tensor! y, Tensor w, float by) -> ()",
    "spread_into_out(Tensor x, float c, Tensor(a!) out) -> ()",
]
OTHERS = [POPCOUNT, BLEND, REFLECT]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def new(folder, monkeypatch):
    """Return a function that writes the project ``zoo_ops``, and enters its folder."""

    def new(*arguments):
        assert main(["new", "zoo_ops", *arguments]) == 0
        monkeypatch.chdir(folder / "zoo_ops")

    return new


@pytest.fixture(scope="module")
def softclip(tmp_path_factory):
    """Return the project of the tour, edited and installed, with an operator that has its own kernel."""
    folder = tmp_path_factory.mktemp("softclip")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["new", "my_ops", SOFTCLIP]) == 0
        edit(folder / "my_ops", "softclip")
        patch.chdir(folder / "my_ops")
        assert main(["add", "--kernel", KERNEL]) == 0
        edit(folder / "my_ops", "row_logsumexp")
        page = ROOT / "docs/without_python.md"
        with Path("meson.build").open("a") as build:
            print(*re.findall("^shared_library.*$", page.read_text(), re.MULTILINE), file=build)
    install(folder / "my_ops", folder / "site")
    return folder / "my_ops", folder / "site"


def test_each_mistake_to_plant_has_one_place(tmp_path):
    """Planting them takes long: `nox -s mistakes`."""
    sys.path.append(str(ROOT / "tests/over_rows"))
    from mistakes import rows, table
    from project import write_project as over_rows

    operators = dict.fromkeys(operator for operator, *_ in rows.TABLE)
    for project, mistakes in (write_project(tmp_path), table.TABLE), (over_rows(tmp_path, *operators), rows.TABLE):
        for operator, file, right, _ in mistakes:
            assert (project / file).read_text().count(right) == 1, f"{operator}, {file}: {right}"


@pytest.mark.slow
def test_an_operator_passes_its_tests(softclip):
    project, site = softclip
    assert (site / "my_ops" / MODULE).exists()
    assert (site / "my_ops/py.typed").exists()
    its_tests(project, site, "-k", "not registrations and not compiled and not compiling")


DERIVATIVES = """
import sys, torch, my_ops

x = torch.tensor([-2.0, -0.25, 0.5, 3.0], dtype=torch.float64)
derivatives = [lambda x: my_ops.softclip(x, 1.5)]
expected = [lambda x: x / (1 + x.abs() / 1.5)]
for order in range(int(sys.argv[1])):
    torch.testing.assert_close(derivatives[-1](x), expected[-1](x))
    for functions in (derivatives, expected):
        functions.append(lambda x, of=functions[-1]: torch.func.grad(lambda x: of(x).sum())(x))
for function in (derivatives[-1], lambda x: torch.func.jvp(derivatives[3], (x,), (x,))):
    try:
        function(x)
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.slow
def test_derivatives_are_those_of_the_functor(softclip, tmp_path):
    """Derivatives up to the third order come from the functor, and higher ones, in reverse mode, from the formula."""
    site = shutil.copytree(softclip[1], tmp_path / "site")
    table = site / "my_ops/_operators.py"
    given = "Elementwise(formula=lambda x, limit: x / (1 + x.abs() / limit))"
    for row, orders, refusals in (
        ("Elementwise()", 4, ["give the operator a formula in my_ops/_operators.py", "take reverse mode"]),
        (given, 6, ["take reverse mode"]),
    ):
        table.write_text(table.read_text().replace("Elementwise()", row))
        printed = run(sys.executable, "-c", DERIVATIVES, str(orders), cwd="/", PYTHONPATH=str(site))
        assert printed.splitlines() == [
            f"softclip: the functor gives derivatives up to order 3, and one of order 4 is asked for: {refusal}"
            for refusal in refusals
        ]


STRAIGHT_THROUGH = """Elementwise(
        derivative={
            "save": lambda needs, inputs, results: inputs[:1],
            "vjp": lambda needs, saved, grad: (grad * saved[0].detach(), None),
            "jvp": lambda saved, tangent, _: tangent * saved[0].detach(),
        },
    )"""


@pytest.mark.slow
def test_an_operator_with_another_derivative_than_that_of_its_values_passes_its_tests(softclip, tmp_path):
    """As in a straight-through estimator. A factor of the derivative is detached, too, so it has no derivative."""
    project, site = (shutil.copytree(path, tmp_path / path.name) for path in softclip)
    value, itself = "x / (1 + x.abs() / limit)", "x * x.detach()"
    for path, right, other in (
        (site / "my_ops/_operators.py", "Elementwise()", STRAIGHT_THROUGH),
        (project / "tests/operators.py", value, f"{itself} + ({value} - {itself}).detach()"),
    ):
        text = path.read_text()
        assert text.count(right) == 1
        path.write_text(text.replace(right, other))
    its_tests(project, site, "-k", "softclip and (values or gradients or derivatives)")


COMPILER = [os.environ.get("CXX", "c++"), "-std=c++20", f"-I{ROOT}/src"]


def errors_of(text, folder, *options):
    """Return the lines of the compiler's output that are errors."""
    source = folder / "functor.cpp"
    source.write_text(text)
    done = conftest.run(*COMPILER, "-fsyntax-only", *options, source)
    return [line for line in done.stderr.splitlines() if "error: " in line]


def calls(call, type_):
    """Return C++ code that calls a function for a number of this type."""
    function = f"template <class C>\nC f(C x) {{\n  return {call};\n}}\n"
    return f'#include "elementwise/math.h"\n{function}template {type_} f({type_});\n'


@pytest.mark.parametrize(("call", "type_", "sentence"), [
    ("std::pow(x, x)", "elementwise::Dual<float>",
     "std::pow has no derivative: write elementwise::pow, of elementwise/math.h, or leave"),
    ("abs(x)", "float", "write elementwise::abs, of elementwise/math.h"),
    ("exp(x)", "float", "write elementwise::exp, of elementwise/math.h"),
    ("pow(x, 2)", "float", "write elementwise::pow, of elementwise/math.h"),
    ("abs(x)", "int64_t", "write elementwise::abs, of elementwise/math.h"),
])  # fmt: skip
def test_a_function_of_c_is_not_called_by_mistake(tmp_path, call, type_, sentence):
    """C's abs, which is for an int, would round towards zero or cut to 32 bits, and its other functions are slow."""
    (error,) = errors_of(calls(call, type_), tmp_path)
    assert sentence in error


@pytest.mark.parametrize("call", ["exp(x)", "sqrt(x)", "fma(x, x, x)", "rint(x)"])
def test_a_function_does_not_take_an_integer(tmp_path, call):
    """The root of an integer would be cut to an integer, and a number beyond 2**53 rounded."""
    first, *_ = errors_of(calls(f"elementwise::{call}", "int64_t"), tmp_path)
    assert "the functions of elementwise/math.h take float and double: convert an integer" in first


def test_a_functor_that_leaves_out_a_result_does_not_compile(tmp_path):
    text = '#include "elementwise/functor.h"\nelementwise::Results<float, float> f(float x) {\n  return {x};\n}\n'
    (error,) = errors_of(text, tmp_path)
    assert "functor.cpp:3:" in error and "Results<float, float>" in error
    assert not errors_of(text.replace("{x}", "{x, x}"), tmp_path)


@pytest.mark.parametrize("call", ["elementwise::tanh(x)", "elementwise::pow(x, x)"])
def test_the_error_of_a_function_names_the_header_that_has_it(tmp_path, call):
    """The functor compiles with the header that the message names."""
    include = '#include "elementwise/math/basic.h"\n'
    text = f"template <class C>\nC f(C x) {{\n  return {call};\n}}\ntemplate float f(float);\n"
    inside = [f"-I{ROOT}/src/elementwise", f"-I{ROOT}/src/elementwise/own_kernel", "-DELEMENTWISE_ISA=baseline"]
    (error,) = errors_of(include + text, tmp_path, *inside)
    assert "for elementwise::" in error and 'math.h"' in error.replace("\\", "")
    assert not errors_of(include + '#include "math.h"\n' + text, tmp_path, *inside)


@pytest.fixture(scope="module")
def set_up(tmp_path_factory):
    """Return a function that writes a project of one operator and sets up its build, once for all mistakes."""

    @functools.cache
    def project(schema, *options, rows=False):
        project = _new.create("my_ops", [schema], tmp_path_factory.mktemp("broken"), rows=rows)
        run("meson", "setup", "build", *options, cwd=project)
        return project

    return project


def printed(project, right, wrong, *target):
    """Compile the functor with a mistake; return the output, and the errors in it."""
    functors = project / "src/functors.h"
    text = functors.read_text()
    assert right in text
    functors.write_text(text.replace(right, wrong))
    done = conftest.run("ninja", "-C", "build", *target, cwd=project)
    functors.write_text(text)
    lines = done.stdout.partition("FAILED: ")[2].splitlines()
    return lines, [line for line in lines if "error: " in line]


OVER_ROWS = "norm(Tensor x, Tensor? weight, float eps) -> Tensor"
TAKES = "the functor must take what its declaration says, in its order, and be const"


@pytest.mark.slow
@needs("meson", "ninja")
@pytest.mark.parametrize(("schema", "right", "wrong", "sentence"), [
    (SOFTCLIP, "return x * limit", "return x * limitt", "../src/functors.h:16:16: error: .*limitt"),
    (SOFTCLIP, "return x * limit", "x * limit", "../src/functors.h:17:3: error: no return statement"),
    (SOFTCLIP, "return x * limit", "return std::exp(x)", "std::exp has no derivative: write elementwise::exp"),
    # The first of these would round a float64 number to float32, the second to an integer.
    (SOFTCLIP, "C limit", "float limit", f"{TAKES}: a C"),
    (SOFTCLIP, "C limit", "int64_t limit", TAKES),
    (SOFTCLIP, "C limit", "C limit, C more", f"Softclip.*{TAKES}"),
    (OVER_ROWS, "C eps)", "float eps)", TAKES),
    (OVER_ROWS, "Row& row, ", "", "functors.h:.* error: .row. was not declared"),
    (OVER_ROWS, "elementwise::Elements<C> x, elem", "C x, elem",
     "a functor over rows must take the elements of a tensor"),
    (OVER_ROWS, "return row.each([=](C y) { return y * factor_; }, product_)", "return factor_",
     "an Elements<T> is what row.each returns, and not a number"),
    (OVER_ROWS, "[=](C y) { return y * factor_", "[=](C y, C z) { return y * factor_",
     "the function of elements comes first, takes one element of each tensor that follows it"),
    (OVER_ROWS, "return y * factor_", "return x[0] * factor_", r"no match for .operator\[\]. .*Elements<float>"),
    (OVER_ROWS, "Row& row, ", "Row row, ", TAKES),
    (OVER_ROWS, ") const {", ") {", TAKES),
    (OVER_ROWS, "FUNCTION elementwise::Elements<C>", "FUNCTION elementwise::Results<elementwise::Elements<C>, C>",
     "an operator with several results cannot have the forms `writing` and `out`"),
    (OVER_ROWS, "FUNCTION elementwise::Elements<C>", "FUNCTION C",
     "the functor declares no result elementwise::Elements<T>, where T is the type"),
])  # fmt: skip
def test_a_functor_that_does_not_compile_is_one_error(set_up, schema, right, wrong, sentence):
    """The output is short, however many operators there are."""
    lines, (error,) = printed(set_up(schema, "-Dcuda=disabled", rows=schema == OVER_ROWS), right, wrong)
    assert re.search(sentence, error)
    assert len(lines) <= 20
    assert schema == OVER_ROWS or not any("by_x" in line or len(line) > 700 for line in lines)


def compiled(folder, code):
    """Return the program that is compiled from C++ code with the headers of the layer."""
    program = folder / "program"
    program.with_suffix(".cpp").write_text(code)
    run(*COMPILER, "-DELEMENTWISE_ISA=baseline", "-o", program, program.with_suffix(".cpp"), cwd=folder)
    return program


def test_a_functor_that_returns_other_rows_than_it_wrote_is_refused(tmp_path):
    """Rows in another order than they were written, a tensor of the call, or what it has read."""
    program = compiled(
        tmp_path,
        """\
#include <cstdlib>
#include "elementwise/rows/kernels.h"
using namespace elementwise;
struct Several {
  template <class C, class Row>
  Results<Elements<C>, Elements<C>, Elements<bool>> operator()(
      Row& row, Elements<C> x, Elements<bool> mask, C mistake) const {
    const auto first = row.each([](C x) { return 2 * x; }, x);
    const auto second = row.each([](C x) { return x + 100; }, x);
    const auto third = row.each(mask);
    if (mistake == 1) return {second, {first, {third}}};
    if (mistake == 2) return {first, {x, {third}}};
    if (mistake == 3) row.sum(second);
    if (mistake == 4) row.each(x);
    return {first, {second, {third}}};
  }
};
int main(int, char** arguments) {
  double x[3] = {1, 2, 3}, first[3], second[3], mistake = std::atof(arguments[1]);
  bool third[3];
  passes::RowBool mask[3] = {1, 0, 1};
  void* data[] = {first, second, third, x, mask, &mistake};
  const cpu::OneRow row{3, 0, data, nullptr, nullptr, nullptr};
  try {
    passes::RowLoop<Kernel<Several, Kind::tensor, Kind::tensor, Kind::tensor>, double>::compute(row);
  } catch (const cpu::RowError& found) {
    std::fputs(found.mistake, stderr);
    return 2;
  }
  return !(first[2] == 6 && second[2] == 103 && third[0] && !third[1] && third[2]);
}
""",
    )
    order = "a functor over rows must call row.each once for each result with a value for each element, in the order"
    sentences = ["", order, order, "what row.each returns is a result, which cannot be read: use row.keep", order]
    for mistake, sentence in enumerate(sentences):
        done = conftest.run(program, mistake)
        assert done.returncode == (2 if sentence else 0)
        assert done.stderr.startswith(sentence)


def test_reductions_take_elements_as_they_are(tmp_path):
    """A place is that of the least integer, which is no other number as a double."""
    program = compiled(
        tmp_path,
        """\
#include "elementwise/rows/kernels.h"
using namespace elementwise;
struct Largest {
  template <class C, class Row>
  Results<C, C, int64_t, int64_t> operator()(Row& row, Elements<C> x, Elements<int64_t> time) const {
    const auto larger = [](C a, C b) { return a > b ? a : b; };
    return {
        row.reduce(C(-9), larger, x),
        {row.reduce(-9, larger, [](C x) { return -x; }, x), {row.argmax(time), {row.argmin(time)}}}};
  }
};
struct Places {
  template <class C, class Row>
  Results<int64_t, int64_t, int64_t> operator()(
      Row& row, Elements<C> x, Elements<int64_t> time, Elements<uint64_t> unsigned_time) const {
    const auto half = [](C x) { return 0.5 * x; };
    return {row.argmax(time), {row.argmax(unsigned_time), {row.argmax(half, x)}}};
  }
};
int main() {
  constexpr int64_t large = int64_t{1} << 60;
  double x[3] = {1, 3, 2}, first, second;
  int64_t time[3] = {large + 1, large + 2, large}, last, least;
  void* data[] = {&first, &second, &last, &least, x, time};
  const cpu::OneRow row{3, 0, data, nullptr, nullptr, nullptr};
  passes::RowLoop<Kernel<Largest, Kind::tensor, Kind::tensor>, double>::compute(row);
  if (!(first == 3 && second == -1 && last == 1 && least == 2)) return 1;
  int8_t of_int8[3] = {0, 1, 2};
  uint64_t unsigned_time[3] = {1, 3ull * large * 4, 2};
  int64_t places[3];
  void* others[] = {places, places + 1, places + 2, of_int8, time, unsigned_time};
  const cpu::OneRow other{3, 0, others, nullptr, nullptr, nullptr};
  passes::RowLoop<Kernel<Places, Kind::tensor, Kind::tensor, Kind::tensor>, int8_t>::compute(other);
  return !(places[0] == 1 && places[1] == 1 && places[2] == 2);
}
""",
    )
    run(program, cwd=tmp_path)


def test_a_bool_in_memory_is_true_if_it_is_not_zero(tmp_path):
    """As torch reads x.view(torch.bool), whose bytes may have any value."""
    program = compiled(
        tmp_path,
        """\
#include "elementwise/cpu/kernels.h"
using namespace elementwise;
struct Twice {
  template <class C>
  C operator()(C x, bool keep) const { return x * static_cast<C>(keep + keep); }
};
struct TwiceOfRow {
  template <class C, class Row>
  C operator()(Row& row, Elements<C> x, bool keep) const { return row.sum(x) * static_cast<C>(keep + keep); }
};
int main() {
  unsigned char keep[40];
  double x[40], y[40], sum;
  for (int i = 0; i < 40; i++) x[i] = 1, keep[i] = static_cast<unsigned char>(i);
  void* data[] = {y, x, keep};
  cpu::baseline::computer<Kernel<Twice, Kind::tensor, Kind::tensor>>(kOrdinal<double>).row(40, data, nullptr);
  for (int i = 0; i < 40; i++)
    if (y[i] != (i > 0 ? 2 : 0)) return 1;
  void* of_row[] = {&sum, x, keep + 39};
  const cpu::OneRow row{40, 0, of_row, nullptr, nullptr, nullptr};
  passes::RowLoop<Kernel<TwiceOfRow, Kind::tensor, Kind::tensor>, double>::compute(row);
  return sum == 80 ? 0 : 2;
}
""",
    )
    run(program, cwd=tmp_path)


NINE = ", ".join(f"elementwise::Elements<C> {x}" for x in "abcdefghi")
ONE = "elementwise::Elements<C> x"
FAMILY = "decltype(elementwise::derivatives::family<F_>()) made"
COMPUTE = "auto compute = &elementwise::passes::RowLoop<F_::Kernel, double>::compute"
GRADIENTS = COMPUTE.replace("F_", "elementwise::rows::DerivedOperator<F_, elementwise::rows::Role::gradients>")


# The declaration, dtypes and functor of an operator, code that uses it, and the error.
MISTAKES = [
    ("f(Tensor x, flaot c)", "double", f"C operator()(Row& row, {ONE}, C c) const {{ return row.max(x) * c; }}",
     "F_::Kernel made", 'an argument is a "Tensor x"'),
    ("f(Tensor x, float c", "double", f"C operator()(Row& row, {ONE}, C c) const {{ return row.max(x) * c; }}",
     "F_::Kernel made", 'a declaration looks like "f(Tensor x, float c)"'),
    ("f(Tensor x, float c=one)", "double", f"C operator()(Row& row, {ONE}, C c) const {{ return row.max(x) * c; }}",
     "F_::Kernel made", "the default of a number is a number"),
    ("f(Tensor x)", "double", f"C operator()(Row& row, {ONE}) const {{ return row.max(x); }}",
     FAMILY.replace("F_", "F_, F_, F_"), "src/operators.h has two operators of this name and overload"),
    (f"f({', '.join(f'Tensor {x}' for x in 'abcdefghi')})", "double",
     f"C operator()(Row& row, {NINE}) const {{ return row.sum(a); }}", FAMILY,
     "a `differentiable` operator over rows has at most 16 tensors if those of type C count twice"),
    ("f(Tensor x)", "double, bool", f"C operator()(Row& row, {ONE}) const {{ return row.max(x); }}", "F_::Kernel made",
     "over rows, `using dtypes` cannot have bool: name uint8_t"),
    ("f(Tensor x, float c)", "int32_t", f"C operator()(Row& row, {ONE}, C c) const {{ return row.max(x) * c; }}",
     "F_::Kernel made", "or a double for a float, as it must be if C is an integer"),
    ("f(Tensor x)", "double",
     f"C operator()(Row& row, {ONE}) const {{ return row.reduce(0, [](int a, int b) {{ return a ^ b; }}, x); }}",
     COMPUTE, "row.reduce joins numbers of type C, so `join` must return a C"),
    ("f(Tensor x)", "int32_t", f"elementwise::Elements<int64_t> operator()(Row& row, {ONE}) const"
     " { const int64_t sum = row.sum([](C x) { return 0.5 * x; }, x);"
     " return row.each([=](C x) { return x + sum; }, x); }",
     COMPUTE.replace("double", "int32_t"),
     "a function of elements returns integers where a row has integers: each fraction would be cut off"),
     ("f(Tensor x)", "int32_t", f"elementwise::Elements<C> operator()(Row& row, {ONE}) const"
      " { return row.each([](C x) { return 0.5 * x; }, x); }", COMPUTE.replace("double", "int32_t"),
      "a function of elements returns integers where a row has integers: each fraction would be cut off"),
    ("f(Tensor x)", "int32_t",
     f"C operator()(Row& row, {ONE}) const {{ return row.min([](C x) {{ return 0.5 * x; }}, x); }}",
     COMPUTE.replace("double", "int32_t"),
     "a function of elements returns integers where a row has integers: each fraction would be cut off"),
    ("f(Tensor x)", "double",
     f"C operator()(Row& row, {ONE}) const {{ return row.sum([](C x, C y) {{ return x; }}, x); }}",
     COMPUTE, "the function of elements comes first, takes one element of each tensor that follows it"),
    ("f(Tensor x)", "double", f"elementwise::Elements<C> operator()(Row& row, {ONE}) const {{ return row.max(x); }}",
     COMPUTE, "an Elements<T> is what row.each returns, and not a number"),
    ("f(Tensor x)", "double", f"elementwise::Elements<int8_t> operator()(Row& row, {ONE}) const"
     " { return row.each([](C x) { return x > 0 ? 1 : -1; }, x); }",
     COMPUTE, "the functor declares no result elementwise::Elements<T>, where T is the type that the function of"),
    ("f(Tensor x)", "double",
     f"C operator()(Row& row, {ONE}) const {{ return row.at(row.keep([](C x) {{ return 2 * x; }}, x), 0); }}",
     GRADIENTS, "row.at reads a tensor of type C, or a row that is kept, which has no derivative: leave"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "dtypes", "functor", "made", "sentence"), MISTAKES)
def test_the_first_error_of_the_compiler_says_what_is_wrong(tmp_path, schema, dtypes, functor, made, sentence):
    source = f"""\
#include "elementwise/derivatives.h"
#include "elementwise/rows/kernels.h"
struct F {{
  using dtypes = elementwise::List<{dtypes}>;
  template <class C, class Row>
  {functor}
}};
using F_ = elementwise::Operator<"{schema}", F, elementwise::functional | elementwise::differentiable>;
{made};
"""
    first, *_ = errors_of(source, tmp_path, "-DELEMENTWISE_ISA=baseline")
    assert sentence in first


@pytest.mark.slow
@needs("meson", "ninja", "nvcc")
def test_a_functor_that_is_for_the_host_alone_is_one_error_of_nvcc(set_up):
    """By default nvcc leaves out the kernel and only warns, which pip does not show."""
    project = set_up(SOFTCLIP, "-Dcuda=enabled", "-Dgpu_archs=90")
    target = "src/elementwise/cuda/libcuda_kernels.a"
    lines, (error,) = printed(project, "x * limit", "std::max(x, limit)", target)
    assert "functors.h(16): error: " in error and "max" in error
    assert len(lines) <= 20


@pytest.mark.slow
@needs("abi3audit", "auditwheel", "check-wheel-contents", "patchelf", "readelf", "torch-abi-audit", "twine", "wheel")
def test_its_tools_make_a_wheel_for_every_python_and_torch(folder):
    assert main(["new", "my_ops"]) == 0
    project = folder / "my_ops"
    git = ["git", "-c", "user.name=Author", "-c", "user.email=author@example.com"]
    for command in (["init"], ["add", "--all"], ["commit", "--message", "The first operators"]):
        run(*git, *command, cwd=project)
    run(sys.executable, "-m", "build", "--no-isolation", "-Csetup-args=-Dcuda=disabled", cwd=project)
    (built,) = (project / "dist").glob("*.whl")
    run("src/elementwise/tools/repair_wheel", built.relative_to(project), "dist/repaired", cwd=project)
    (repaired,) = (project / "dist/repaired").iterdir()
    assert "-cp310-abi3-manylinux" in repaired.name
    run("src/elementwise/tools/audit_wheel", repaired.relative_to(project), cwd=project)


def test_a_wheel_may_be_as_large_as_pypi_accepts(tmp_path):
    wheel = tmp_path / "my_ops-0.1.0-cp310-abi3-manylinux_2_34_x86_64.whl"
    for size, is_refused in ((99_000_000, False), (100_000_000, True)):
        with wheel.open("wb") as file:
            file.truncate(size)
        said = conftest.run("bash", ROOT / "src/elementwise/tools/audit_wheel", wheel).stderr
        assert ("MB or more" in said) == is_refused, said


# update_ multiplies by this, so its result shows whether these arguments arrived. REFERENCE is the same in Python.
WEIGHT = """k_ * (device.is_cpu() + 2 * (layout == torch::headeronly::Layout::Strided) +
                   4 * (value_ == torch::headeronly::MemoryFormat::Contiguous) + 8 * (fs == std::vector{1.5, 0.5}) +
                   16 * (bs == std::vector{true, false}) + 32 * (names == std::vector<std::string>{"text", "text"}) +
                   64 * (s == "text") + 128 * (group_shape == std::vector<int64_t>{2, 3}) +
                   256 * (types && types->back() == torch::headeronly::ScalarType::Float))"""
REFERENCE = (
    "product(k * (63 + 64 * (s is not None) + 128 * (group_shape is not None) + 256 * (types is not None)), kernel)"
)


@pytest.mark.slow
def test_what_is_written_works_before_it_is_edited(folder, monkeypatch):
    """One kernel also shows that it receives the arguments that are passed."""
    kernels = [KERNEL, "both(Tensor x, Tensor y, float c, int k, bool b) -> (Tensor, Tensor)", *EVERY_ARGUMENT]
    assert main(["new", "signal_ops", "--kernel", *kernels]) == 0
    project = folder / "signal_ops"
    test, kernel = project / "tests/operators.py", project / "src/update.cpp"
    text = test.read_text()
    assert ".k_ = k_," in kernel.read_text()
    assert text.count("product(k, kernel)") == 2
    test.write_text(text.replace("product(k, kernel)", REFERENCE))
    kernel.write_text(kernel.read_text().replace(".k_ = k_,", f".k_ = {WEIGHT},"))
    monkeypatch.chdir(project)
    assert main(["add", PAIR, RAMP, AFFINE, FADE]) == 0
    assert main(["add", "--rows", *ROWS]) == 0
    install(project, folder / "site", *QUICKLY)
    its_tests(project, folder / "site", "-k", "not (text_of_the_template and update_)")  # its texts are not updated


PRODUCTS = """
import math, torch, my_ops
from my_ops._operators import FORMS
for form in FORMS:
    n = len(form.inputs) + len(form.numbers)
    args = [1 + i / 64 if i % 2 else torch.rand(2, dtype=torch.float64, requires_grad=True) + 0.5 for i in range(n)]
    torch.testing.assert_close(form.op(*args), math.prod(args))
    assert torch.autograd.gradcheck(form.op, args, check_forward_ad=True, check_batched_grad=True)
"""


@pytest.mark.slow
def test_arguments_may_have_any_name_that_is_not_refused(folder):
    """The test uses names that the generated files use themselves."""
    words = {
        word
        for path in (ROOT / "muladd_nb/_new/kernel").iterdir()
        for word in re.findall(r"[A-Za-z]\w*", path.read_text())
    }

    def is_free(word):
        try:
            check_identifier("argument", word)
        except ValueError:
            return False
        return True

    free = sorted(filter(is_free, words))
    assert {"x", "in_dims", "my_ops", "inputs", "library", "T", "C", "Tensor"} <= set(free)
    schemas = []
    for begin in range(0, len(free), 48):
        names = free[begin : begin + 48]
        arguments = [f"{('Tensor', 'float')[place % 2]} {name}" for place, name in enumerate(names)]
        schemas.append(f"of_{begin}({', '.join(arguments)}) -> Tensor")
    assert main(["new", "my_ops", "--kernel", *schemas]) == 0
    install(folder / "my_ops", folder / "site", *QUICKLY)
    run(sys.executable, "-c", PRODUCTS, cwd="/", PYTHONPATH=str(folder / "site"))


def test_what_was_understood_of_an_operator_over_rows_is_said(folder, capsys):
    assert main(["new", "my_ops", "--rows", *ROWS]) == 0
    said = capsys.readouterr().out
    hint = "In the functor, write C for Elements<C> where a row has one value.\n"
    for line in (
        "spread is over rows along the dimensions of `normalized_shape`, its result with the shape of the tensors. "
        + hint,
        "mean_square is over rows along the dimension `dim`, its result with one value for each row.\n",
        "twice is over rows along the last dimension, each result with the shape of the tensors. " + hint,
        "fade_rows_ is over rows along the dimensions of `normalized_shape`, what it writes with the shape of the "
        "tensors. " + hint,
        "  spread, over rows: its functor in src/functors.h, its Case in tests/operators.py\n",
    ):
        assert line in said
    assert main(["new", "other_ops", "mean(Tensor x, int dim) -> Tensor"]) == 0
    assert (
        "run 'muladd-nb remove mean', and add it with --rows if it reduces over a dimension" in capsys.readouterr().out
    )


@pytest.mark.slow
def test_sources_that_are_not_compiled_say_what_to_do(softclip):
    project, _ = softclip
    result = conftest.run(sys.executable, "-c", "import my_ops", cwd=project / "python")
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: {project} holds the sources of my_ops, which are not compiled: run 'pip install .' there and "
        "start Python in another folder."
    )


def files(project):
    return {str(path.relative_to(project)): path for path in project.rglob("*") if path.is_file()}


WRITTEN = {
    "default": [],
    "element-wise": [SOFTCLIP, *OTHERS],
    "optional tensors": [AFFINE, FADE],
    "kernel": ["--kernel", KERNEL],
    "many arguments": [f"wide({', '.join(f'Tensor of_the_input_{i}' for i in range(8))}, float a_factor) -> Tensor"],
    "several results": [
        PAIR,
        "wide(Tensor of_the_first, Tensor of_the_second, float a_factor) -> (Tensor, Tensor, Tensor)",
    ],
    "many arguments of a kernel": [
        "--kernel",
        "wide(Tensor first, Tensor second, float factor, int times, bool flag) -> (Tensor, Tensor)",
    ],
    "every argument": ["--kernel", *EVERY_ARGUMENT],
    "rows": ["--rows", *ROWS],
}


@needs("mypy")
@pytest.mark.slow
def test_a_type_checker_accepts_the_package_and_calls_of_it_and_refuses_wrong_ones(folder):
    schema = "f(Tensor[] xs, SymInt[] n, int[]? k, Device d, *, bool flag=False) -> (Tensor, Tensor)"
    assert main(["new", "zoo_ops", "--kernel", schema]) == 0
    (folder / "zoo_ops/python/calls.py").write_text("""# mypy: warn-unused-ignores
import torch, zoo_ops
x = torch.nn.Parameter(torch.ones(3))
a, b = zoo_ops.f([x], x.shape, (1,), "cpu", flag=True)
zoo_ops.f(x, x.shape, None, "cpu")  # type: ignore[arg-type]
zoo_ops.f([x], x.shape, None)  # type: ignore[call-arg]
zoo_ops.f([x], x.shape, None, "cpu", True)  # type: ignore[call-arg]
""")
    run("mypy", "python/zoo_ops", "python/calls.py", cwd=folder / "zoo_ops", MYPYPATH="python")


@needs("ruff", "clang-format")
@pytest.mark.parametrize("schemas", WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_is_formatted(folder, schemas):
    assert main(["new", "zoo_ops", *schemas]) == 0
    run("ruff", "check", "--no-cache", cwd=folder / "zoo_ops")
    run("ruff", "format", "--no-cache", "--check", cwd=folder / "zoo_ops")
    written = files(folder / "zoo_ops").keys() - recorded(folder / "zoo_ops")
    sources = [name for name in written if name.endswith((".h", ".cpp", ".cu"))]
    run("clang-format", "--dry-run", "--Werror", *sources, cwd=folder / "zoo_ops")


@needs("ruff", "clang-format")
def test_the_tour_is_written_as_these_formatters_write_it_where_they_are_not(folder, monkeypatch):
    """The diffs of the site apply to the written files."""
    written = []
    for name in ("formatted", "plain"):
        (folder / name).mkdir()
        monkeypatch.chdir(folder / name)
        assert main(["new", "my_ops", SOFTCLIP, POPCOUNT, BLEND]) == 0
        monkeypatch.chdir(folder / name / "my_ops")
        assert main(["add", "--kernel", KERNEL]) == 0
        assert main(["add", "--rows", RMS_NORM]) == 0
        written.append({x: path.read_text() for x, path in files(Path()).items()})
        monkeypatch.setattr(_write.shutil, "which", lambda *_, **__: None)
    assert written[0] == written[1]


@needs("ruff", "clang-format")
def test_a_file_that_its_author_formats_by_hand_is_not_formatted(new):
    new(SOFTCLIP)
    by_hand = {"src/functors.h": "struct  Mine {};\n", "python/zoo_ops/ops.py": "MINE = {  1:2}\n"}
    for name, line in by_hand.items():
        path = Path(name)
        at = "namespace zoo_ops" if name.endswith(".h") else "__all__"
        path.write_text(path.read_text().replace(at, line + at, 1))
    long = ", ".join(f"Tensor of_the_input_{i}" for i in range(8))
    assert main(["add", f"wide({long}, float a_factor) -> Tensor"]) == 0
    for name, line in by_hand.items():
        assert line in Path(name).read_text()
    run("ruff", "format", "--no-cache", "--check", "tests/operators.py", cwd=".")


@pytest.mark.parametrize(
    ("copied", "original"), [("src/elementwise", "src/elementwise"), ("python/signal_ops/_layer", "muladd_nb/_layer")]
)
def test_the_layer_is_two_folders_as_they_are(folder, copied, original):
    assert main(["new", "signal_ops", SOFTCLIP]) == 0
    copies, originals = files(folder / "signal_ops" / copied), files(ROOT / original)
    assert copies.keys() == {name for name in originals if "__pycache__" not in name}
    for name, path in copies.items():
        assert path.read_bytes() == originals[name].read_bytes()
        assert os.access(path, os.X_OK) == os.access(originals[name], os.X_OK)


def test_hosts_of_code_leave_the_copies_out_of_differences_and_searches(folder):
    """Code hosts leave out no other file."""
    assert main(["new", "signal_ops", SOFTCLIP]) == 0
    project = folder / "signal_ops"
    run("git", "init", "-q", cwd=project)
    names = [name for name in files(project) if not name.startswith(".git/")]
    told = run("git", "check-attr", "linguist-vendored", *names, cwd=project).splitlines()
    vendored = {line.partition(": ")[0] for line in told if line.endswith(": set")}
    assert vendored == {name for name in names if name in recorded(project)}


def test_only_the_names_of_the_author_are_left(folder):
    assert main(["new", "signal_ops", "modulate(Tensor a, Tensor b) -> Tensor"]) == 0
    for name, path in files(folder / "signal_ops").items():
        text = path.read_text()
        if name in recorded(folder / "signal_ops") and not name.startswith("tests/"):
            continue
        assert not re.search("my_?ops|mymul", name + text, re.IGNORECASE), name
        assert name in ("README.md", RECORD) or "muladd" not in text.replace("`muladd-nb update`", ""), name
    assert "modulate(Tensor a, Tensor b)" in (folder / "signal_ops/src/operators.h").read_text()


def refused(arguments, capsys):
    """Return the error message for these arguments."""
    assert main(arguments) == 2
    return capsys.readouterr().err.removeprefix(f"muladd-nb {arguments[0]}: ").removesuffix("\n")


@pytest.fixture
def cases(monkeypatch):
    """Return the names of the module ``cases`` of a generated project."""
    path = ROOT / "muladd_nb/_new/copied/tests/cases.py"
    source = path.read_text().replace("from my_ops", "from muladd_nb")
    namespace = {"__name__": "cases"}
    monkeypatch.setitem(sys.modules, "cases", types.ModuleType("cases"))  # dataclasses look it up there
    exec(compile(source, path, "exec"), namespace)
    return namespace


def test_each_result_has_the_tolerance_of_its_dtype(cases):
    """And a failure names the result, and the two elements that differ most."""
    case = object.__new__(cases["Case"])
    case.name, case.tolerance = "quantize", {torch.int8: (0, 1)}
    near = torch.tensor([1, 4], dtype=torch.int8), torch.tensor([0.5, 2.0])
    exact = torch.tensor([2, 3], dtype=torch.int8), torch.tensor([0.5, 2.0])
    case.check(near, exact, "the result")
    with pytest.raises(AssertionError, match=r"^quantize: the result\. There must be 2 results, got 1$"):
        case.check(near[0], exact, "the result")
    with pytest.raises(AssertionError, match=r"(?s)^quantize: the result, result 1\. Tensor-.* got 2, expected 2\.5$"):
        case.check(near, (exact[0], torch.tensor([0.5, 2.5])), "the result")
    with pytest.raises(AssertionError, match=r"(?s)^quantize: the result\. .* differ most: got inf, expected nan$"):
        case.close(torch.tensor([1.0, torch.inf]), torch.tensor([9.0, torch.nan]), "the result", rtol=0, atol=0)
    # 1000 and 1000.001 are within the tolerance.
    with pytest.raises(AssertionError, match=r"(?s)^quantize: .* differ most: got 0\.5001\d*, expected 0\.5$"):
        case.check(torch.tensor([1000.001, 0.5001]), torch.tensor([1000.0, 0.5]), "the result")


@pytest.mark.parametrize("with_nan", [True, False])
def test_values_are_tested_with_nan_and_gradients_without(cases, with_nan):
    case = cases["Case"](muladd_nb.mymul, lambda tensor, either: (tensor(), tensor()), torch.mul)
    tried = torch.cat([args[0].double().flatten() for _, args in case.samples("cpu", with_nan=with_nan)])
    assert tried.isinf().any()
    assert tried.isnan().any() == with_nan


def test_derivatives_are_tested_where_a_result_is_floating_point(cases):
    """An argument such as a dtype may choose a result of integers."""
    case = cases["Case"](muladd_nb.mymul, lambda tensor, either: (tensor(), either(tensor(), tensor())), torch.mul)
    results = iter([torch.zeros(2), torch.zeros(2, dtype=torch.int64)])
    case.call = lambda *args: next(results)
    assert case.choices_with_floats() == [{}]


def test_a_case_knows_which_arguments_say_what_is_reduced(cases):
    """Otherwise the test of the template's texts does not notice those of an operator with another such argument."""
    assert cases["REDUCES"] == (*_schema._REDUCES,)


def test_a_case_can_say_that_no_element_is_negative(cases):
    """This includes random and extreme elements. Adam's second moment, for example, must not be negative."""
    for extremes, mean, low in itertools.product(((), cases["EXTREMES"], (1000.0, -1000.0)), (0, 1000.0), (0, 1)):
        tensor = cases["_Tensor"](torch.float32, "cpu", (2000,), extremes, mean)
        x = tensor(low, 3)
        assert (x >= low).all() and not x.signbit().any()
        assert len(x.unique()) > 1
        assert (tensor() < 0).any() or mean


@pytest.mark.parametrize(
    "name",
    ["1st", "my-ops", "my ops", "größe", "_ops", "ops_", "", "class", "../ops", "json", "Json", "aten",
     "load_library", "torch", "Torch", "elementwise", "std", "double", "muladd_nb", "cases", "test", "EOF", "numpy",
     "Pytest", "executorch"],
)  # fmt: skip
def test_bad_names_of_packages_are_refused(folder, capsys, name):
    sentence = refused(["new", name], capsys)
    assert sentence.startswith("the name of the package must ")
    assert sentence.endswith(f"got {name!r}")
    assert not list(folder.iterdir())


def test_what_is_written_is_named_and_what_to_edit_next(folder, capsys, monkeypatch):
    assert refused(["new", "zoo-ops"], capsys).endswith("like 'zoo_ops', got 'zoo-ops'")
    assert main(["new", "zoo_ops", SOFTCLIP]) == 0
    assert "  softclip, element-wise: its functor in src/functors.h, its Case in" in capsys.readouterr().out
    monkeypatch.chdir(folder / "zoo_ops")
    assert main(["add", "--kernel", KERNEL]) == 0
    told = capsys.readouterr().out
    assert "  row_logsumexp, with a kernel of its own: src/row_logsumexp.h, .cpp and .cu" in told
    assert Path("python/zoo_ops/_row_logsumexp.py").exists() and "python/zoo_ops/_row_logsumexp.py" in told
    assert "\n  and the description of each in python/zoo_ops/ops.py and README.md\n" in told


def test_a_name_may_have_that_of_the_template_in_it(folder):
    """Names are refused in upper and in lower case."""
    assert main(["new", "MY_OPS_my_ops"]) == 0
    assert "torch.ops.MY_OPS_my_ops``" in (folder / "MY_OPS_my_ops/python/MY_OPS_my_ops/__init__.py").read_text()


@pytest.mark.parametrize("name", ["name", "_ops", "lambda", "double", "errno", "layer", "ops", "t", "tensor", "torch"])
def test_bad_names_of_operators_are_refused(folder, capsys, name):
    assert refused(["new", "signal_ops", f"{name}(Tensor x) -> Tensor"], capsys).endswith(f"got {name!r}")
    assert not list(folder.iterdir())


SCHEMAS = {
    "softclip(Tensor x": "torch says:",
    "softclip": "torch says:",
    "größe(Tensor x) -> Tensor": "must be of ASCII letters",
    "f(Tensor \udcff) -> Tensor": "must be of ASCII letters",
    "f(Tensor x, Tensor x) -> Tensor": "two arguments are called x",
    "f(Tensor x, bool b=true) -> Tensor": "write True or False; torch says",
    "f(Tensor int64_t, int n) -> Tensor": "one that the generated project has already",
    "f(Tensor x, ...) -> Tensor": "'...' is not supported",
    "f(Tensor M_PI) -> Tensor": "a macro of C++ has already, got 'M_PI'",
    "f(Tensor x, Tensor grad__0) -> Tensor": "two underscores in a row, as those of derivatives do, got 'grad__0'",
    "f(Tensor x, SymInt k) -> Tensor": "k is symbolic; write int",
    "f(Tensor x, SymBool k) -> Tensor": "take a bool",
    "f(Tensor x, complex z) -> Tensor": "take two floats",
    "f(Tensor x, int n=1.5) -> Tensor": "the default of n must be of its type, int, got 1.5",
    "f(Tensor x, int n=True) -> Tensor": "the default of n must be of its type, int, got True",
    "f(Tensor x, bool n=2) -> Tensor": "the default of n must be of its type, bool, got 2",
    "f(Tensor x, float n=None) -> Tensor": "the default of n must be of its type, float, got None",
    "f(Tensor x, Tensor y=None) -> Tensor": "the default of y must be of its type, Tensor, got None; write Tensor?",
    "f(Tensor x, Generator? g) -> Tensor": "take a seed, an int",
    "f(Tensor x, Tensor?[] xs) -> Tensor": "xs must be a tensor, an optional tensor or a list of tensors",
    "f(Tensor x, double[] xs) -> Tensor": "write float",
    "f(Tensor x, half c) -> Tensor": "write float",
    "f(Tensor x, Storage s) -> Tensor": "it passes Tensor, float, int",
    "f(Tensor x, float c,) -> Tensor": "leave out the comma before the parenthesis",
    "f(Tensor x)": "write its results, as in '-> Tensor'",
    "f(Tensor x) -> Tensor;": "leave out what stands after the results",
    "f(x: Tensor) -> Tensor": "write the type before the name",
    "f(const Tensor& x) -> Tensor": "write Tensor, Tensor?, Tensor[]",
    "f(Tensor x, Optional[Tensor] y) -> Tensor": "write Tensor, Tensor?, Tensor[]",
    "class(Tensor x) -> Tensor": "torch says:",
    "f(Tensor(a) x) -> Tensor(a)": "it returns a view",
    "f(Tensor(a) x) -> Tensor": "x is aliased",
    "f(Tensor(a!) x) -> Tensor(a!)": "which does not compile right",
    "f(Tensor(a!) x, float c) -> Tensor": "it writes to x and must return nothing",
    "f(Tensor[] x) -> Tensor": "x is a list; pass its elements one by one, or use --kernel, which takes lists",
    "f(Tensor x, float a=1.0, int[] n) -> Tensor": "n has no default, and follows a, which has one: put it before that",
    "f(Tensor x, int n=9223372036854775808) -> Tensor": "a number in it is too large for its type",
    "f(Tensor x, double c) -> Tensor": "c is of the type double; write float",
    "f(Tensor x, Scalar c) -> Tensor": "c is a Scalar, a number of any type, which",
    "f(Tensor x, Scalar? c=None) -> Tensor": "take a float",
    "f(Tensor x, double c=1.0) -> Tensor": "c is of the type double; write float",
    "f(Tensor x, double? c) -> Tensor": "c is of the type double; write float",
    "f(Tensor x, ScalarType d) -> Tensor": "got ScalarType, or use --kernel",
    "my-op(Tensor x) -> Tensor": "like 'my_op', got 'my-op'",
    "f(Tensor x, ScalarType? dtype) -> Tensor": "got ScalarType?, or use --kernel",
    "f(Tensor x) -> Tensor[]": "results must be tensors",
    "f_out(Tensor x) -> (Tensor, Tensor)": "its name ends in _out",
    "f(Tensor x) -> ()": "must return a tensor",
    "f(Tensor x, str n) -> Tensor": "use --kernel",
    "f(Tensor x, *, int kernel=3) -> Tensor": "torch cannot pass kernel by name: put it before the *, or choose",
    "f(Tensor? x) -> Tensor": "there must be a tensor that is not optional",
    "f(Tensor!? x, Tensor y) -> ()": "x is written to and cannot be optional: leave the ? out, or use --kernel",
    "f(Tensor x, *, Tensor? y=None) -> Tensor": "y must be positional, as a tensor, and have no default",
    "f(Tensor x, Tensor? a, Tensor? b, Tensor? c, Tensor? d) -> Tensor": "12 tensors, of them 3 optional ones",
    "f(Tensor x, flaot c) -> Tensor": "MemoryFormat; is it float?",
    "f(float c) -> Tensor": "there must be a tensor",
    "f(*, Tensor x) -> Tensor": "must be positional",
    "f_out(Tensor x, float c=1.0, *, Tensor(a!) out) -> ()": "must be positional",
    "f.tag(Tensor x) -> Tensor": "a name of its own",
    "signal_ops::f(Tensor x) -> Tensor": "leave the namespace out",
    "f(Tensor x, *, Tensor(a!) out) -> ()": "out must be positional",
    "f_out(Tensor x) -> Tensor": "its name ends in _out",
    "f_(Tensor x) -> Tensor": "to torch a name that ends in _ says that arguments are updated",
    "f(Tensor x, float is_number) -> Tensor": "got 'is_number'",
    "f(Tensor out) -> Tensor": "got 'out'",
    f"f({', '.join(f'Tensor x{i}' for i in range(13))}) -> Tensor": "there may be 12 tensors",
}


OF_ROWS = {
    "f(Tensor x, float dim) -> Tensor": "dim of an operator over rows must be int, got float",
    "f(Tensor x, int keepdim) -> Tensor": "keepdim of an operator over rows must be bool, got int",
    "f(Tensor row) -> Tensor": "a functor over rows uses the name row itself",
    "f(Tensor x, int[] dim) -> Tensor": "got int[]; for the last dimensions, write SymInt[] normalized_shape",
    "f(Tensor x, int[] shape) -> Tensor": "shape is a list",
    "f(Tensor x, int normalized_shape) -> Tensor": "normalized_shape of an operator over rows must be SymInt[]",
    "f(Tensor x, int[] normalized_shape, int dim) -> Tensor": "normalized_shape must have no default, and",
    "f(Tensor x, int[1] normalized_shape=1) -> Tensor": "normalized_shape must have no default, and the",
}
OF_KERNELS = {
    "functors(Tensor x) -> Tensor": "exists already, and is not overwritten",
    "module(Tensor x) -> Tensor": "exists already, and is not overwritten",
    "f(Tensor x, Scalar c) -> Tensor": "c is a Scalar, a number of any type, which the stable ABI of torch 2.10",
    "f(Tensor x, *, Generator? g=None) -> Tensor": "g is a Generator, which the stable ABI passes from torch 2.13",
    "f(Tensor x, complex c) -> Tensor": "c is complex, which the stable ABI of torch 2.10 does not pass",
    "f(Tensor x, SymBool b) -> Tensor": "b is SymBool, which",
    "f(Tensor x, Dict(str, int) d) -> Tensor": "d is Dict[str, int], which",
    "f(Tensor?[] x, Tensor y) -> Tensor": "x must be a tensor, an optional tensor or a list of tensors",
    "f(Tensor[]? x, Tensor y) -> Tensor": "x must be a tensor, an optional tensor or a list of tensors",
    "f(Tensor x, ScalarType t=6) -> Tensor": "the default of t must be None",
    "f(Tensor x, int lambda) -> Tensor": "is no keyword, got 'lambda'",
    "f(Tensor __x) -> Tensor": "an underscore and one, and is no keyword, like 'x', got '__x'",
    "__f(Tensor x) -> Tensor": "got '__f'",
    "f(float c) -> Tensor": "there must be a tensor, or a list of tensors",
    "f(Tensor? x) -> Tensor": "there must be a tensor, or a list of tensors",
    "f(Tensor x) -> ()": "it must return a tensor, or write to one",
    "f(Tensor x) -> Tensor?": "its results must be tensors",
}


@pytest.mark.parametrize(
    ("option", "schema", "sentence"),
    [
        (option, *of_one)
        for option, schemas in (((), SCHEMAS), (["--rows"], OF_ROWS), (["--kernel"], OF_KERNELS))
        for of_one in schemas.items()
    ],
)
def test_a_schema_that_cannot_be_written_is_refused(folder, capsys, option, schema, sentence):
    assert sentence in refused(["new", "signal_ops", *option, SOFTCLIP, schema], capsys)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("existing", ["file", "folder", "dangling link"])
def test_what_exists_is_left_alone(folder, capsys, existing):
    taken = folder / "signal_ops"
    {"file": taken.touch, "folder": taken.mkdir, "dangling link": lambda: taken.symlink_to("nowhere")}[existing]()
    assert "signal_ops exists already" in refused(["new", "signal_ops"], capsys)
    assert list(folder.rglob("*")) == [taken]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody may write to")
def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch, capsys):
    monkeypatch.chdir("/proc/self")
    assert "cannot be written" in refused(["new", "signal_ops"], capsys)


def test_add_refuses_what_it_would_overwrite(new, capsys):
    assert "is no project" in refused(["add", SOFTCLIP], capsys)
    new(SOFTCLIP)
    Path("src/row_logsumexp.cu").touch()
    before = contents()
    another = "softclip(Tensor x) -> Tensor"
    for arguments, sentence in (
        ([], "there must be a schema"),
        ([SOFTCLIP], "softclip is there already"),
        (["--kernel", another], "softclip is there already"),
        (["softclip_out(Tensor x, Tensor(a!) out) -> ()"], "softclip is there already"),
        ([OTHERS[0], OTHERS[0]], "popcount is there already"),
        (["Softclip(Tensor x) -> Tensor"], "a functor Softclip already"),
        (["--kernel", "Softclip(Tensor x) -> Tensor"], "a functor Softclip already"),
        (["--kernel", KERNEL], "src/row_logsumexp.cu exists already"),
    ):
        assert sentence in refused(["add", *arguments], capsys)
    Path("src/operators.h").write_text(before["src/operators.h"].decode().replace("\n>;", ">;"))
    assert "src/operators.h is not as it was written" in refused(["add", OTHERS[0]], capsys)
    Path("src/operators.h").write_bytes(before["src/operators.h"])
    Path("tests/operators.py").unlink()
    assert "tests/operators.py is missing" in refused(["add", OTHERS[0]], capsys)
    Path("tests/operators.py").write_bytes(before["tests/operators.py"])
    assert contents() == before


REMOVED = {
    "a row": [SOFTCLIP],
    "several": [OTHERS[0], PAIR, AFFINE, FADE, OTHERS[2]],
    "a write to what is called output": ["rmsnorm(Tensor! output, Tensor input, Tensor weight, float eps) -> ()"],
    "kernels": ["--kernel", *EVERY_ARGUMENT],
    "kernels of a schema each": ["--kernel", KERNEL, RMS_NORM],
    "over rows": ["--rows", RMS_NORM, "halves(Tensor x, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)"],
}


@pytest.mark.parametrize(
    ("first", "end"),
    [([BLEND], "\n"), (["--kernel", "keep(Tensor[] x, str how) -> Tensor"], "\r\n")],
    ids=["beside a row", "beside a kernel, CRLF"],
)
@pytest.mark.parametrize("schemas", REMOVED.values(), ids=REMOVED)
def test_what_is_removed_was_never_added(new, capsys, schemas, first, end):
    """All files are restored byte for byte, in any order of removal, even if the author has edited the operators."""
    new(*first)
    for path in (Path("python/zoo_ops/ops.py"), Path("src/functors.h"), Path("meson.build"), Path("README.md")):
        path.write_bytes(path.read_bytes().replace(b"\n", end.encode()))
    before = contents()
    assert main(["add", *schemas]) == 0
    assert contents() != before
    operators = Path("tests/operators.py")
    operators.write_text("tolerance={},\n        reference=".join(operators.read_text().rsplit("reference=", 1)))
    names = [schema.partition("(")[0] for schema in schemas if not schema.startswith("--")]
    for removed in ([names[-1]], names[:-1]):
        assert not removed or main(["remove", *removed]) == 0
    assert "Still named" not in capsys.readouterr().out
    assert contents() == before


def test_a_functor_that_another_operator_has_is_not_removed_nor_is_what_is_not_there(new, capsys):
    new(SOFTCLIP, OTHERS[0])
    operators = Path("src/operators.h")
    operators.write_text(operators.read_text().replace("Popcount", "Softclip"))
    assert (
        refused(["remove", "clip"], capsys) == "there is no operator clip in this project; there are popcount, softclip"
    )
    assert main(["remove", "softclip"]) == 0
    assert "struct Softclip" in Path("src/functors.h").read_text()
    assert "softclip" not in operators.read_text()
    assert main(["remove", "popcount"]) == 0
    assert "struct Softclip" not in Path("src/functors.h").read_text()
    assert "no operator popcount in this project; there are none" in refused(["remove", "popcount"], capsys)


@pytest.mark.parametrize("of_second", ["    // b\n{}", "{} // b", "    //{},"])
def test_the_comments_on_an_entry_are_removed_with_it_and_others_stay(new, of_second):
    new(SOFTCLIP, OTHERS[0])
    operators = Path("src/operators.h")
    text = operators.read_text()
    first, second = re.findall(r"    Operator<.*>", text)
    operators.write_text(text.replace(f"{first},\n{second}", f"{first}, // a\n{of_second.format(second)}"))
    assert main(["remove", "popcount"]) == 0
    assert operators.read_text() == text.replace(f"{first},\n{second}", f"{first} // a")


def test_only_the_kernel_of_this_name_is_removed(new, capsys):
    new("--kernel", "adam_(Tensor! x) -> ()", "keep(Tensor x) -> Tensor")
    before = contents()
    assert refused(["remove", "adam"], capsys) == "there is no operator adam in this project; there are adam_, keep"
    assert contents() == before
    build = Path("meson.build")
    build.write_text(
        re.sub(r"files\(\n  ('src/adam.cpp'),\n  ('src/keep.cpp'),\n\)", r"files(\1, \2)", build.read_text())
    )
    capsys.readouterr()
    assert main(["remove", "adam_", "adam_"]) == 0
    assert capsys.readouterr().out == "Removed: adam_.\n"
    assert "adam" not in build.read_text() and "own_kernels = files( 'src/keep.cpp')\n" in build.read_text()


def test_an_author_may_write_a_functor_in_another_style(new, capsys):
    new(SOFTCLIP, OTHERS[0])
    functors, operators = Path("src/functors.h"), Path("src/operators.h")
    functors.write_text(functors.read_text().replace("struct Softclip {", "template <int n>\nstruct Softclip\n{"))
    operators.write_text(operators.read_text().replace("Softclip,", "Softclip<2>,"))
    assert main(["remove", "softclip"]) == 0
    assert not re.search("Softclip|template <int n>", functors.read_text() + operators.read_text())


def test_a_file_keeps_its_mode_and_a_link_its_target(new):
    new(SOFTCLIP)
    Path("docs").mkdir()
    Path("README.md").rename("docs/index.md")
    Path("README.md").symlink_to("docs/index.md")
    Path("src/functors.h").chmod(0o600)
    assert main(["add", OTHERS[0]]) == 0
    assert Path("README.md").is_symlink()
    assert "popcount" in Path("docs/index.md").read_text()
    assert Path("src/functors.h").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_utf8_is_named(new, capsys):
    new(SOFTCLIP)
    Path("src/functors.h").write_bytes(b"// caf\xe9\n" + Path("src/functors.h").read_bytes())
    for command in (["add", OTHERS[0]], ["remove", "softclip"]):
        assert refused(command, capsys).startswith("src/functors.h is not UTF-8 (byte 6): save it as UTF-8")


def test_a_python_file_may_begin_with_a_byte_order_mark(new):
    new(SOFTCLIP)
    for path in map(Path, ("python/zoo_ops/_operators.py", "python/zoo_ops/ops.py", "tests/operators.py")):
        path.write_text(path.read_text(), encoding="utf-8-sig")
    assert main(["add", OTHERS[0]]) == 0
    assert main(["remove", "softclip"]) == 0


def test_a_schema_may_have_several_lines(new):
    new("f(Tensor x,\n  float y=1.5,\n  *, int n=2)\n  -> Tensor")
    assert '"f(Tensor x, float y=1.5, *, int n=2)"' in Path("src/operators.h").read_text()


def test_a_default_that_is_text_keeps_it(folder):
    text = "f(Tensor x, str s=\"a  b ...\", *, str t='...') -> Tensor"
    assert main(["new", "zoo_ops", "--kernel", text]) == 0
    paths = ("python/zoo_ops/ops.py", "src/f.cpp", "README.md")
    python, cpp, readme = ((folder / "zoo_ops" / path).read_text() for path in paths)
    assert "zoo_ops.f(x, s, *, t)" in readme
    assert 's: str = "a  b ..."' in python
    assert "a  b ..." in cpp


def test_an_annotation_allows_what_torch_takes(folder):
    """A list[Parameter] is a Sequence[Tensor] but no list[Tensor], and a device is often a string."""
    assert main(["new", "zoo_ops", "--kernel", "f(Tensor[] xs, SymInt[] n, int[]? k, Device d) -> Tensor"]) == 0
    python = (folder / "zoo_ops/python/zoo_ops/ops.py").read_text()
    assert "def f(xs: Sequence[Tensor], n: Sequence[int], k: Sequence[int] | None, d: torch.device | str)" in python


def test_a_file_that_python_cannot_read_is_named_and_nothing_is_removed(new, capsys):
    new(SOFTCLIP)
    functions = Path("python/zoo_ops/ops.py")
    functions.write_text(functions.read_text() + "def broken(:\n")
    before = contents()
    line = functions.read_text().count("\n")
    assert refused(["remove", "softclip"], capsys) == f"{functions}, line {line}: invalid syntax; nothing is removed"
    assert contents() == before


@pytest.mark.parametrize(
    ("path", "text", "is_use"),
    [
        ("tests/test_more.py", "zoo_ops.f", True),
        ("tests/test_more.py", "from zoo_ops import f", True),
        ("tests/test_more.py", 'torch.library.opcheck("zoo_ops::f")', True),
        ("python/zoo_ops/more.py", "twice = lambda x: f(f(x))", True),
        ("src/more.cpp", '#include "f.h"', True),
        ("src/more.cpp", "zoo_ops::f(x)", True),
        ("tests/test_more.py", 'f"{name}"  # of f', False),
        ("tests/test_more.py", "def call(f):\n    return f()", False),
        ("src/more.cpp", "float half(float f) { return f * 1.f; } // of f", False),
    ],
)
def test_what_still_names_an_operator_that_was_removed_is_told(new, capsys, path, text, is_use):
    new(SOFTCLIP, "f(Tensor x) -> Tensor")
    Path(path).write_text(text)
    assert main(["remove", "f"]) == 0
    assert re.findall("Still named in (.*)", capsys.readouterr().out) == ([path] if is_use else [])


def test_add_says_first_what_it_takes_an_operator_for(new, capsys):
    new()
    capsys.readouterr()
    assert main(["add", "rmsnorm(Tensor! output, Tensor input, Tensor weight, float epsilon) -> ()"]) == 0
    understood, *rest = capsys.readouterr().out.splitlines()
    assert understood.startswith(
        "rmsnorm is element-wise: an element of output is computed from the elements of output, input"
    )
    assert "'muladd-nb remove rmsnorm', and add it with --rows" in understood
    assert rest[0].startswith("Added.")
    assert main(["add", "--kernel", KERNEL]) == 0
    assert capsys.readouterr().out.startswith(
        "row_logsumexp is a kernel of your own, which may read any element of x.\n"
    )


def test_add_knows_an_operator_by_its_entry_alone(new, capsys):
    """Its public function is in another file, and its declaration is on two lines."""
    new(SOFTCLIP)
    ops, table = Path("python/zoo_ops/ops.py"), Path("python/zoo_ops/_operators.py")
    ops.write_text(ops.read_text().replace("def softclip", "def clip"))
    text = table.read_text()
    table.write_text(text.replace('"softclip(', '"softclip"\n    "('))
    assert "softclip is there already" in refused(["add", SOFTCLIP], capsys)
    table.write_text(text.replace("softclip(Tensor", "softclip(Tensors"))
    assert "there is no one TABLE of declarations" in refused(["add", SOFTCLIP], capsys)


@pytest.mark.parametrize("end", ["", " // a -> b", '\n    // Operator<"old(Tensor x)", Old, functional>\n'])
def test_an_operator_is_added_before_or_after_the_authors_comments(new, end):
    new(SOFTCLIP)
    operators = Path("src/operators.h")
    operators.write_text(operators.read_text().replace("\n>;", f"{end}\n>;"))
    assert main(["add", OTHERS[0]]) == 0
    added, text = '    Operator<"popcount(Tensor x)", Popcount,', operators.read_text()
    assert f"differentiable>,{end.rstrip()}\n{added}" in text and ">\n>;" in text


@pytest.mark.parametrize("kind", ["Tensors", "Tensors!", "Tensor?(a!)", "Tensor?!", "int!"])
def test_a_declaration_that_cannot_be_read_is_an_error(kind):
    with pytest.raises(ValueError, match=r'x\): an argument is a "Tensor x", "Tensor\? x", "float c"'):
        _C.read(f"f(Tensor y, {kind} x)")


@pytest.mark.parametrize("readme", ["# Ours\n\n| a | table |\n|---|---|\n", None])
def test_an_operator_is_added_to_a_project_with_another_readme(new, readme):
    new(SOFTCLIP)
    Path("README.md").unlink() if readme is None else Path("README.md").write_text(readme)
    assert main(["add", *OTHERS]) == 0
    assert "popcount(Tensor x)" in Path("src/operators.h").read_text()
    assert (Path("README.md").read_text() if Path("README.md").exists() else None) == readme
