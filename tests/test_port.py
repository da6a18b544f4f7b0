"""``muladd-nb port`` names the code that binds an extension to one torch, and makes only the mechanical changes."""

import csv
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import run
from ten import ROOT

from muladd_nb.__main__ import main
from muladd_nb._port._reader import Reader
from muladd_nb._port._table import ATEN, NAMES, ROWS

EXTENSION = """\
#include <torch/extension.h>
#include "mine.h"
using namespace at;
// at::Tensor and TORCH_CHECK in a comment
const char* text = "TORCH_CHECK(at::Tensor)";
Tensor f(const Tensor& x, double p, c10::optional<at::Tensor> w) {
  TORCH_CHECK(x.dim() == 2, "two dimensions");
  auto options = x.options().dtype(kLong);
  auto count = torch::zeros({x.size(0)}, options);
  Tensor y = torch::empty_like(x.contiguous());
  AT_DISPATCH_FLOATING_TYPES_AND(kHalf, x.scalar_type(), "f", [&] {
    const scalar_t* from = x.data_ptr<scalar_t>();
    scalar_t a = 0, *to = y.data_ptr<scalar_t>();
    at::parallel_for(0, x.numel(), 1024, [&](int64_t begin, int64_t end) {
      for (auto i = begin; i < end; i++) to[i] = a + from[i] * scalar_t(p);
    });
  });
  return y;
}
TORCH_LIBRARY(mine, m) {
  m.def("f(Tensor x, float p, Tensor? w) -> Tensor");
}
TORCH_LIBRARY_IMPL(mine, CPU, m) {
  m.impl("f", &f);
}
"""


def port(tmp_path, *options, **files):
    """Write files, run the command on their folder, and return its exit status."""
    for name, text in files.items():
        path = tmp_path / name.replace("_DOT_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return main(["port", *options, str(tmp_path)])


def written(tmp_path, *options, **files):
    """Write files, make the mechanical changes, and return the text of the first file."""
    port(tmp_path, "--write", "--force", *options, **files)
    return (tmp_path / next(iter(files)).replace("_DOT_", ".")).read_text()


def found(tmp_path, capsys, *options, **files):
    """Return the findings as a set of tuples: line, what, how."""
    port(tmp_path, "--json", *options, **files)
    report = json.loads(capsys.readouterr().out)
    return {(x["line"], x["what"], x["how"]) for x in report["findings"]}, report


# Pieces of code, and what is found in the last line of each.
FOUND = {
    "mechanical": [
        ("at::Tensor f();", "at::Tensor"),
        ("using at::Tensor;\nTensor f();", "at::Tensor"),
        ("namespace at { Tensor f(); }", "at::Tensor"),
        ("namespace t = torch;\nt::Tensor f();", "torch::Tensor"),
        ("#define F(x) TORCH_CHECK(x)", "TORCH_CHECK"),
        ("void f() { auto d = c10::Dict<int, at::Tensor>(); }", "at::Tensor"),
        ("void f(at::Tensor x, double y) { x.fill_(y); }", "x.fill_()"),
        ("void f() { at::cuda::CUDAGuard guard(0); }", "at::cuda::CUDAGuard"),
        ("void f() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }", "C10_CUDA_KERNEL_LAUNCH_CHECK"),
        ("namespace mine { struct Tensor {}; }\nusing namespace at;\nTensor f();", "at::Tensor"),
        ("namespace a { using Tensor = at::Tensor; }\nusing namespace a;\nusing namespace at;\nTensor f();",
         "at::Tensor"),
        ('#define C(d, x) TORCH_CHECK(x == d, #x " is " #d "D")', "TORCH_CHECK"),
        ("#define DATA data_ptr\nvoid f(at::Tensor x) { x.DATA<int>(); }", "x.data_ptr()"),
        ("#define TORCH_CHECK AT_CHECK\nvoid f() { TORCH_CHECK(true); }", "TORCH_CHECK"),
        ("struct F {\nF g(); at::Tensor x; };\nF F::g() {\nx.to(1); }", "x.to()"),
        ("void f(at::Tensor x) { x.generic_packed_accessor<A, 1, B, C>(); }", "x.generic_packed_accessor()"),
        ("using namespace pybind11::literals;", "using namespace pybind11::literals"),
        ("#define API\nAPI int f();\n#undef API\nTORCH_LIBRARY(a, m) {}", "TORCH_LIBRARY"),
        ("namespace at { using namespace at::sparse; SparseTensor f(); }", "at::sparse::SparseTensor"),
        ("namespace at { int mine(Tensor x); }\nvoid f(at::Tensor x) { mine(x); }", "mine"),
        ("auto x = at::ScalarType::Float;", "at::ScalarType"),
        ("void f(std::map<int, at::Tensor> m) { for (auto& x : m) x.second.to(1); }", "x.to()"),
        ("void f(std::map<int, at::Tensor> m) { for (auto& [k, v] : m) v.to(1); }", "x.to()"),
        ("void f(std::map<int, at::Tensor> m) { m.find(1)->second.to(1); }", "x.to()"),
        ("void f(std::vector<std::pair<int, at::Tensor>> v) { v.begin()->second.to(1); }", "x.to()"),
        ("void f() { std::make_pair(1, at::ones(1)).second.to(1); }", "x.to()"),
        ("void f(std::vector<at::Tensor> v) { for (auto i = v.begin();;) i->to(1); }", "x.to()"),
        ("void f(std::function<at::Tensor(int)> g) { g(1).to(1); }", "x.to()"),
        ("void f(std::future<at::Tensor> x) { x.get().to(1); }", "x.to()"),
        ("void f(V v) { if (auto* p = std::get_if<at::Tensor>(&v)) p->to(1); }", "x.to()"),
        ("void f() { at::full({2}, 1.5); }", "torch::full"),
        ("void f(at::Tensor x) { RUN(auto y = x; y.zero_();) }", "x.zero_()"),
        ("int f(int a, P* x) { return at::ceil_div(a, std::get<0>(*x).size(0)); }", "at::ceil_div"),
        ("void f(at::Tensor x) { MY_DISPATCH(x.type()); }", "x.type()"),
        ("at::Tensor f(at::Tensor& x) { return x.fill_(1); }", "x.fill_()"),
        ("void f(at::Tensor x) { int* p(x.data_ptr<int>()); }", "x.data_ptr()"),
        ("void f() { auto g = []() -> at::Tensor { return h(); }; g().to(1); }", "x.to()"),
        ("void f() { auto x = []() -> at::Tensor { return h(); }(); x.to(1); }", "x.to()"),
        ("void f(auto x, at::Tensor y) { x.y.min().cpu().to(1); }", "x.to()"),
    ],
    "decision": [
        ("#define F(x) \\\n  x.options()", "x.options()"),
        ("void f(at::Tensor x, const at::Tensor& y) { x.fill_(y); }", "x.fill_()"),
        ("void f(at::Tensor x, const at::Tensor& y) { at::fill_(x, y); }", "at::fill_"),
        ("PYBIND11_MODULE(x, m) { m.doc(); }", "PYBIND11_MODULE"),
        ("using namespace at;\nvoid f() { DimVector x; }", "at::DimVector"),
        ('void f() {\nTORCH_CHECK_EQ(1, 1) << "x" << 2; }', "TORCH_CHECK_EQ"),
        ("PyMODINIT_FUNC PyInit_a(void) {}", "PyInit_a"),
        ('TORCH_LIBRARY(a, m) { m.impl("f", at::kCPU, &f); }', "m.impl(name, key, f)"),
        ("struct P { template <class T> T* data_ptr(); };\nvoid f(auto g) { auto x = g(); x.data_ptr<int>(); }",
         "x.data_ptr()"),
        ("struct P { int dtype(); };\n#define SAME(x, y) (x).dtype() == (y).dtype()", "x.dtype()"),
        ("#define MY_CHECK(x) g(x)\nvoid f(at::Tensor x) { MY_CHECK(x.sizes()); }", "x.sizes()"),
        ("void f() { C10_CUDA_CHECK(g(A((void*)) b, 1)); }", "C10_CUDA_CHECK"),
        ("void f(int* x) { TORCH_INTERNAL_ASSERT_DEBUG_ONLY(g(x)); }", "TORCH_INTERNAL_ASSERT_DEBUG_ONLY"),
        ("void f() { for (auto i : c10::irange(1, 2)) {} }", "c10::irange"),
        ('PYBIND11_MODULE(a, m) { m.def("f", &f); }\nvoid f(float x) {}', "float x"),
        ("void f(at::Tensor x) { auto o = x.options(); x = g(x); at::zeros(1, o); }", "torch::zeros"),
        ("void f(auto x) { x->value.as<c10::cuda::CUDAStream>().synchronize(); }", "stream.synchronize()"),
        ("void f(cudaStream_t s) { s.synchronize(); }", "stream.synchronize()"),
        ("#if A\nint a;\n#elif AT_PARALLEL_OPENMP #endif", "AT_PARALLEL_OPENMP"),
        ("void f() {\nat::cuda::OptionalCUDAGuard g; }", "at::cuda::OptionalCUDAGuard"),
        ("struct A { at::cuda::CUDAGuard g; };", "at::cuda::CUDAGuard"),
        ("void f() { c10::cuda::CUDAGuard g({at::kCUDA, 0}); }", "c10::cuda::CUDAGuard"),
        ("void f() { g(std::make_unique<c10::cuda::CUDAGuard>(d)); }", "c10::cuda::CUDAGuard"),
        ("void f(at::Device d) { at::cuda::CUDAGuard g(0); g.set_device(d); }", "device guard.set_device()"),
        ("void f(at::Tensor x) { at::DeviceGuard g(x.device()); }", "at::DeviceGuard"),
        ("at::Tensor f(at::Tensor x) {\n#ifdef A\nauto o = x.options().dtype(at::kInt);\n#else\nauto o = "
         "x.options();\n#endif\nreturn at::zeros(1, o); }",
         "torch::zeros"),
        ("template <class T> struct A;\ntemplate <> struct A<at::Scalar> {};", "at::Scalar"),
        ("void f() { Py_BEGIN_ALLOW_THREADS }", "Py_BEGIN_ALLOW_THREADS"),
        ('at::Tensor& f(at::Tensor& x);\nTORCH_LIBRARY_IMPL(a, CPU, m) { m.impl("f", &f); }', "&f"),
        ('void f(at::IntArrayRef x);\nTORCH_LIBRARY_IMPL(a, CPU, m) {\nm.impl("f", TORCH_FN(f)); }', "TORCH_FN(f)"),
        ("at::Tensor& g();\n#define I(f) m.impl(#f, TORCH_FN(f))\nTORCH_LIBRARY(a, m) {\nI(g); }", "g"),
        ('at::Tensor (*const g)();\nTORCH_LIBRARY(a, m) {\nm.impl("f", g); }', "m.impl()"),
        ("#define I(m, n, f) m.impl(n, at::kCPU, f)", "m.impl(name, key, f)"),
        ("void f() { RECORD_KERNEL_FUNCTION_DTYPE(1, 2); }", "RECORD_KERNEL_FUNCTION_DTYPE"),
        ("void f(at::Tensor x) { at::cuda::setCurrentCUDAStream(g()); }", "at::cuda::setCurrentCUDAStream"),
        ("void f(at::TensorList x) {}\nvoid f(std::vector<at::Tensor> x) {}", "f"),
        ("template <> struct L<at::TensorList> {};\ntemplate <> struct L<std::vector<at::Tensor>> {};",
         "L<std::vector<at::Tensor>>"),
        ("template <> struct L<torch::stable::Tensor> {};\ntemplate<> struct L<torch::stable::Tensor> {};",
         "L<torch::stable::Tensor>"),
        ("struct A { at::Tensor cumsum(); };\nvoid f() {\nx.cumsum(); }", "x.cumsum()"),
        ("struct A : public at::Tensor {};", "A"),
        ('void f(at::Tensor x) { x.to("cuda:0"); }', "x.to()"),
        ("void f(at::Tensor x) { x.to(x); }", "x.to()"),
        ("void f() { at::full({2}, true); }", "torch::full"),
        ("SPACE { namespace {\nat::TensorOptions x; } }", "at::TensorOptions"),
        ("int f(int a, int b) { return at::ceil_div(a, --b); }", "at::ceil_div"),
        ("void f(int i, at::Tensor* x) { x[i++].nbytes(); }", "x.nbytes()"),
        ("at::Tensor g();\nvoid f() { h(g().nbytes()); }", "x.nbytes()"),
        ("int f(int a) { return at::ceil_div(a, next()); }", "at::ceil_div"),
        ("#if A\n#elif defined(TORCH_CHECK) #endif", "defined(TORCH_CHECK)"),
        ("#if A\n#elif TORCH_VERSION > 1 #endif", "TORCH_VERSION > 1"),
        ("void f(auto x) { x.y.to(at::kFloat); }", "x.to()"),
        ("void f(at::Tensor x, at::Tensor y) { x[y]; }", "x[i]"),
        ("void f(at::Tensor x, at::Tensor y) { g(x.type() == y.type()); }", "x.type()"),
        ("void f(at::Tensor x) { auto t = x.type(); }", "x.type()"),
        ("void f(at::Tensor x) { auto& y = x.zero_(); }", "x.zero_()"),
        ("at::Tensor& f(at::Tensor& x) { return x.fill_(1); }", "x.fill_()"),
        ("void f(at::Tensor x) { at::sub(x, 1); }", "at::sub"),
        ("void f(at::Tensor x) { at::zeros_like(x, at::kFloat); }", "at::zeros_like"),
        ("void f(at::Tensor x) { at::zeros({1}, x.type()); }", "torch::zeros"),
        ("void f(at::Tensor x, at::Tensor y) { x.to(y.type()); }", "x.to()"),
        ("void f(at::TensorList x) { x.slice(1); }", "Tensor[].slice()"),
        ("void f(at::Tensor* x) { g(at::TensorList(x, 2)); }", "at::TensorList"),
        ("auto f(c10::complex<float> x) { return std::conj(x); }", "std::conj"),
        ("void f(bool a) { g(a\n#ifdef A\n? 1 :\n#else\n? at::Scalar(2) :\n#endif\n at::Scalar(3)); }", "at::Scalar"),
        ("void f(at::Tensor x) { x.fill_(INT64_MAX); }", "x.fill_()"),
        ("void f() { at::full({2}, std::numeric_limits<int64_t>::max(), at::kLong); }", "torch::full"),
        ("void f(T y) { T x = std::numeric_limits<T>::max(); at::full(y, x, at::kLong); }", "torch::full"),
        ("#define X INT64_MAX\nvoid f(at::Tensor x) { x.fill_(X); }", "x.fill_()"),
        ("void f(at::Tensor x) { x.sum(at::kFloat); }", "x.sum()"),
        ("void f(at::Tensor x) { at::zeros({1}, x.options().layout(at::kStrided)); }", "torch::zeros"),
        ("A::~A() { C10_CUDA_CHECK_WARN(g()); }", "C10_CUDA_CHECK_WARN"),
        ('void f(std::vector<int64_t> x) { TORCH_CHECK(false, "a", x); }', "x"),
        ('void f(at::Tensor x) { AT_ERROR("a", x.device()); }', "x.device()"),
        ('#define C(x) TORCH_CHECK(x.dim() == 1, "a", (x).sizes())', "(x).sizes()"),
        ('std::tuple<at::Tensor&, int> g();\nTORCH_LIBRARY(a, m) { m.impl("g", &g); }', "&g"),
        ("int* f(int* x) {\nHANDLE_TH_ERRORS\nSTD_TORCH_CHECK(g(x), 2);\nauto i = 1; }\nvoid h(torch::stable::Tensor "
         "x) { STD_TORCH_CHECK(1, x.sizes()); }",
         "x.sizes()"),
        ("void f(float* x) { gpuAtomicAdd(x, 1.f); }", "gpuAtomicAdd"),
    ],
    "none": [
        ("void f(torch::Tensor x) { x.cumsum(0); }", "x.cumsum()"),
        ("void f(torch::Tensor x) { auto y = x[0]; g(y + y); }", "x + y"),
        ("void f(torch::Tensor x) { x += 1; }", "x += y"),
        ("void f(std::vector<at::Tensor> x) { g(x[0] * 2); }", "x * y"),
        ("void f(std::vector<std::vector<at::Tensor>> x) { g(x[0][0] * 2); }", "x * y"),
        ("void f(torch::Tensor x) { g(at::softmax(x, 0)); }", "at::softmax"),
        ("void f(torch::Tensor x) { g(relu(x)); }", "at::relu"),
        ("void f(at::Tensor x) { leaky_relu_(x, 0.1); }", "at::leaky_relu_"),
        ("using namespace torch;\nvoid f(auto x) { add_out(x, x, x); }", "torch::add_out"),
        ("std::string f(at::Device d) { return DeviceTypeName(d.type()); }", "at::DeviceTypeName"),
        ("struct F : torch::autograd::Function<F> {};", "torch::autograd::Function"),
        ("namespace py = pybind11;\nvoid f(py::dict x);", "pybind11::dict"),
        ("AT_DISPATCH_SOMETHING(x, [&] { });", "AT_DISPATCH_SOMETHING"),
        ("typedef at::Tensor T;\nvoid f(T x) { x.cumsum(0); }", "x.cumsum()"),
        ("void f(S s, at::Tensor& y) { for (auto& i : s.m()) i.second.cumsum(0); }", "x.cumsum()"),
        ('void f(std::map<int, at::Tensor> m) { auto x = m.at("y"); x.cumsum(0); }', "x.cumsum()"),
        ("void f(std::queue<at::Tensor> q) { q.front().cumsum(0); }", "x.cumsum()"),
        ("struct A { int a; };\nstd::pair<at::Tensor, int> g();\nvoid f() { auto&& [a, b] = g(); a.cumsum(0); }",
         "x.cumsum()"),
        ("void f(std::vector<at::Tensor> v) { auto i = std::next(v.begin()); i->cumsum(0); }", "x.cumsum()"),
        ("using A = std::optional<A>;\nvoid f(A x, at::Tensor y) { y.cumsum(0); }", "x.cumsum()"),
        ("CAFFE2_API int f();", "CAFFE2_API"),
        ("void f(std::shared_ptr<at::Tensor> x) { x->cumsum(0); }", "x.cumsum()"),
        ("int g();\nvoid f(at::Tensor (*g)(int)) { auto x = g(1); x.cumsum(0); }", "x.cumsum()"),
        ("std::ostream& f(std::ostream& s, c10::DeviceType t) { return s << t; }", "<< t"),
        ("void f(std::any x) { std::any_cast<at::Tensor>(x) + 1; }", "x + y"),
        ("void f() { auto x = std::vector<at::Tensor>(3); x[0] + 1; }", "x + y"),
        ("void f() { auto s = c10::cuda::CUDAStream::unpack3(1, 2, 3); }", "c10::cuda::CUDAStream::unpack3"),
        ("struct F { std::deque<at::Tensor> x; };\nvoid f(F g) { g.x.back() + 1; }", "x + y"),
        ("struct A { void f() { g(h + h); }; at::Tensor h; };", "x + y"),
        ("typedef void (*F)(pybind11::module&);", "pybind11::module"),
        ("namespace pybind11::detail { template <> struct type_caster<A> {}; }", "pybind11"),
        ("ska_ordered::map<int, int> m;", "c10::ska_ordered::map"),
        ("struct A { at::Tensor sizes(); };\nvoid f(A a) { a.sizes().cumsum(0); }", "x.cumsum()"),
        ("void f(at::Tensor x) { g(at::cat({x}).cumsum(0), stack({x})); }", "at::stack"),
        ("std::ostream& f(std::ostream& s, at::Tensor x) { return s << x.layout(); }", "<< x.layout()"),
        ("void f() { THFloatBlas_gemm('n', 1); }", "THFloatBlas_gemm"),
        ("struct A : public c10d::Backend {};", "c10d::Backend"),
        ("namespace at { void f() { namedinference::g(1); } }", "at::namedinference::g"),
        ('void f() { RECORD_FUNCTION("f", x); }', "RECORD_FUNCTION"),
        ("using namespace torch::jit;\nvoid f(Stack& s) { drop(s, 2); }", "torch::jit::drop"),
        ("using namespace c10;\nusing namespace torch::jit;\nvoid f(Graph& g);", "torch::jit::Graph"),
        ("namespace torch { namespace jit { void f(Graph& g); } }", "torch::jit::Graph"),
        ("using namespace c10;\nguts::function_traits<int> x;", "c10::guts::function_traits"),
        ("#define X y.as<at::Tensor>()\nvoid f(auto y) { X + 1; }", "x + y"),
        ("template <class T> struct Box { T get(); Box cumsum(); };\nvoid f(Box<at::Tensor> x) { x.get().cumsum(0); }",
         "x.cumsum()"),
        ("REGISTER_NATIVE_OPERATOR_FUNCTOR(a, b, c);", "REGISTER_NATIVE_OPERATOR_FUNCTOR"),
        ("DEFINE_DISPATCH(a);", "DEFINE_DISPATCH"),
        ("using namespace at;\nconst auto a = kPerTensorSymmetric;", "at::kPerTensorSymmetric"),
        ("void f() { C10D_NCCL_CHECK(1); }", "C10D_NCCL_CHECK"),
        ("void f(at::Tensor x) { x.narrow(0, 1, 2) = 1; }", "x[i] = y"),
        ("void f(std::map<int, at::Tensor> m) { m.find(1)->second.to(1); m[1] + 1; }", "x + y"),
        ("void f(THPObjectPtr x);", "THPObjectPtr"),
        ("void f(at::Tensor x) { x.view(at::kInt); }", "x.view()"),
        ('C10_DEFINE_bool(a, false, "b");', "C10_DEFINE_bool"),
        ("void f(auto& x, at::Tensor y) { g(x.first.is_same(y)); }", "x.is_same()"),
        ("struct A : LinearPackedParamsBase {};", "LinearPackedParamsBase"),
        ("using namespace at::native;\nint a[max_dim];", "at::native::max_dim"),
        ("namespace at { void f() { DispatchKeySet k; maybe_wrap_dims(g); } }", "at::DispatchKeySet"),
        ("namespace at { void f() { maybe_wrap_dims(g); } }", "at::maybe_wrap_dims"),
        ("using namespace torch;\nvoid f() { manual_seed(1); }", "torch::manual_seed"),
        ("int f(int a, int b) { return at::ceil_div<int>(a, b); }", "at::ceil_div"),
        ("struct A { std::function<at::Tensor(int)> g; };\nvoid f(A a) { a.g(1).cumsum(0); }", "x.cumsum()"),
        ("template <class T> struct A { T* operator->(); };\nvoid f(A<at::Tensor> a) { a->cumsum(0); }", "x.cumsum()"),
        ("template <class T> struct A { T b; };\nvoid f(A<at::Tensor> a) { a.b.cumsum(0); }", "x.cumsum()"),
        ("using F = decltype(ATEN_FN(add));", "ATEN_FN"),
        ("auto g(at::Tensor x) { return x.contiguous(); }\nvoid f(at::Tensor x) { auto y = g(x); y + 1; }", "x + y"),
        ("void f(std::tuple<int, std::vector<at::Tensor>, int> x) { std::get<1>(x)[0] + 1; }", "x + y"),
        ("void f(std::map<A, std::tuple<int, at::Tensor>> x) { std::get<1>(x[a]) + 1; }", "x + y"),
        ("auto g() -> at::Tensor;\nvoid f() { auto y = g(); y + 1; }", "x + y"),
        ("void f(at::Tensor x) { auto g = [&] { auto y = x.t(); return y; }; auto z = g(); z + 1; }", "x + y"),
        ("void f(at::Tensor x) { auto g = [y = x.t()] { y + 1; }; }", "x + y"),
        ("void f(void* x) { auto* y = static_cast<at::Tensor*>(x); *y + 1; }", "x + y"),
        ("void f(void* x) { auto* y = (at::Tensor*)x; *y + 1; }", "x + y"),
        ("void f() { auto* y = new at::Tensor(); y->cumsum(0); *y + 1; }", "x + y"),
        ("void f() { auto* y = new std::vector<at::Tensor>(); (*y)[0] + 1; }", "x + y"),
        ("void f(std::list<at::Tensor> x) { for (auto& y : x) y + 1; }", "x + y"),
        ("void f(std::reference_wrapper<at::Tensor> x) { x.get() + 1; }", "x + y"),
        ("template <class T> void f(T& x) { std::cout << x.device() << 1; }", "<< x.device()"),
        ("void f(std::vector<at::Tensor*> x) { *x[0] + 1; }", "x + y"),
        ("void f(std::array<std::array<at::Tensor, 2>, 2> x) { x[0][0] + 1; }", "x + y"),
        ("void f() { try { g(); } catch (python_error& e) {} }", "python_error"),
        ("void f(at::ScalarType x) { isIntegralType(x, false); }", "at::isIntegralType"),
        ("struct B { at::Tensor get(); float at(int i); };\nusing M = std::map<int, B>;\nvoid f(M m) { auto b = "
         "m.at(1); b.get().index({0}); }",
         "x.index()"),
    ],
    "follows": [
        ("at::TensorOptions f();\nvoid g() { f(); }", "f"),
        ("namespace c10d { using B = Backend;\nstruct P : public B {}; }", "B"),
        ("struct API F : torch::nn::Module {};\nF f();", "F"),
        ("TORCH_MODULE(A);\nA f();", "A"),
        ("struct F : torch::nn::Module {};\nint F::f() { return n(); }", "F::f"),
        ("namespace a { using V = at::vec::Vectorized<float>; }\nvoid f() { a::V::size(); }", "size"),
        ("void f() { constexpr int n = at::vec::Vectorized<int>::size();\nstatic_assert(n == 1); }", "n"),
        ('void f(at::Scalar s) {}\nTORCH_LIBRARY(a, m) {\nm.impl("f", TORCH_BOX(&f)); }', "f"),
        ("void f(at::Tensor x) {\nauto o = x.options();\ng(o); }", "o"),
        ("#define IS(x, t) g(x, at::t)\nvoid f() { IS(1, kInt); }", "IS"),
        ("auto f = [](\nat::Scalar s) {\nreturn 1;\n};", "}"),
        ("void f() {\nat::cuda::OptionalCUDAGuard g;\ng.set_device(1); }", "g"),
        ("typedef at::Scalar S;\nS f();", "S"),
        ("struct A : at::Tensor {\nA f(); };\nvoid f(A a) {\na.cumsum(0); }", "a"),
        ("typedef void (*F)(at::Scalar);\nF f();", "F"),
        ("namespace at { void f(CheckedFrom c) {\ng(c); } }", "c"),
        ("#define X y.as<at::Tensor>()\n#define G(f) X.f()\nvoid f(auto y) { G(sum); }", "G"),
        ("template <class T = at::Tensor>\nconstexpr bool c = is<decltype(std::declval<T>().grad())>;\nbool f() { "
         "return c<>; }",
         "c"),
        ("struct A { at::Scalar g(); };\nvoid f(A a) {\na.g(); }", "g"),
        ("template <class T, class C = at::opmath_type<T>>\nvoid g(T x) {}\nvoid f() {\ng(1); }", "g"),
        ("struct L;\nvoid f(L s, at::Tensor x) { s << x; }\nstruct L { template <class T> L& operator<<(const T& x) { "
         "return *this; } };",
         "operator<<"),
        ("namespace torch::jit { void f(Graph& g) {\nfor (Node* n : g.nodes()) h(n);\nint b; } }", "int"),
        ("namespace torch::jit { void f(Graph& g) {\nfor (Node* n : g.nodes()) h(n);\nint a; int b; int c;\n} }", "}"),
        ('void g(at::IntArrayRef x);\nTORCH_LIBRARY(a, m) { ADD(m, g); }\n#define ADD(m, f) m.impl("f", f)', "ADD"),
        ("DECLARE_DISPATCH(F, a);\nvoid f() {\na(1); }", "a"),
        ("void f() {\nconst int n = at::vec::Vectorized<int>::size();\nstd::array<int, n> x; }", "n"),
        ("#define R(x, m) void PYBIND11_CONCAT(f, x)(M m)\nR(g, m) {}", "R"),
        ("#define R(x) RECORD_FUNCTION(#x)\nvoid f() {\nR(g); }", "R"),
        ("template <class T> struct A { C10_ALWAYS_INLINE at::B<T, C> f(\nat::Scalar& s) const { h(1); }\nvoid g() { "
         "f(1); } };",
         "f"),
        ("void g(torch::Library& m);\nvoid f(int m) { g(m); }", "g"),
        ("namespace a { using S = at::Scalar; }\nusing a::S;", "a::S"),
        ("struct A { void put(int n, at::Scalar s); };\nvoid f(A a) {\na.put(1, 2); }", "put"),
        ("void g(const at::Scalar& s);\nvoid f() {\ng(1); }", "g"),
        ("struct A { int operator()(at::Scalar s); };\nvoid f(A a) {\na(1); }", "a"),
        ('C10_DEFINE_bool(a, false, "b");\nbool f() {\nreturn FLAGS_a; }', "FLAGS_a"),
        ("void f(int x) {\nat::Scalar c;\n(x.*c)(0); }", "c"),
        ("namespace a {\ntemplate <class T> concept C = g<T, at::Scalar>; }\ntemplate <class T> struct F {\n"
         "static_assert(a::C<T>); };",
         "C"),
        ("void f() { D(1, using A = at::acc_type<b, true>;\nk<A, 1>(2);); }", "A"),
        ("void f(at::Tensor x) { int a = x.cumsum(0), b = 1;\ng(b); }", "b"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("code", "what", "how"), [(*row, how) for how, rows in FOUND.items() for row in rows])
def test_it_names(code, what, how, tmp_path, capsys):
    findings, _ = found(tmp_path, capsys, a_DOT_cu=code)
    assert (code.count("\n", 0, code.rfind("\n") + 1) + 1, what, how) in findings, findings


@pytest.mark.parametrize(
    "code",
    [
        "// at::Tensor\n/* TORCH_CHECK(x) */",
        'const char* x = "at::Tensor"; const char* y = R"(TORCH_CHECK(x))";',
        "namespace mine { struct Tensor {}; }\nmine::Tensor f();",
        "using namespace at;\nstruct Tensor {};\nTensor f();",
        "namespace a { using at::Tensor; }\nnamespace b { struct Tensor {}; Tensor f(); }",
        "struct at_Tensor {}; int at = 0; int torch_f();",
        "struct A { int x; };\nstruct B { A x; };\nint f(B b) { return b.x.cumsum(0); }",
        "int f(Iterator i) { return i.shape.contiguous(); }",
        "#if MY_TORCH_VERSION_MAJOR > 1\n#endif",
        "struct A { int cumsum(); };\nstruct B : A {};\nint f(B b) { return b.A::cumsum(); }",
        "void f(std::vector<int> x) { x.size(); x.data(); x.sum(); }",
        "void f(torch::stable::Tensor x) { x.mutable_data_ptr<float>(); STD_TORCH_CHECK(x.dim() == 1); }",
        "c10::Half f();",
        "int f(torch::headeronly::ScalarType t) { return static_cast<int>(t); }",
        "void f() { RUN_IT(torch::headeronly::kCPU); }",
        "void f(int*, float (*)[3], int&&); auto [a, b] = f(nullptr);",
        "#if AT_SOMETHING\n#endif",
        "struct THist {};\nTHist f(int THREADS);",
        "C10_HOST_DEVICE C10_NOINLINE int f();",
        "#define MY_CHECK(x) g(x)\nvoid f(torch::stable::Tensor x) { MY_CHECK(x); }",
        "#define TORCH_MINE(x) x\nint f() { return TORCH_MINE(1); }",
        "constexpr int TORCH_MINE = 1;\nint f() { return TORCH_MINE; }",
        "enum A { TORCH_MINE };\nA f() { return TORCH_MINE; }",
        "#define NAME TORCH_EXTENSION_NAME",
        "void f(torch::stable::Tensor x) { auto relu = g(); relu(x); }",
        "using namespace at;\nfloat f(float x) { return floor(x); }",
        "namespace at { int mine(int x); }\nstruct A { int mine(); };\nint A::f() { return mine(); }",
        "using namespace at;\ntemplate <typename Device> void f(const Device& d);",
        "namespace torch::mine { struct Generator {}; }\nvoid f(torch::mine::Generator g);",
        "struct A { torch::stable::Tensor x[2]; };\nvoid f(A a) { torch::stable::Tensor y[2]; g(a.x[0], y[1]); }",
        "using namespace torch::jit;\nstruct A { void drop(); void f() { drop(); } };\n#pragma omp for if(f(drop))",
        "using namespace at;\nnamespace mine { namespace native { int g(); } int f() { return native::g(); } }",
        "bind() { return 1; }\nbind() { return 2; }",
        "void f(float x) {}\nvoid f(double x) {}\nvoid f(long* x) {}\nvoid f(int* x) {}",
        "void f(vector<int> x) {}\nvoid f(vector<double> x) {}\nnamespace a { void f(vector<int> x) {} }",
        "#if A\nvoid f(int x) {}\n#else\nvoid f(int x) {}\n#endif\nvoid g(A x) {}\nvoid g(B x) {}",
        "void f(int x) {}\nvoid f(int* x) {}\nint A::g(int x) {}\nint B::g(int x) {}\nint A::h() {}\nint A::h()const{}",
        "using namespace std;\nusing namespace torch;\nvoid f() { uniform_int_distribution<int> d; }",
        "struct PyA {};\nPyA f();\ntemplate <class PyClass> PyClass g(PyClass x) { return x; }",
        'void f() { torch::stable::Device("cpu").type(); }',
        "enum DeviceType { A };\nvoid f(std::ostream& s, DeviceType t) { s << t; }",
        "auto f(std::complex<float> x) { return std::conj(x); }",
        "using namespace at;\nnamespace mine { enum A { kFloat, B = 2 }; A f() { return kFloat; } }",
        "namespace mine { namespace at { int empty(int x); }\nint f() { return at::empty(1); } }",
        "#ifndef TORCH_CHECK\n#define TORCH_CHECK(x) f(x)\n#endif",
        "void f(std::pair<torch::stable::Tensor, std::vector<int>> x) { auto [a, b] = x; g(b[0]); }",
        "void f(std::pair<torch::stable::Tensor, B> x) { std::get<1>(x).contiguous(); }",
        "void f(std::tuple<int, torch::stable::Tensor, B> x) { auto [a, b, c] = x; std::get<2>(x).t(); c.t(); }",
    ],
)
def test_it_is_not_fooled(code, tmp_path, capsys):
    findings, _ = found(tmp_path, capsys, a_DOT_cpp=code)
    assert {x for x in findings if not x[1].startswith("using")} == set()


# Files of an extension, and all that is found in them: for each finding its lines, how, and what.
FILES = {
    "a header may rely on the using declaration of a file that includes it": (
        {"a.cpp": '#include "b.h"\nusing namespace at;\n', "b.h": "Tensor f();\n"},
        ["1 mechanical at::Tensor", "2 mechanical using namespace at"]),
    "a macro of another file defines a function": (
        {"a.h": "#define R(x, m) void PYBIND11_CONCAT(f, x)(M m)\n", "b.cpp": '#include "a.h"\nint a;\nR(g, m) {\n}\n'},
        ["1 none PYBIND11_CONCAT", "3 follows R"]),
    "a using declaration is after the namespace of the extension": (
        {"a.h": "namespace at { namespace vec { struct A {}; } }\nusing namespace at::vec;\n"}, []),
    "a using declaration is before the namespace of the extension": (
        {"a.h": "using namespace at::vec;\nnamespace at { namespace vec { struct A {}; } }\n"},
        ["1 decision using namespace at::vec"]),
    "what is included or defined in a namespace of torch's is read as in it": (
        {"a.inc": "Tensor f(Generator g);\n", "a.cpp": 'namespace at {\n#include "a.inc"\n#define F Scalar f();\n}\n'},
        ["1 mechanical at::Tensor", "1 decision at::Generator", "3 decision at::Scalar"]),
    "a line follows only from lines of the files around it; a is also a namespace": (
        {"a.cpp": "struct F : torch::nn::Module {};\nstruct G { at::Scalar a; };\na::B b();\n",
         "b.cpp": "struct F {};\nvoid g() { F f; }\n"},
        ["1 none torch::nn::Module", "2 decision at::Scalar"]),
    "a name is the extension's only where its declaration is included": (
        {"a.cpp": "using namespace at;\nTensor f();\n", "b.cpp": "struct Tensor {};\n"},
        ["1 mechanical using namespace at", "2 mechanical at::Tensor"]),
    "a name in an unrelated file does not hide torch's": (
        {"a.cpp": "namespace torch::jit { Node* f(); }", "b.h": "using Node = int;"}, ["1 none torch::jit::Node"]),
    "a type of the extension is not torch's in other files": (
        {"a.h": "namespace a { enum DeviceType { B }; struct C { DeviceType g(); }; }\n",
         "b.cpp": '#include "a.h"\nvoid f(std::ostream& s, a::C* c) { s << c->g(); }\n'}, []),
    "a field of a class that is not included says nothing of a name": (
        {"a.h": "struct A { std::vector<std::vector<at::Tensor>> x; };\n",
         "b.cpp": "#define F \\\n  x.accessor<int, 1>()\n"},
        ["1 mechanical at::Tensor", "2 mechanical x.accessor()"]),
    "a field has the type that the nearest file says": (
        {"a.h": "struct A { at::Tensor x; };\n", "b.h": "struct B { int x; };\n",
         "c.cpp": '#include "a.h"\nvoid f(A a) { a.x.to(1); }\n'},
        ["1 mechanical at::Tensor", "2 mechanical x.to()"]),
    "an include means the file in the same folder": (
        {"a/x.h": "struct A { at::Tensor t; };\n", "b/x.h": "struct A { std::string t; };\n",
         "a/x.cpp": '#include "x.h"\nauto f(A a) { return a.t.data(); }\n'},
        ["1 mechanical at::Tensor", "2 none x.data()"]),
    "what a function of a header returns is known": (
        {"b.h": "inline auto g(at::Tensor x) { return x.t(); }\n",
         "a.cpp": '#include "b.h"\nvoid f(at::Tensor x) { auto y = g(x); y + 1; }\n'},
        ["1 mechanical at::Tensor", "1 mechanical x.t()", "2 mechanical at::Tensor", "2 none x + y"]),
    "an error under a condition that no longer holds": (
        {"a.cpp": "#if A\n#error a\n#elif !AT_PARALLEL_OPENMP\n#if B\n# error b\n#endif\n#endif\n"},
        ["3 decision !AT_PARALLEL_OPENMP", "5 follows #error"]),
    "a pragma calls a function": (
        {"a.cpp": "void f() {\n#pragma omp parallel num_threads(at::get_num_threads())\n  { g(); }\n}\n"},
        ["2 decision at::get_num_threads"]),
    "an error does not spread to what only has the same name": (
        {"a.cpp": "int g(at::Scalar& x) { return 1; }\n"
                  "struct A {\nA g();\nA(int x) : y(at::cumsum(x)) {}\n};\nvoid f(A a) {\na.g();\n}\n"},
        ["1 decision at::Scalar", "4 none at::cumsum"]),
    "a launch is read as the call that it is": (
        {"a.cu": "void f(at::Tensor x) {\n  k<a, 4><<<dim3(1), 2, 0, s>>>(\n    x.data_ptr<a>());\n\nx.cumsum(0);\n}"},
        ["1 mechanical at::Tensor", "3 mechanical x.data_ptr()", "5 none x.cumsum()"]),
    "the head of a list follows from what is in it": (
        {"a.cpp": "void f(V v, at::Tensor x) {\nv.push_back({\n1, x.cumsum(0)}); }\n"},
        ["1 mechanical at::Tensor", "2 follows x.cumsum()", "3 none x.cumsum()"]),
    "the head of a variable's list follows from what is in it": (
        {"a.cpp": "void f(V v, at::Tensor x) {\nauto v = (V{\n1, x.cumsum(0)}); }\n"},
        ["1 mechanical at::Tensor", "2 follows x.cumsum()", "3 none x.cumsum()"]),
    "an error may be after a block in a statement": (
        {"a.cpp": "void f() {\n  g(\n    [](at::Scalar x) {\n      return 1;\n    },\n    2);\n}\n"},
        ["2 follows at::Scalar", "3 decision at::Scalar", "5-6 follows }"]),
    "all of a call of a macro follows, because its arguments use what it defines": (
        {"a.cpp": "#define EACH(...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)\n"
                  'EACH(t, "f", [] {\n  f<scalar_t>();\n});\n'},
        ["1-2 none AT_DISPATCH_FLOATING_TYPES", "2-4 follows EACH", "4 follows }"]),
    "a line depends on torch's version or on a chain of calls": (
        {"a.cpp": "#if TORCH_VERSION_MAJOR > 1\n#endif\n"
                  "auto f =\n  c10::Dispatcher::singleton()\n    .g()\n    .typed<x>();\n"},
        ["1 decision TORCH_VERSION_MAJOR > 1", "3 follows c10::Dispatcher::singleton",
         "4-6 decision c10::Dispatcher::singleton"]),
    "an error may be at the end of a declaration": (
        {"a.cpp": "int f(\n  at::Scalar a,\n  int b\n);\n"}, ["1 follows at::Scalar", "2-4 decision at::Scalar"]),
    "an error may be at the head of a function": (
        {"a.cpp": "int f(at::Scalar a)\n{\n}\n"}, ["1-2 decision at::Scalar"]),
    "all of a class follows from its base class, and a function from its parameters": (
        {"a.cpp": "class A : public torch::jit::CustomClassHolder {\n public:\n  int f() const { return x; }\n"
                  "  int x;\n};\nvoid f(\n  at::Scalar s);\n"},
        ["1-5 none torch::jit::CustomClassHolder", "6 follows at::Scalar", "7 decision at::Scalar"]),
    "an error may be at the end of a check": (
        {"a.cpp": 'at::Tensor f(at::Tensor x) {\nTORCH_CHECK(x.all().sort(),\n"text");\n}\n'},
        ["1 mechanical at::Tensor", "2 mechanical TORCH_CHECK", "2 none x.all()", "2-3 none x.sort()"]),
    "an error may be at the end of a list": (
        {"a.cpp": "std::vector<at::Tensor> f(at::Tensor x) {\nreturn {x.all(),\nx};\n}\n"},
        ["1 mechanical at::Tensor", "2-3 none x.all()"]),
}  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), FILES.values(), ids=FILES)
def test_all_that_is_found_in_files(files, expected, tmp_path, capsys):
    _, report = found(tmp_path, capsys, **files)
    lines = [(x["line"], x["end_line"], x["how"], x["what"]) for x in report["findings"]]
    given = [f"{line}{f'-{end}' if end > line else ''} {how} {what}" for line, end, how, what in lines]
    assert sorted(given) == sorted(expected)
    assert report["unparsed"] == {}


def test_an_error_may_be_at_what_follows_a_macro_without_a_semicolon(tmp_path, capsys):
    code = "void f() {\n  g([](int x) {\n    try { h(); }\n    CATCH_TH_ERRORS()  // of torch\n  });\n}\n"
    _, report = found(tmp_path, capsys, a_DOT_cpp=code)
    assert [(x["line"], x["end_line"]) for x in report["findings"]] == [(4, 5)]


@pytest.mark.parametrize(("before", "after"), [
    ("C10_CUDA_KERNEL_LAUNCH_CHECK();", "STD_CUDA_KERNEL_LAUNCH_CHECK();"),
    ("const at::cuda::OptionalCUDAGuard g(device_of(x));",
     "const torch::stable::accelerator::DeviceGuard g(x.get_device_index());"),
    ("at::cuda::CUDAGuard g(x.device()), h{(char)x.get_device()};",
     "torch::stable::accelerator::DeviceGuard g(x.device().index()), h{(char)x.get_device()};"),
    ("auto d = x.device(); at::cuda::CUDAGuard g(d);",
     "auto d = x.device(); torch::stable::accelerator::DeviceGuard g(d.index());"),
    ("std::optional<at::Device> d; at::cuda::CUDAGuard g(*d), h(d.value());",
     "std::optional<torch::stable::Device> d; torch::stable::accelerator::DeviceGuard g((*d).index()), "
     "h(d.value().index());"),
    ("struct A { at::Device d; }; void f(A a) { at::cuda::CUDAGuard g(a.d); }",
     "struct A { torch::stable::Device d; }; void f(A a) { torch::stable::accelerator::DeviceGuard g(a.d.index()); }"),
    ("at::cuda::CUDAGuard g(at::Device(at::kCUDA, 0));",
     "torch::stable::accelerator::DeviceGuard g(torch::stable::Device(torch::headeronly::kCUDA, 0).index());"),
    ("at::DeviceGuard g(x.device());", "at::DeviceGuard g(x.device());"),
    ("at::TensorList l = {y}; g(l.vec());", "std::vector<torch::stable::Tensor> l = {y}; g(l);"),
    ("g(x.type().device_type());", "g(x.device().type());"),
    ("y.fill_(/* none */ 0);", "torch::stable::fill_(y, /* none */ 0);"),
    ("y.fill_(// none\n0);", "torch::stable::fill_(y, // none\n0);"),
    ("y.fill_(0 /* none */);", "/* none */ torch::stable::fill_(y, 0);"),
    ("y.narrow(/*dim=*/0, /*start=*/1, 2);", "torch::stable::narrow(y, /*dim=*/0, /*start=*/1, 2);"),
    ("o->data_ptr<int>(); o->contiguous();", "o->mutable_data_ptr<int>(); torch::stable::contiguous(*o);"),
    ("x[0].copy_(y); y.copy_(x);",
     "[&](torch::stable::Tensor self_) { return torch::stable::copy_(self_, y); }(torch::stable::select(x, 0, 0)); "
     "torch::stable::copy_(y, x);"),
    ("x.narrow(0, 0, 1);", "[&](torch::stable::Tensor self_) { return torch::stable::narrow(self_, 0, 0, 1); }(x);"),
    ("at::Tensor* p = &y; g(p[0], p + 1);", "torch::stable::Tensor* p = &y; g(p[0], p + 1);"),
    ('#define I(f) m.impl("a", &f)', '#define I(f) m.impl("a", TORCH_BOX(&f))'),
    ("using namespace c10;\nDeviceType d = load(float(1));", "c10::DeviceType d = load(float(1));"),
    ('m.impl("a", &f<1, 2>);', 'm.impl("a", TORCH_BOX((&f<1, 2>)));'),
    ("using namespace at;\n#define F(A) A##_f()\nF(Layout);", "F(Layout);"),
    ("using namespace at;\n#define F(A, B) A##_##B()\nF(a, Layout);", "F(a, Layout);"),
    ("at::cuda::OptionalCUDAGuard g;", "at::cuda::OptionalCUDAGuard g;"),
    ('auto r = [](auto& a) { a.impl("a", &f); };', 'auto r = [](auto& a) { a.impl("a", TORCH_BOX(&f)); };'),
    ('#define F(A) TORCH_SELECTIVE_NAME(#A "b")', '#define F(A) #A "b"'),
    ('m.impl(TORCH_SELECTIVE_NAME("a"), TORCH_FN(f));', 'm.impl("a", TORCH_BOX(&f));'),
    ("C10_EXPORT at::Tensor h(int a = 3);", "C10_EXPORT torch::stable::Tensor h(int a = 3);"),
    ("f(x.data_ptr<int>());", "f(x.mutable_data_ptr<int>());"),
    ("long n = x.contiguous().item<long>();",
     "long n = [](const torch::stable::Tensor& self_) { int64_t item_; "
     "TORCH_ERROR_CODE_CHECK(aoti_torch_item_int64(self_.get(), &item_)); return item_; "
     "}(torch::stable::contiguous(x));"),
    ("auto p = y.template data_ptr<int>();", "auto p = y.template mutable_data_ptr<int>();"),
    ("if (y.item().toBool()) {}",
     "if ([](const torch::stable::Tensor& self_) { bool item_; "
     "TORCH_ERROR_CODE_CHECK(aoti_torch_item_bool(self_.get(), &item_)); return item_; }(y)) {}"),
    ("at::ones({1}, x.options());", "torch::stable::full({1}, 1, x.scalar_type(), std::nullopt, x.device());"),
    ("at::empty({1}, at::device(at::kCUDA).dtype(at::kInt));",
     "torch::stable::empty({1}, torch::headeronly::ScalarType::Int, std::nullopt, "
     "torch::stable::Device(torch::headeronly::kCUDA));"),
    ("at::zeros({1}, y.type());", "at::zeros({1}, y.type());"),
    ('at::empty({1}, at::TensorOptions().device("cuda"));',
     'torch::stable::empty({1}, std::nullopt, std::nullopt, torch::stable::Device("cuda"));'),
    ("at::cuda::CUDAGuard g(device_of(*o)), h(at::device_of(a ? x : y));",
     "torch::stable::accelerator::DeviceGuard g((*o).get_device_index()), h((a ? x : y).get_device_index());"),
    ("y.view_as(*o).view_as(x);", "torch::stable::view(torch::stable::view(y, (*o).sizes()), x.sizes());"),
    ("std::vector<at::Tensor>::iterator i; i->zero_();",
     "std::vector<torch::stable::Tensor>::iterator i; torch::stable::fill_(*i, 0);"),
    ("4 % at::ceil_div(a, b);", "4 % (((a) + (b) - 1) / (b));"),
    ("\n#if A\nTORCH_CHECK(a);\n#else\n#endif", "\n#if A\nSTD_TORCH_CHECK(a);\n#else\n#endif"),
    ('if (a) AT_ERROR("b"); else f();', 'if (a) { STD_TORCH_CHECK(false, "b"); } else f();'),
    ("x.accessor<const int, 1>();",
     '[](const torch::stable::Tensor& self_) { STD_TORCH_CHECK(self_.dim() == 1, "expected 1 dims, got ", '
     "self_.dim()); return torch::headeronly::HeaderOnlyTensorAccessor<const int, 1>(self_.const_data_ptr<int>(), "
     "self_.sizes().data(), self_.strides().data()); }(x);"),
    ("x.t(); (&x)->t();", "torch::stable::transpose(x, 0, -1); torch::stable::transpose(*(&x), 0, -1);"),
    ("const int* p(x.data_ptr<int>());", "const int* p(x.mutable_data_ptr<int>());"),
    ("const int* p = g() ? x.data_ptr<int>() : 0;", "const int* p = g() ? x.const_data_ptr<int>() : 0;"),
    ("auto f = [](cudaStream_t s = at::cuda::getCurrentCUDAStream(1)) {};",
     "auto f = [](cudaStream_t s = [](int device) { void* stream = nullptr; "
     "TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream)); return "
     "static_cast<cudaStream_t>(stream); }(1)) {};"),
    ("std::min(4, at::get_num_threads());", "std::min(4, static_cast<int>(torch::stable::get_num_threads()));"),
    ("at::narrow(x, 0, 0, 1); at::zero_(x);",
     "[&](torch::stable::Tensor self_) { return torch::stable::narrow(self_, 0, 0, 1); }(x); torch::stable::fill_(x, "
     "0);"),
    ("auto f = [=] { y.copy_(x); }, g = [&] { y.copy_(x); };",
     "auto f = [=] { [&](torch::stable::Tensor self_) { return torch::stable::copy_(self_, x); }(y); }, g = [&] { "
     "torch::stable::copy_(y, x); };"),
    ("for (auto& z : {x, y}) z.copy_(x);",
     "for (auto& z : {x, y}) [&](torch::stable::Tensor self_) { return torch::stable::copy_(self_, x); }(z);"),
    ("struct A { at::Tensor z; void f() const { z.copy_(z); } };",
     "struct A { torch::stable::Tensor z; void f() const { [&](torch::stable::Tensor self_) { return "
     "torch::stable::copy_(self_, z); }(z); } };"),
    ("struct A : at::Tensor { using at::Tensor::Tensor; };",
     "struct A : torch::stable::Tensor { using torch::stable::Tensor::Tensor; };"),
    ("y.data_ptr<const at::Half>();", "y.const_data_ptr<torch::headeronly::Half>();"),
    ("if (a) for (;;) TORCH_CHECK_EQ(a, b); else f();", "if (a) for (;;) { STD_TORCH_CHECK((a) == (b)); } else f();"),
    ("std::vector<at::Tensor*> v; for (auto* z : v) z->zero_();",
     "std::vector<torch::stable::Tensor*> v; for (auto* z : v) torch::stable::fill_(*z, 0);"),
    ("std::vector<at::Tensor> *v = &w, a[2]; (*v)[0]; a[0][1]; (*v)[0][1]; (&y)->zero_();",
     "std::vector<torch::stable::Tensor> *v = &w, a[2]; (*v)[0]; a[0][1]; torch::stable::select((*v)[0], 0, 1); "
     "torch::stable::fill_(*(&y), 0);"),
    ("using namespace at;\nauto r = randint(3, {1});", "auto r = at::randint(3, {1});"),
    ("x.sum(-1); at::sum(y, {0, 1}, true);",
     "torch::stable::sum(x, torch::headeronly::IntHeaderOnlyArrayRef(-1)); torch::stable::sum(y, "
     "torch::headeronly::IntHeaderOnlyArrayRef({0, 1}), true);"),
    ("x.cpu().toType(at::kInt);",
     "torch::stable::to(torch::stable::to(x, torch::stable::Device(torch::headeronly::kCPU)), "
     "torch::headeronly::ScalarType::Int);"),
    ("auto n = x.dtype().itemsize();", "auto n = x.element_size();"),
    ("auto t = c10::typeMetaToScalarType(x.dtype());", "auto t = x.scalar_type();"),
    ('AT_DISPATCH_FLOATING_TYPES(t, "a", ([&] { }));',
     'THO_DISPATCH_V2(t, "a", ([&] { }), AT_EXPAND(AT_FLOATING_TYPES));'),
    ("auto z = Map<at::Device>()(x.device(), torch::kF32);",
     "auto z = Map<torch::stable::Device>()(x.device(), torch::headeronly::ScalarType::Float);"),
])  # fmt: skip
def test_it_writes(before, after, tmp_path, capsys):
    head = "TORCH_LIBRARY_IMPL(a, CPU, m) { at::Tensor y; std::optional<at::Tensor> o; const at::Tensor x = y;\n"
    text = written(tmp_path, a_DOT_cu=f"{head}{before}\n}}\n", b_DOT_h="struct P { int* data_ptr(); };\n")
    assert text.endswith(f"\n{after}\n}}\n")


@pytest.mark.parametrize(("before", "after"), [
    ("using namespace at::mine;\nA a;", "using namespace at::mine;\nA a;"),
    ("using at::vstack;\nauto y = vstack({x});", "auto y = at::vstack({x});"),
    ("namespace torch::mine { using namespace torch::jit; Node* n; }",
     "namespace torch::mine {  torch::jit::Node* n; }"),
    ("auto o = z.options();\nauto y = at::empty({1}, o);\ng(o);", "auto o = z.options();"),
    ("namespace { auto o = at::dtype(at::kInt); }\nauto y = at::empty({1}, o);", "namespace { auto o = at::dtype("),
    ("auto o = z.options();\no = o.dtype(a);\nauto y = at::empty({1}, o);",
     "auto o = z.options();\no = o.dtype(a);\nauto y = at::empty({1}, o);"),
    ("namespace mine::torch { struct A {}; std::vector<::torch::Tensor> f(at::Tensor x); }",
     "namespace mine::torch { struct A {}; std::vector<::torch::stable::Tensor> f(::torch::stable::Tensor x); }"),
    ("namespace T = torch;\nvoid f() { T::NoGradGuard g; }", "void f() { torch::NoGradGuard g; }"),
    ("namespace T = torch;\nauto y = T::vstack({x});", "auto y = torch::vstack({x});"),
    ("namespace T = torch;\nusing T::Tensor;\nTensor y;", "torch::stable::Tensor y;"),
    ("std::tuple<at::Tensor, at::Tensor> g();\nvoid f() { auto [a, b] = g(); b.to(c); }",
     "auto [a, b] = g(); torch::stable::to(b, c);"),
    ("namespace torch { namespace F = torch::nn;\nF::A a;\n}", "namespace torch { \ntorch::nn::A a;\n}"),
    ("namespace ts = torch::stable;\nts::Tensor f();", "namespace ts = torch::stable;\nts::Tensor f();"),
])  # fmt: skip
def test_names_and_options_that_are_used_later_stay_declared(before, after, tmp_path):
    head = "namespace at { namespace mine { struct A {}; } }\nextern torch::stable::Tensor z;\n"
    text = written(tmp_path, a_DOT_cpp=f"{head}{before}\n").partition("Tensor z;\n")[2]
    assert after in text, text


@pytest.mark.parametrize(
    "code",
    [
        "{ auto z = g(); at::empty({1}, o); }",
        "[&](at::Tensor z) { at::empty({1}, o); };",
        "for (;;) { at::empty({1}, o); z = z.to(a); }",
        "for (int i : n) { at::empty({1}, o); z = z.to(a); }",
        "do { at::empty({1}, o); z = z.to(a); } while (a);",
        "std::tie(z, a) = g();\nat::empty({1}, o);",
        "auto y = std::move(z);\nat::empty({1}, o);",
        "std::swap(y, z);\nat::empty({1}, o);",
        "auto p = v[i].options(); i++;\nat::empty({1}, p);",
        "struct A { at::Tensor next(); }; A a; auto p = a.next().options();\nat::empty({1}, p);",
        "struct A { at::Tensor x; }; A a; auto p = a.x.options(); a.x = y;\nat::empty({1}, p);",
    ],
)
def test_options_are_not_written_out_where_their_variables_may_have_another_value(code, tmp_path):
    head = "void f(torch::stable::Tensor z) {\nauto o = z.options();\n"
    assert "at::empty" in written(tmp_path, a_DOT_cpp=f"{head}{code}\n}}\n")


@pytest.mark.parametrize(
    ("code", "header"),
    [
        ("void f() { AT_CUDA_CHECK(g()); }", "cuda_runtime.h"),
        ("void f() { cudaLaunchKernel(); }", "cuda_runtime.h"),
        ("C10_ALWAYS_INLINE int f();\nat::Tensor g();", "torch/headeronly/macros/Macros.h"),
        ("cublasHandle_t f();", "cublas_v2.h"),
        ("cudnnDataType_t f();", "cudnn.h"),
        ("hipStream_t f();", "hip/hip_runtime.h"),
        ("typedef unsigned uint;\nuint f();", "sys/types.h"),
        ("using namespace std::chrono;", "chrono"),
        ("int f() { return std::gcd(4, 6); }", "numeric"),
        ("std::filesystem::path f();", "filesystem"),
        ("double f() { return LDBL_MAX; }", "cfloat"),
        ("#ifdef A\n#include <map>\n#endif\nstd::map<int, int> m;", "map>\n#ifdef A\n#include <map"),
    ],
)
def test_a_name_gets_the_header_of_its_family(code, header, tmp_path):
    assert f"#include <{header}>" in written(tmp_path, a_DOT_cpp=f"#include <ATen/ATen.h>\n{code}\n")


def test_code_of_c_or_cuda_alone_stays_as_it_is(tmp_path):
    code = "__device__ float f(float x) { float from = to(x); atomicAdd(&from, x); return from; }\n"
    assert written(tmp_path, a_DOT_cu=code) == code


def test_a_name_that_the_extension_declares_too_gets_no_header(tmp_path):
    code = "typedef int cudaStream_t;\nvoid f() { auto s = at::cuda::getCurrentCUDAStream(); }\n"
    assert "cuda_runtime.h" not in written(tmp_path, a_DOT_cpp=f"#include <ATen/ATen.h>\n{code}")
    elsewhere = "#include <ATen/ATen.h>\ncudaError_t e;\n"
    assert "cuda_runtime.h" in written(tmp_path, b_DOT_cpp=elsewhere)


@pytest.mark.parametrize(
    "code",
    [
        "void f(at::Tensor x) {\n  g(1,\n#ifdef A\n    2,\n#endif\n    x.data_ptr<float>());\n}\n",
        "void f(at::Tensor x) {\n#ifdef A\n  if (a) {\n#else\n  if (b) {\n#endif\n    x.data_ptr<float>(); }\n}\n",
        "#define HERE __attribute__((used))\n#define API HERE inline\nAPI std::vector<at::Tensor> f(\n"
        "  const std::vector<int>& a, at::Tensor x) {\nreturn g<A>(x.\ndata_ptr<float>()); }",
        "void f(at::Tensor x) { AT_DISPATCH_SWITCH(a, b, AT_DISPATCH_CASE(c, [] {})\nAT_DISPATCH_CASE(d, [&] {\n"
        "x.data_ptr<float>(); })); }",
        "void f(at::Tensor x) {\n\n\n\n  typename A::B(x).g(\n    x.data_ptr<float>()); }\n",
        "template <int n>\nCUTLASS_DEVICE __launch_bounds__(n, (2)) void f(at::Tensor x) {\nCUTE_UNROLL\n"
        "for (;;) x.data_ptr<float>(); }",
    ],
)
def test_conditions_and_macros_that_stand_for_attributes_are_parsed(code, tmp_path, capsys):
    findings, report = found(tmp_path, capsys, a_DOT_cpp=code)
    assert report["unparsed"] == {}
    line = code.count("\n", 0, code.index("data_ptr")) + 1
    assert (line, "x.data_ptr()", "mechanical") in findings


def test_a_name_that_the_c_library_has_too_stays_and_gets_its_header_at_once(tmp_path):
    code = "float f(float x, at::Tensor y) { y.cumsum(0); return floor(x); }\n"
    after = written(tmp_path, a_DOT_cpp="using namespace at;\n" + code)
    assert " floor(x)" in after
    port(tmp_path, "--write", "--force")
    assert (tmp_path / "a.cpp").read_text() == after


def test_a_header_that_is_used_under_a_condition_is_included_if_the_machine_has_it(tmp_path):
    port(tmp_path, "--write", "--force", a_DOT_cpp="#include <ATen/ATen.h>\n#ifdef A\ncudaStream_t s;\n#endif\n")
    include = "#if __has_include(<cuda_runtime.h>)\n#include <cuda_runtime.h>\n#endif\n"
    assert include in (tmp_path / "a.cpp").read_text()
    text = written(tmp_path, b_DOT_cpp="#include <hip/hip_runtime.h>\n#include <ATen/ATen.h>\ndim3 d;\n")
    assert text == "#include <hip/hip_runtime.h>\ndim3 d;\n"
    own = "#ifdef A\ncudaStream_t f();\n#else\ntypedef void* cudaStream_t;\n#endif\n"
    assert written(tmp_path, c_DOT_cpp=f"#include <ATen/ATen.h>\n{own}") == own


def test_what_cannot_be_parsed_is_said_and_its_names_are_found(tmp_path, capsys):
    findings, report = found(tmp_path, capsys, a_DOT_cpp="at::Tensor f( {{{ ;\nat::Scalar g) ]]\n")
    assert report["unparsed"]
    assert (2, "at::Scalar", "decision") in findings


def test_code_may_be_nested_deeply_as_generated_code_is(tmp_path, capsys, monkeypatch):
    chain = "".join(f"if (x == {i}) g();\nelse " for i in range(600))
    deep = f"void f(int x) {{{chain} AT_ERROR();}}\n"
    (tmp_path / "a.cpp").write_text(deep)
    # In a process of its own: once Dynamo has run, CPython 3.12 counts each call in Python as one in C, and allows few.
    assert "a.cpp:601: none: AT_ERROR" in run(sys.executable, "-m", "muladd_nb", "port", tmp_path).stdout
    monkeypatch.setattr(sys, "setrecursionlimit", lambda n: None)
    monkeypatch.setattr(Reader, "read", lambda self: self.read())
    assert port(tmp_path, a_DOT_cpp=deep) == 2
    assert "a.cpp: its code is nested too deeply; leave it out" in capsys.readouterr().err


def test_what_cannot_be_parsed_is_left_alone(tmp_path, capsys):
    line = "  g(torch::empty_like(x ]] ; y = z).data_ptr<float>());\n"
    code = f"void f(at::Tensor x) {{\n{line}  x.cumsum(0) at::Tensor ]] ; ) }} at :: Tensor\n"
    findings, _ = found(tmp_path, capsys, a_DOT_cpp=code)
    assert {(2, "x.data_ptr()", "decision"), (2, "at::empty_like", "decision")} & findings, findings
    port(tmp_path, "--write", "--force")
    assert line in (tmp_path / "a.cpp").read_text()


def test_written_it_is_left_with_nothing_mechanical_and_no_other_line_has_changed(tmp_path, capsys):
    assert port(tmp_path, a_DOT_cpp=EXTENSION) == 1
    port(tmp_path, "--write", "--force")
    after = (tmp_path / "a.cpp").read_text()
    _, _, left = capsys.readouterr().out.partition("This report is about the rest:\n")
    assert left
    assert "mechanical:" not in left
    for line in EXTENSION.splitlines():
        changes = r"^#include <t|namespace|Tensor [fy]|^ .*(TORCH|AT_|options|data_ptr|at::)|^TORCH|m.impl|^  }\);"
        assert (line in after.splitlines()) != bool(re.search(changes, line)), line
    for line in (
        "torch::stable::Tensor f(const torch::stable::Tensor& x, double p, std::optional<torch::stable::Tensor> w) {",
        "  auto count = torch::stable::new_zeros(x, {x.size(0)}, torch::headeronly::ScalarType::Long);",
        "  torch::stable::Tensor y = torch::stable::empty_like(torch::stable::contiguous(x));",
        "    const scalar_t* from = x.const_data_ptr<scalar_t>();",
        '  m.impl("f", TORCH_BOX(&f));',
    ):
        assert line + "\n" in after, after
    assert main(["port", str(tmp_path)]) == 0


@pytest.mark.slow
def test_what_is_written_compiles_against_the_stable_headers(tmp_path):
    (tmp_path / "mine.h").write_text("#pragma once\n")
    port(tmp_path, "--write", "--force", a_DOT_cpp=EXTENSION)
    others = runpy.run_path(str(ROOT / "tools/port_others.py"))
    (headers := tmp_path / "headers").mkdir()
    assert others["compile_errors"](tmp_path / "a.cpp", tmp_path, others["stable_headers"](headers), "2.10") == []


def test_bytes_that_are_not_changed_stay(tmp_path):
    before = (
        b"// \xe9t\xe9, in latin-1\r\n#include <ATen/ATen.h>\r\n#if A\r\n  #include <ATen/Utils.h>\r\n#endif\r\n"
        b"\tat::Tensor  f();\t\r\n// end, without a newline"
    )
    port(tmp_path, "--write", "--force", a_DOT_cpp=before)
    after = (tmp_path / "a.cpp").read_bytes()
    changed = before.replace(b"<ATen/ATen.h>", b"<torch/csrc/stable/tensor.h>").replace(
        b"at::Tensor", b"torch::stable::Tensor"
    )
    changed = changed.replace(b"  #include <ATen/Utils.h>\r\n", b"")
    assert after == changed


def test_a_header_of_the_extension_gets_what_torchs_headers_brought(tmp_path):
    header = "#pragma once\nstruct int2 {};\ninline int64_t f(half x) { return sqrtf(x); }\n"
    assert written(tmp_path, a_DOT_h=header, a_DOT_cpp='#include <ATen/ATen.h>\n#include "a.h"\n') == header.replace(
        "once\n", "once\n#include <cmath>\n#include <cstdint>\n#include <cuda_fp16.h>\n"
    )


def test_a_file_without_torchs_headers_gets_what_their_neighbours_brought_at_once(tmp_path):
    files = {
        "a_DOT_h": "inline bool f(at::Tensor x) { assert(true); return x.is_cuda(); }\n",
        "b_DOT_h": '#include "a.h"\ninline int64_t g() { return 1; }\n',
    }
    assert port(tmp_path, "--write", "--force", **files) == 0
    texts = [path.read_text() for path in sorted(tmp_path.iterdir())]
    assert "<cassert>" in texts[0]
    assert "<cstdint>" in texts[1]
    assert main(["port", "--write", "--force", str(tmp_path)]) == 0
    assert texts == [path.read_text() for path in sorted(tmp_path.iterdir())]


@pytest.mark.parametrize(
    ("header", "added"),
    [
        ("#pragma once\n__device__ int f();\n", "#include <cuda_runtime.h>\n"),
        ("#pragma once\n#define HD __host__ __device__\n", "#include <cuda_runtime.h>\n"),
        ("#pragma once\n#ifdef A\n#define HD __host__\n#endif\n",
         "#if __has_include(<cuda_runtime.h>)\n#include <cuda_runtime.h>\n#endif\n"),
        ("#pragma once\n#ifndef A\n#define __device__\n#endif\n__device__ int f();\n", ""),
        ("#pragma once\nint f();  // __device__\n", ""),
    ],
)  # fmt: skip
def test_a_header_for_device_code_gets_cudas_header_if_not_only_nvcc_compiles_it(header, added, tmp_path):
    text = written(tmp_path, a_DOT_h=header, a_DOT_cpp='#include <ATen/ATen.h>\n#include "a.h"\n')
    assert text == header.replace("once\n", f"once\n{added}")
    (tmp_path / "a.cpp").unlink()
    assert written(tmp_path, a_DOT_h=header, a_DOT_cu='#include <ATen/ATen.h>\n#include "a.h"\n') == header


def test_a_header_without_includes_gets_them_before_its_macros(tmp_path):
    header = "struct cudaX { cudaStream_t s; };\n#define A_HIGH(x) \\\n  x\n"
    text = written(tmp_path, a_DOT_h=header, a_DOT_cpp='#include <ATen/ATen.h>\n#include "a.h"\n')
    assert text == "#include <cuda_runtime.h>\n" + header


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("\ufeff", "at::Tensor f();\n"),
        ("\ufeff#pragma once\n", "at::Tensor f();\n"),
        ("#include <vector>\n// of the extension\n", 'at::Tensor f();\n#include "impl.inl"\n'),
        ("#ifndef A_H\n#define A_H\n#include <vector>\n", 'at::Tensor f();\n#include "impl.inl"\n#endif\n'),
    ],
    ids=["UTF-8 mark", "UTF-8 mark and guard", "include at the end", "include at the end and guard"],
)
def test_includes_are_added_before_the_code_that_needs_them(before, code, tmp_path):
    text = written(tmp_path, a_DOT_h=before + code)
    lines = text.removeprefix("\ufeff").splitlines()
    includes = [i for i, line in enumerate(lines) if line == "#include <torch/csrc/stable/tensor.h>"]
    assert includes == [before.count("\n") - before.count("//")]
    assert lines.index("torch::stable::Tensor f();") > includes[0]
    assert text.rfind("\ufeff") == before.rfind("\ufeff")


def test_an_include_of_the_extensions_own_header_in_a_folder_named_as_torchs_stays(tmp_path):
    (tmp_path / "c10/mine").mkdir(parents=True)
    (tmp_path / "c10/mine/a.h").write_text("#pragma once\n")
    text = written(tmp_path, a_DOT_cpp="#include <c10/mine/a.h>\n#include <c10/core/Device.h>\n")
    assert text == "#include <c10/mine/a.h>\n"


def test_a_copy_of_torchs_dispatch_macro_gets_the_header_of_its_function(tmp_path):
    code = "#include <ATen/ATen.h>\n#define TYPE(x) ::detail::scalar_type(x)\n"
    assert written(tmp_path, a_DOT_h=code) == code.replace("ATen/ATen.h", "torch/headeronly/core/Dispatch.h")


def test_folders_of_others_are_left_out_and_named(tmp_path, capsys):
    (tmp_path / "csrc/third_party/x").mkdir(parents=True)
    (tmp_path / "csrc/third_party/x/a.cpp").write_text("at::Tensor f();\n")
    left_out = str(tmp_path / "csrc/third_party")
    assert port(tmp_path) == 2
    assert capsys.readouterr().err.endswith(f"but for those in {left_out}\n")
    assert port(tmp_path, b_DOT_cpp="int x;\n") == 0
    assert f"Left out: {left_out}. Name a folder to read it.\n" in capsys.readouterr().out
    assert main(["port", left_out]) == 1
    (tmp_path / "csrc/include/pybind11").mkdir(parents=True)
    (tmp_path / "csrc/include/pybind11/pybind11.h").write_text("namespace pybind11 {}\n")
    assert port(tmp_path) == 0
    assert f"Left out: {tmp_path}/csrc/include/pybind11, {left_out}." in capsys.readouterr().out


def test_it_writes_all_or_nothing(tmp_path, monkeypatch, capsys):
    for name in "ab":
        (tmp_path / f"{name}.cpp").write_text("at::Tensor f();\n")
    write = Path.write_bytes

    def fail(path, data):
        if path.name == "b.cpp" and b"stable" in data:
            raise OSError(28, "No space left on device", str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fail)
    assert port(tmp_path, "--write", "--force") == 2
    assert "nothing was changed" in capsys.readouterr().err
    assert (tmp_path / "a.cpp").read_text() == "at::Tensor f();\n"


def test_a_tree_that_git_could_not_restore_is_left_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))  # tmp_path may lie in a repository
    assert port(tmp_path, "--write", a_DOT_cpp=EXTENSION) == 2
    assert "is in no git repository, so" in capsys.readouterr().err
    (tmp_path / ".git").write_text("gitdir:")
    assert port(tmp_path, "--write") == 2
    assert "cannot be read by git (invalid gitfile format" in capsys.readouterr().err
    (tmp_path / ".git").unlink()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "b.txt").write_text("not committed")
    assert port(tmp_path, "--write") == 2
    assert "changes that are not committed" in capsys.readouterr().err
    assert (tmp_path / "a.cpp").read_text() == EXTENSION
    assert main(["port", "--write", str(tmp_path / "a.cpp")]) == 2
    (tmp_path / "b.txt").unlink()
    (tmp_path / ".git/info/exclude").write_text("b.cpp\n")
    assert port(tmp_path, "--write", b_DOT_cpp="at::Tensor f();\n") == 2
    assert "has files that git ignores" in capsys.readouterr().err
    (tmp_path / "b.cpp").unlink()
    of_submodule = ["git", "-C", str(tmp_path / "sub"), *git[3:]]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/c.cpp").write_text("at::Tensor f();\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*of_submodule, *command], check=True)
    for command in (["add", "sub"], ["commit", "-qm", "a submodule"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    assert port(tmp_path, "--write") == 2
    assert "has files that git ignores" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "sub")
    subprocess.run([*git, "rm", "-q", "sub"], check=True)
    subprocess.run([*git, "commit", "-qm", "y"], check=True)
    assert port(tmp_path, "--write") == 0
    assert "STABLE_TORCH_LIBRARY" in (tmp_path / "a.cpp").read_text()


def test_a_file_is_read_once_and_what_is_not_utf8_does_not_stop_it(tmp_path, capsys):
    (tmp_path / "setup.py").write_bytes(b"# \xe9\nx = 1\n")
    (tmp_path / "ops.py").write_bytes(b"\x00")
    (tmp_path / "a.cpp").write_text("at::Tensor f();\n")
    (tmp_path / "link.cpp").symlink_to("a.cpp")
    (tmp_path / "nothing.cpp").symlink_to("nowhere")
    assert main(["--json", "port", str(tmp_path / "link.cpp"), str(tmp_path)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["files"], len(report["findings"])) == (3, 1)


def test_what_is_not_utf8_or_is_nested_deeply_is_printed_or_skipped(tmp_path):
    (tmp_path / "sum.py").write_text("x = " + "+".join(["1"] * 30_000) + "\n")
    (tmp_path / "a.cpp").write_bytes(b'PYBIND11_MODULE(a, m) { m.def("caf\xe9", &f); }\n')
    ran = run(sys.executable, "-m", "muladd_nb", "port", tmp_path, PYTHONIOENCODING="utf-8:strict")
    assert ran.returncode == 1, ran.stderr
    assert r"caf\udce9" in ran.stdout


@pytest.mark.parametrize(("target", "has"), [("2.10", "aoti_torch_get_current_cuda_stream"), ("2.13", "nativeHandle")])
def test_the_target_decides_what_is_written(target, has, tmp_path, capsys):
    code = "void f() { auto s = at::cuda::getCurrentCUDAStream(); }\n"
    assert has in written(tmp_path, "--target", target, a_DOT_cu=code)


def test_what_only_headers_of_a_newer_torch_have_is_named_also_when_it_is_written(tmp_path, capsys):
    code = "#include <c10/util/Half.h>\nconstexpr bool x = at::is_reduced_floating_point_v<int>;\n"
    port(tmp_path, "--write", "--force", a_DOT_cpp=code)
    capsys.readouterr()
    assert main(["port", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "a.cpp:1: decision: torch/headeronly/util/BFloat16-math.h -> build with the headers of torch 2.15" in printed
    assert "a.cpp:2: decision: torch::headeronly::is_reduced_floating_point_v -> build with" in printed


def test_the_summary_names_the_lowest_torch_and_what_new_takes(tmp_path, capsys):
    code = 'at::Generator g();\nTORCH_LIBRARY(a, m) { m.def("h(Tensor x, \\\n Tensor y) -> Tensor");'
    code += 'm.def("mine::rms_norm(Tensor x, float eps) -> Tensor"); }\n'
    assert port(tmp_path, a_DOT_cpp=EXTENSION + code) == 1
    told = capsys.readouterr().out
    assert "The lowest torch that the port could target: 2.13." in told
    assert "  muladd-nb new my_ops 'f(Tensor x, float p, Tensor? w) -> Tensor'\n" in told
    assert "  muladd-nb add 'h(Tensor x, Tensor y) -> Tensor'\n" in told
    assert "  muladd-nb add --rows 'rms_norm(Tensor x, float eps) -> Tensor'\n" in told


def test_a_binding_is_told_its_schema(tmp_path, capsys):
    code = "typedef at::Tensor T;\nvoid f(T& x, const at::Tensor& y, std::vector<int64_t> z, float p);\n"
    code += "int h(T x);\nstruct S { T k(T x); };\n"
    code += "T w(T x, bool c = false, float d = 1, std::optional<int64_t> e = {}, int64_t g = N);\n"
    code += 'PYBIND11_MODULE(a, m) { m.def("f", &f); m.def("h", &h); m.def("w", &w, "doc", py::arg("y").none(false),\n'
    code += 'py::arg("c") = false, "d"_a = 1.5f, py::arg("e") = py::none(), py::arg("g") = N); }\n'
    code += 'TORCH_LIBRARY(a, m) { m.def("g", [](T x) { return x; }); m.class_<S>("S").def("k", &S::k); }\n'
    port(tmp_path, a_DOT_cpp=code)
    told = capsys.readouterr().out
    assert 'm.def("f(Tensor(a!) x, Tensor y, int[] z, float p) -> ()") (from' in told
    assert 'm.def("h(Tensor x) -> int"), with Tensor(a!) for a tensor that it writes (from' in told
    assert 'm.def("w(Tensor y, bool c=False, float d=1.5, int? e=None, int g=...) -> Tensor") (from' in told
    assert 'm.def("g(...) -> ...")' in told
    assert "k(Tensor x)" not in told


def test_a_function_with_out_is_an_overload_and_one_with_other_arguments_is_there(tmp_path, capsys):
    code = "void f(at::Tensor x) { at::matmul_out(x, x, x); at::clone(x, at::MemoryFormat::Contiguous); }\n"
    port(tmp_path, a_DOT_cpp=code)
    printed = capsys.readouterr().out
    assert 'none: at::matmul_out -> torch_call_dispatcher("aten::matmul", ...)' in printed
    assert "decision: at::clone -> torch::stable::clone(...) (from torch 2.10)" in printed


def test_setup_and_the_calls_of_the_module(tmp_path, capsys):
    setup = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CppExtension\n"
        "setup(ext_modules=[CppExtension('mine._ext', ['a.cpp'])])\n"
    )
    findings, report = found(tmp_path, capsys, setup_DOT_py=setup, ops_DOT_py="from . import _ext\n_ext.f(1)\n")
    assert {(3, "an extension for one CPython", "decision"), (2, "_ext.f", "decision")} <= findings
    flags = [x["to"] for x in report["findings"] if x["what"] == "no -DTORCH_TARGET_VERSION"]
    assert "0x020a000000000000" in flags[0]
    after = (ROOT / "docs/ship/migrate/setup_after.py").read_text()
    (tmp_path / "ops.py").unlink()
    assert port(tmp_path, setup_DOT_py=after) == 0


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import torch.utils.cpp_extension as c\nc.load('a', [])", "c.load"),
        ("import torch.utils.cpp_extension\ntorch.utils.cpp_extension.load('a')", "torch.utils.cpp_extension.load"),
        ("from torch.utils.cpp_extension import load, load_inline as f\nload('a'); f('b')", "load f"),
        ("from torch.utils import cpp_extension as c\nc.load('a')", "c.load"),
        ("from json import load\nload(f)", ""),
        ("CppExtension('a', [], py_limited_api=False); setup()", "an extension for one CPython"),
        ("Extension('a', [], include_dirs=include_paths()); setup()", "an extension for one CPython"),
        ("Extension('a', []); setup()", ""),
    ],
)
def test_what_python_builds_is_named_whatever_its_name_is_here(code, what, tmp_path, capsys):
    findings, _ = found(tmp_path, capsys, a_DOT_cpp="", setup_DOT_py=code)
    names = {x[1] for x in findings if not x[1].startswith("no -D")}
    assert names == ({what} if "an " in what else {*what.split()})


@pytest.mark.parametrize("method", ["iterdir", "read_bytes"])
def test_what_cannot_be_read_is_named(method, tmp_path, monkeypatch, capsys):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refused)
    assert port(tmp_path, a_DOT_cpp="int x;") == 2
    assert f"Permission denied: '{tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.cpp"], "no such file or folder"),
        (["notes.txt"], "no C++, CUDA or Python files in notes.txt"),
        (["--target", "2.9", "."], "--target must be a torch from 2.10 on, like 2.10, got '2.9'"),
    ],
)
def test_a_mistake_in_the_call_is_said(arguments, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.cpp", "notes.txt"):
        (tmp_path / name).write_text("")
    assert main(["port", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_without_the_parser_it_says_what_to_install(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("muladd_nb._port")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("muladd_nb._port", raising=False)
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    assert main(["port", "x.cpp"]) == 2
    assert capsys.readouterr().err == "muladd-nb port: tree_sitter is missing: pip install 'muladd_nb[port]'\n"


def test_the_table_has_all_that_this_torch_has():
    here = runpy.run_path(str(ROOT / "tools/stable_names.py"))["names"](Path(torch.__file__).parent / "include")
    assert len(here) > 2000
    more = {name for kind, name in here if name not in (ATEN if kind == "aten" else NAMES)}
    assert not more, "run tools/stable_names.py with this torch, too"
    gates = {name: runs for (kind, name), (_, runs) in here.items() if kind != "aten"}
    # A newer torch's headers may require an older version. The table has the version that suits all headers.
    assert all(_version(runs) <= _version(NAMES[name]["runs"]) for name, runs in gates.items())


def _version(text):
    return tuple(map(int, text.split(".")))


def test_a_replacement_has_only_names_that_the_stable_abi_has():
    for (kind, _), rows in ROWS.items():
        for row in rows:
            if row.how != "mechanical" or kind in ("std", "c", "same"):
                continue
            for name in re.findall(
                r"torch::(?:stable|headeronly)::[\w:]+|\b(?:STD|THO|STABLE)_\w+|\baoti_torch_\w+", row.to
            ):
                whole = name in NAMES or name.rpartition("::")[0] in NAMES
                assert whole or name == "THO_PRIVATE_CASE_TYPE_USING_HINT", row


def test_the_report_named_every_compile_error_of_the_ported_extensions():
    rows = list(csv.DictReader((ROOT / "docs/ported.csv").read_text().splitlines()))
    assert len(rows) >= 8
    assert {row["unnamed"] for row in rows} == {"0"}
    assert all(int(row["compiled"]) for row in rows)
