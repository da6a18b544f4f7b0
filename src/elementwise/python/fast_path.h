// The fast path of a small call: a C function of Python that takes it straight to the kernel of an operator.
//
// That is past the dispatcher, and only where nothing observes the call: its tensors are plain, the kernels that torch
// would call are this library's, and there is no transform, mode, tracing, profiler or autocast. Every other call is
// left to a function in Python, `otherwise`, which is given all arguments by position. If asking fails, that is left to
// it too. Once the kernel is called, its errors are those of the call, which must not be made a second time.
//
// By CPython's limited API and not by nanobind, one of whose functions takes 0.1 us longer to call (measured).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "ask_torch.h"

namespace elementwise::python {

// Releases the interpreter's lock, if that is worth its time.
class WithoutLock {
 public:
  explicit WithoutLock(bool is_long) : state_(is_long ? PyEval_SaveThread() : nullptr) {}
  WithoutLock(const WithoutLock&) = delete;
  ~WithoutLock() {
    if (state_) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

// The arguments of a call, as a kernel takes them from its stack.
class Stack {
 public:
  // `out` is a tensor, or None. Throws if one does not fit an argument.
  void push(const Signature& signature, PyObject* const* args, PyObject* out) {
    for (int i = 0; i < signature.count; i++) push(signature.arguments[i].kind, args[i]);
    if (out != Py_None) push(Kind::tensor, out);
  }

  // Asked of each tensor before anything else, which many a kind of tensor does not answer.
  bool is_for(const PlainKernel& kernel) const {
    return kernel.takes(keys_together_, keys_in_common_);
  }
  bool requires_grad(const PlainKernel& kernel) const {
    return requires_grad_ && kernel.is_differentiable(keys_together_);
  }

  // Finds how many elements are computed: those of the shape that the tensors are broadcast to.
  int64_t measure(const KernelOfLibrary& kernel) {
    if (!kernel.broadcasts) {
      TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensor(0), &numel_));
      return numel_;
    }
    int64_t sizes[kMaxDims], dims = 0;
    for (int i = 0; i < tensors_count_; i++) {
      int64_t dim, *own;
      TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor(i), &dim));
      TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor(i), &own));
      own += dim;
      dim = std::min<int64_t>(dim, kMaxDims);
      while (dims < dim) sizes[dims++] = 1;
      for (int64_t d = 0; d < dim; d++)
        if (own[-1 - d] != 1) sizes[d] = own[-1 - d];
    }
    numel_ = 1;
    for (int64_t d = 0; d < dims; d++) numel_ *= sizes[d];
    return numel_;
  }

  // Replaces the arguments by the results, once it was measured.
  void run(const KernelOfLibrary& kernel) {
    const bool is_long = numel_ > kLong;
    if (is_long) own_tensors();
    const WithoutLock unlocked(is_long);
    kernel.call(values_);
  }

  OwnTensor result(int k) {
    return OwnTensor(values_[k]);
  }

 private:
  void push(Kind kind, PyObject* x) {
    StableIValue& value = values_[count_++];
    switch (kind) {
      case Kind::real:
        value = torch::stable::detail::from(PyFloat_AsDouble(x));
        break;
      case Kind::integer:
        value = torch::stable::detail::from(static_cast<int64_t>(PyLong_AsLongLong(x)));
        break;
      case Kind::boolean:
        value = torch::stable::detail::from(x == Py_True);
        return;
      default:
        value = torch::stable::detail::from(std::nullopt);
        if (x == Py_None) return;
        StableIValue& of_tensor = kind == Kind::optional ? optional_[optional_count_++] : value;
        of_tensors_[tensors_count_] = &of_tensor;
        of_tensor = torch::stable::detail::from(push_tensor(x));
        if (kind == Kind::optional) value = torch::stable::detail::from(&of_tensor);
        return;
    }
    if (PyErr_Occurred()) throw ErrorInPython(); // the number is too large
  }

  AtenTensorHandle push_tensor(PyObject* x) {
    const Tensor tensor = tensor_of(x, own_[tensors_count_++]);
    const uint64_t keys = keys_of(x, tensor);
    keys_together_ |= keys;
    keys_in_common_ &= keys;
    requires_grad_ = requires_grad_ || (is_grad_enabled_ && python::requires_grad(x, tensor));
    return tensor.get();
  }

  AtenTensorHandle tensor(int i) const {
    return torch::stable::detail::to<AtenTensorHandle>(*of_tensors_[i]);
  }

  // While this does not hold the lock, other threads may give an object another tensor (torch.utils.swap_tensors).
  void own_tensors() {
    for (int i = 0; i < tensors_count_; i++) {
      AtenTensorHandle own;
      TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensor(i), &own));
      own_[i] = OwnTensor(own);
      *of_tensors_[i] = torch::stable::detail::from(own);
    }
  }

  static constexpr int64_t kLong = 1 << 13; // elements that take longer than to release the lock

  StableIValue values_[kMaxArguments + 1], optional_[kMaxOptional];
  StableIValue* of_tensors_[kMaxOperands]; // where among these
  int count_ = 0, tensors_count_ = 0, optional_count_ = 0;
  OwnTensor own_[kMaxOperands];
  uint64_t keys_together_ = 0, keys_in_common_ = ~uint64_t{0};
  const bool is_grad_enabled_ = aoti_torch_grad_mode_is_enabled();
  bool requires_grad_ = false;
  int64_t numel_ = 0;
};

using Kernels = std::vector<const PlainKernel*>; // one for each kind of device

// How many calls came to a kernel this way, for the tests.
inline std::atomic<int64_t> calls_past_dispatcher = 0;

// One declaration of an operator.
struct FastPath {
  const Signature* signature;
  Kernels without_out, with_out;
  bool returns;       // its results or `out`, and not None
  PyObject* aten;     // records the same derivative by a node in C++; or null
  PyObject* recorder; // records a call, given a tuple of its results and all arguments; or null

  // Returns null, without an error, where this path does not take the call.
  PyObject* call(PyObject* const* args, PyObject* out, bool asks_autocast) const {
    Stack stack;
    const KernelOfLibrary* kernel;
    bool records, by_aten;
    try {
      if (!takes(args) || !(out == Py_None || is_tensor(out)) || is_observed()) return nullptr;
      stack.push(*signature, args, out);
      const Kernels& kernels = out == Py_None ? without_out : with_out;
      const auto found =
          std::find_if(kernels.begin(), kernels.end(), [&stack](const PlainKernel* one) { return stack.is_for(*one); });
      if (found == kernels.end() || !(*found)->is_registered() || (asks_autocast && autocasts())) return nullptr;
      kernel = &(*found)->kernel;
      records = stack.requires_grad(**found);
      by_aten = stack.measure(*kernel) <= kMostComputedTwice && records && aten && (asks_autocast || !autocasts());
      if (records && (out != Py_None || is_below_autograd() || !(by_aten || recorder))) return nullptr;
    } catch (const std::exception&) {
      PyErr_Clear(); // `otherwise` finds what it was, and says it
      return nullptr;
    }
    // Without the GIL a count may be lost.
    calls_past_dispatcher.store(calls_past_dispatcher.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    try {
      if (by_aten) return record_by_aten(*kernel, stack, args);
      Object value = run(*kernel, stack, out);
      return records ? record(value, args) : value.release();
    } catch (const ErrorInPython&) {
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  }

 private:
  bool takes(PyObject* const* args) const {
    for (int i = 0; i < signature->count; i++)
      if (!takes(signature->arguments[i].kind, args[i])) return false;
    return true;
  }

  static bool takes(Kind kind, PyObject* x) {
    PyTypeObject* const type = Py_TYPE(x);
    switch (kind) {
      case Kind::real:
        return type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type;
      case Kind::integer:
        return type == &PyLong_Type;
      case Kind::boolean:
        return type == &PyBool_Type;
      default:
        return is_tensor(x) || (kind == Kind::optional && x == Py_None);
    }
  }

  Object run(const KernelOfLibrary& kernel, Stack& stack, PyObject* out) const {
    stack.run(kernel);
    if (!(kernel.form & functional)) return Object(Py_NewRef(returns ? out : Py_None));
    OwnTensor results[kMaxOperands];
    for (int k = 0; k < kernel.results; k++) results[k] = stack.result(k);
    if (kernel.results == 1) return object_of(std::move(results[0]));
    Object all(PyTuple_New(kernel.results));
    for (int k = 0; k < kernel.results; k++) PyTuple_SetItem(all.get(), k, object_of(std::move(results[k])).release());
    return all;
  }

  // The kernel's values with the node of ATen's operator: what that has computed gets the memory in which the kernel
  // has. The kernel comes first, because it checks.
  PyObject* record_by_aten(const KernelOfLibrary& kernel, Stack& stack, PyObject* const* args) const {
    stack.run(kernel);
    OwnTensor value = stack.result(0);
    const Object tensors(PyTuple_New(signature->tensors));
    for (int i = 0, k = 0; i < signature->count; i++)
      if (signature->arguments[i].is_tensor()) PyTuple_SetItem(tensors.get(), k++, Py_NewRef(args[i]));
    Object result(PyObject_Call(aten, tensors.get(), nullptr)); // this calls the hooks of the program
    set_data(result.get(), std::move(value));
    return result.release();
  }

  // Above it, to compute twice takes longer than a node in Python (measured).
  static constexpr int64_t kMostComputedTwice = 1 << 16;

  // The node in Python is given what the kernel has computed: past the dispatcher, which would call that again.
  PyObject* record(const Object& value, PyObject* const* args) const {
    const Object given(PyTuple_New(1 + signature->count));
    const bool is_one = !PyTuple_Check(value.get());
    PyTuple_SetItem(given.get(), 0, is_one ? Object(PyTuple_Pack(1, value.get())).release() : Py_NewRef(value.get()));
    for (int i = 0; i < signature->count; i++) PyTuple_SetItem(given.get(), 1 + i, Py_NewRef(args[i]));
    return Object(PyObject_Call(recorder, given.get(), nullptr)).release(); // this calls the hooks of the program
  }
};

struct Parameter {
  PyObject *name, *preset; // a default, or null
  bool is_keyword;
};

class Function {
 public:
  static constexpr size_t kMostParameters = 255;

  std::vector<Parameter> parameters; // a last one that is called `out` is no argument of a path
  std::vector<FastPath> paths;
  size_t leading; // arguments that are only handed on
  bool has_out;
  PyObject* otherwise; // for every other call
  PyObject* refuse;    // is called as this was, where its arguments do not fit the parameters

  PyObject* call(PyObject* positional, PyObject* by_name) const {
    PyObject* bound[kMostParameters];
    if (!bind(positional, by_name, bound))
      return PyErr_Occurred() ? nullptr : PyObject_Call(refuse, positional, by_name);
    PyObject* const out = has_out ? bound[parameters.size() - 1] : Py_None;
    for (const FastPath& path : paths) {
      PyObject* const result = path.call(bound + leading, out, leading == 0);
      if (result || PyErr_Occurred()) return result;
    }
    PyObject* const all = PyTuple_New(static_cast<Py_ssize_t>(parameters.size()));
    for (size_t i = 0; all && i < parameters.size(); i++)
      PyTuple_SetItem(all, static_cast<Py_ssize_t>(i), Py_NewRef(bound[i]));
    PyObject* const result = all ? PyObject_Call(otherwise, all, nullptr) : nullptr;
    Py_XDECREF(all);
    return result;
  }

 private:
  bool bind(PyObject* positional, PyObject* by_name, PyObject** bound) const {
    const auto count = static_cast<size_t>(PyTuple_Size(positional));
    if (count > parameters.size() || (count && parameters[count - 1].is_keyword)) return false;
    for (size_t i = 0; i < count; i++) bound[i] = PyTuple_GetItem(positional, static_cast<Py_ssize_t>(i));
    Py_ssize_t found = 0;
    for (size_t i = count; i < parameters.size(); i++) {
      PyObject* const given = by_name ? argument(by_name, parameters[i].name) : nullptr;
      if (!given && PyErr_Occurred()) return false;
      found += given != nullptr;
      bound[i] = given ? given : parameters[i].preset;
      if (!bound[i]) return false;
    }
    return !by_name || found == PyDict_Size(by_name); // no name is unknown, or given twice
  }

  // As Python finds it. What derives from `str` may have another hash than its text.
  static PyObject* argument(PyObject* by_name, PyObject* name) {
    PyObject* const given = PyDict_GetItemWithError(by_name, name);
    if (given || PyErr_Occurred()) return given;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(by_name, &at, &key, &value);)
      if (!PyUnicode_CheckExact(key))
        if (const int is_equal = PyObject_RichCompareBool(name, key, Py_EQ); is_equal)
          return is_equal > 0 ? value : nullptr;
    return nullptr;
  }
};

inline PyObject* call(PyObject* self, PyObject* positional, PyObject* by_name) {
  return static_cast<const Function*>(PyCapsule_GetPointer(self, nullptr))->call(positional, by_name);
}

// Returns it as Python's object. Both are kept as long as the process runs.
inline nanobind::object object_of(Function* function) {
  auto* const method = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
  static PyMethodDef definition{"fast_path", method, METH_VARARGS | METH_KEYWORDS, nullptr};
  const nanobind::capsule self(function);
  return nanobind::steal<nanobind::object>(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

inline Kernels kernels_of(const std::string& declaration, unsigned forms) {
  Kernels found;
  for (const PlainKernel& one : plain_kernels())
    if (one.kernel.signature.declaration == declaration && (one.kernel.form == (one.kernel.form & forms)))
      found.push_back(&one);
  return found;
}

inline void define_fast_path(nanobind::module_& m) {
  namespace nb = nanobind;
  using namespace nb::literals;
  m.def("calls_past_dispatcher", [] { return calls_past_dispatcher.load(); });
  // `parameters` are tuples of a name, whether there is a default, that, and whether it is keyword-only; `paths` are
  // those of _layer/fast_path.py.
  m.def(
      "fast_path",
      [](const nb::list& parameters, const nb::list& paths, const nb::object& otherwise, const nb::object& refuse,
         bool has_out, size_t leading) {
        auto* const function = new Function{{}, {}, leading, has_out, kept(otherwise), kept(refuse)};
        if (parameters.size() > Function::kMostParameters)
          throw std::length_error("a function with so many parameters");
        for (const nb::handle parameter : parameters) {
          PyObject* word = kept(parameter[0]);
          PyUnicode_InternInPlace(&word);
          PyObject* const preset = nb::cast<bool>(parameter[1]) ? nb::handle(parameter[2]).inc_ref().ptr() : nullptr;
          function->parameters.push_back({word, preset, nb::cast<bool>(parameter[3])});
        }
        for (const nb::handle path : paths) {
          const auto declaration = nb::cast<std::string>(path.attr("declaration"));
          const bool returns = nb::cast<bool>(path.attr("returns"));
          const Kernels all = kernels_of(declaration, functional | updating | writing);
          if (all.empty()) continue; // an operator that was defined in Python
          function->paths.push_back(
              {&all[0]->kernel.signature, kernels_of(declaration, returns ? functional : updating),
               kernels_of(declaration, writing), returns, kept(path.attr("aten")), kept(path.attr("recorder"))});
        }
        return object_of(function);
      },
      "parameters"_a, "paths"_a, "otherwise"_a, "refuse"_a, "has_out"_a, "leading"_a = 0);
}

} // namespace elementwise::python
