// The fast path of a small call: a function in C that bypasses the dispatcher and calls an operator's kernel directly.
//
// It does so only if nothing observes the call: the tensors are plain, the kernels that torch would call are this
// library's, and no transform, mode, tracing, profiler or autocast is active. For every other call, and if a check
// fails with an error, it calls a Python function. Once it has called the kernel, it raises the kernel's errors, and
// does not call the function, because a call must not run twice.
//
// It uses CPython's limited API, because a function of nanobind takes 0.1 us longer to call (measured).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../cpu/machine.h"
#include "../settings.h"
#include "aten_node.h"

namespace elementwise::python {

// The arguments of a call, on the stack of a boxed kernel.
class Stack {
 public:
  // Pushes all arguments. `out` is a tensor or None. Throws if a number does not fit.
  void push(const Signature& signature, bool tensor_numbers, PyObject* const* args, PyObject* out) {
    for (int i = 0; i < signature.count; i++) {
      const Kind kind = signature.arguments[i].kind;
      if (kind != Kind::real || !tensor_numbers) {
        push(kind, args[i]);
        continue;
      }
      const bool requires_grad = std::exchange(requires_grad_, false);
      push(Kind::tensor, args[i]);
      if (std::exchange(requires_grad_, requires_grad)) throw std::runtime_error("a number has no gradient");
    }
    if (out != Py_None) push(Kind::tensor, out);
  }

  // Whether the tensors are plain for this kernel. This must be checked first, because other kinds of tensors may not
  // have sizes.
  bool is_for(const PlainKernel& kernel) const {
    return kernel.takes(keys_together_, keys_in_common_);
  }
  bool requires_grad(const PlainKernel& kernel) const {
    return requires_grad_ && kernel.is_differentiable(keys_together_);
  }

  // Finds the number of elements to compute, which is that of the shape that the tensors are broadcast to.
  int64_t measure(const KernelOfLibrary& kernel) {
    if (!kernel.broadcasts) {
      TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensors_[0], &numel_));
      return numel_;
    }
    int64_t sizes[kMaxDims], dims = 0;
    for (int i = 0; i < tensors_count_; i++) {
      int64_t dim, *own;
      TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensors_[i], &dim));
      TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensors_[i], &own));
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

  // Calls the kernel, which replaces the arguments by the results. Requires measure().
  void run(const KernelOfLibrary& kernel) {
    std::optional<nanobind::gil_scoped_release> unlocked;
    if (numel_ > kLong) {
      own_tensors();
      unlocked.emplace();
    }
    kernel.call(values_);
  }

  OwnTensor result(int k) {
    return OwnTensor(values_[k]);
  }

  // The tensors among the arguments, also after the call.
  const AtenTensorHandle* tensors() const {
    return tensors_;
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
    const Tensor tensor = tensor_of(x, own_[tensors_count_]);
    tensors_[tensors_count_++] = tensor.get();
    const uint64_t keys = keys_of(x, tensor);
    keys_together_ |= keys;
    keys_in_common_ &= keys;
    requires_grad_ = requires_grad_ || (is_grad_enabled_ && python::requires_grad(x, tensor));
    return tensor.get();
  }

  // Takes references to the tensors: without the GIL, another thread may exchange an object's tensor
  // (torch.utils.swap_tensors).
  void own_tensors() {
    for (int i = 0; i < tensors_count_; i++) {
      AtenTensorHandle own;
      TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensors_[i], &own));
      own_[i] = OwnTensor(own);
      tensors_[i] = own;
      *of_tensors_[i] = torch::stable::detail::from(own);
    }
  }

  // Calls of more elements release the GIL, which takes 0.3 us (measured), a twelfth of a call of 2^14 elements.
  static constexpr int64_t kLong = 1 << 15;

  StableIValue values_[kMaxArguments + 1], optional_[kMaxOptional];
  StableIValue* of_tensors_[kMaxOperands]; // the tensors among these
  AtenTensorHandle tensors_[kMaxOperands];
  int count_ = 0, tensors_count_ = 0, optional_count_ = 0;
  OwnTensor own_[kMaxOperands];
  uint64_t keys_together_ = 0, keys_in_common_ = ~uint64_t{0};
  const bool is_grad_enabled_ = aoti_torch_grad_mode_is_enabled();
  bool requires_grad_ = false;
  int64_t numel_ = 0;
};

using Kernels = std::vector<const PlainKernel*>; // one for each device type

// The number of calls that bypassed the dispatcher, for the tests.
inline std::atomic<int64_t> calls_past_dispatcher = 0;

// The fast path of one declaration.
struct FastPath {
  const Signature* signature;
  Kernels without_out, with_out, recorded; // `recorded` compute the results for `recorder`
  bool returns;                            // whether it returns its results or `out`, and not None
  bool tensor_numbers;                     // whether floats are passed as tensors
  AtenNode aten;                           // records small calls
  PyObject* recorder; // records a call in Python, given a tuple of its results and all arguments; or null

  // Returns null without an error if the call cannot bypass the dispatcher.
  PyObject* call(PyObject* const* args, PyObject* out, bool asks_autocast) const {
    Stack stack;
    const KernelOfLibrary* kernel;
    bool records, by_aten;
    try {
      if (!takes(args) || !(out == Py_None || is_tensor(out)) || is_observed()) return nullptr;
      stack.push(*signature, tensor_numbers, args, out);
      const Kernels& kernels = out == Py_None ? without_out : with_out;
      const auto found =
          std::find_if(kernels.begin(), kernels.end(), [&stack](const PlainKernel* one) { return stack.is_for(*one); });
      if (found == kernels.end() || !(*found)->registered.are_present() || (asks_autocast && autocasts()))
        return nullptr;
      kernel = &(*found)->kernel;
      records = stack.requires_grad(**found);
      by_aten = stack.measure(*kernel) <= kMostRecordedByAten && records && aten.redispatch &&
                aten.kernels.are_present() && (asks_autocast || !autocasts()) &&
                cpu::DefaultFloatEnvironment::is_active(); // otherwise ATen's gradients lack subnormals
      if (records && (out != Py_None || is_below_autograd() || !(by_aten || recorder))) return nullptr;
      if (records && !by_aten) kernel = &recorded[found - kernels.begin()]->kernel;
    } catch (const std::exception&) {
      PyErr_Clear(); // the Python function runs into the same problem, and raises the error
      return nullptr;
    }
    // An atomic increment would take longer. Without the GIL, a count may be lost.
    calls_past_dispatcher.store(calls_past_dispatcher.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    try {
      if (by_aten) {
        stack.run(*kernel);
        return aten.record(*signature, stack.result(0), stack.tensors()).release().ptr();
      }
      nanobind::object value = run(*kernel, stack, out);
      return records ? record(value, args) : value.release().ptr();
    } catch (const ErrorInPython&) {
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (const std::out_of_range& error) {
      PyErr_SetString(PyExc_IndexError, error.what());
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  }

 private:
  bool takes(PyObject* const* args) const {
    for (int i = 0; i < signature->count; i++) {
      const Kind kind = signature->arguments[i].kind;
      if (!takes(kind == Kind::real && tensor_numbers ? Kind::tensor : kind, args[i])) return false;
    }
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
      case Kind::sizes:
        return false;
      default:
        return is_tensor(x) || (kind == Kind::optional && x == Py_None);
    }
  }

  nanobind::object run(const KernelOfLibrary& kernel, Stack& stack, PyObject* out) const {
    stack.run(kernel);
    if (!(kernel.form & functional)) return owned(Py_NewRef(returns ? out : Py_None));
    OwnTensor results[kMaxOperands];
    for (int k = 0; k < kernel.results; k++) results[k] = stack.result(k);
    if (kernel.results == 1) return object_of(std::move(results[0]));
    nanobind::object all = owned(PyTuple_New(kernel.results));
    for (int k = 0; k < kernel.results; k++)
      PyTuple_SetItem(all.ptr(), k, object_of(std::move(results[k])).release().ptr());
    return all;
  }

  // For more elements, the backward pass of a node in Python is faster, because it is one kernel (measured).
  static constexpr int64_t kMostRecordedByAten = 1 << 20;

  // Records the call by a node in Python, which gets the kernel's results, so that nothing is computed twice.
  PyObject* record(const nanobind::object& value, PyObject* const* args) const {
    const nanobind::object given = owned(PyTuple_New(1 + signature->count));
    const bool is_one = !PyTuple_Check(value.ptr());
    PyTuple_SetItem(
        given.ptr(), 0, is_one ? owned(PyTuple_Pack(1, value.ptr())).release().ptr() : Py_NewRef(value.ptr()));
    for (int i = 0; i < signature->count; i++) PyTuple_SetItem(given.ptr(), 1 + i, Py_NewRef(args[i]));
    return owned(PyObject_Call(recorder, given.ptr(), nullptr)).release().ptr(); // may call hooks of the program
  }
};

// A parameter of the function.
struct Parameter {
  PyObject *name, *preset; // `preset` is the default, or null
  bool is_keyword;
};

// The function that Python calls. It binds its arguments to its parameters, and tries each path.
class Function {
 public:
  static constexpr size_t kMostParameters = 255;

  std::vector<Parameter> parameters; // the last is `out`, if has_out
  std::vector<FastPath> paths;
  size_t leading; // the number of leading arguments that are only passed on to `otherwise`
  bool has_out;
  // Called with all arguments by position if no path takes the call. Null: `as_passed` is called instead.
  PyObject* otherwise;
  // Called with the arguments as passed, if they do not fit the parameters or `otherwise` is null.
  PyObject* as_passed;

  PyObject* call(PyObject* positional, PyObject* by_name) const {
    PyObject* bound[kMostParameters];
    if (!bind(positional, by_name, bound))
      return PyErr_Occurred() ? nullptr : PyObject_Call(as_passed, positional, by_name);
    PyObject* const out = has_out ? bound[parameters.size() - 1] : Py_None;
    for (const FastPath& path : paths) {
      PyObject* const result = path.call(bound + leading, out, leading == 0);
      if (result || PyErr_Occurred()) return result;
    }
    if (!otherwise) return PyObject_Call(as_passed, positional, by_name);
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
    return !by_name || found == PyDict_Size(by_name); // else a name is unknown, or given twice
  }

  // Finds a keyword argument as Python does. A key of a class derived from `str` may have another hash than its text.
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

// The Python object of a function. Both live as long as the process.
inline nanobind::object object_of(Function* function) {
  auto* const method = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
  static PyMethodDef definition{"fast_path", method, METH_VARARGS | METH_KEYWORDS, nullptr};
  const nanobind::capsule self(function);
  return nanobind::steal<nanobind::object>(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

inline Kernels kernels_of(const std::string& declaration, unsigned forms) {
  Kernels found;
  for (const PlainKernel& one : plain_kernels())
    if (one.kernel.signature.declaration == declaration && one.kernel.form == (one.kernel.form & forms) &&
        (one.kernel.form & tensor_numbers) == (forms & tensor_numbers))
      found.push_back(&one);
  return found;
}

inline void define_fast_path(nanobind::module_& m) {
  namespace nb = nanobind;
  using namespace nb::literals;
  m.def("calls_past_dispatcher", [] { return calls_past_dispatcher.load(); });
  // Makes a function. `parameters` are tuples: name, whether there is a default, the default, whether it is
  // keyword-only. `forms` are those of _layer/operator.py: one for each declaration, the functional one if there is
  // one.
  m.def(
      "fast_path",
      [](const nb::list& parameters, const nb::list& forms, const nb::object& otherwise, const nb::object& as_passed,
         bool has_out, size_t leading) {
        auto* const function = new Function{{}, {}, leading, has_out, kept(otherwise), kept(as_passed)};
        if (parameters.size() > Function::kMostParameters)
          throw std::length_error("a function with more than 255 parameters");
        for (const nb::handle parameter : parameters) {
          PyObject* word = kept(parameter[0]);
          PyUnicode_InternInPlace(&word);
          PyObject* const preset = nb::cast<bool>(parameter[1]) ? nb::handle(parameter[2]).inc_ref().ptr() : nullptr;
          function->parameters.push_back({word, preset, nb::cast<bool>(parameter[3])});
        }
        if (!(reaches_tensors() && is_on("FAST_PATH"))) return object_of(function);
        for (const nb::handle form : forms) {
          const auto declaration = nb::cast<std::string>(form.attr("declaration"));
          const bool returns = nb::cast<std::string>(form.attr("kind")) == "functional";
          const unsigned numbers = nb::cast<bool>(form.attr("tensor_numbers")) ? unsigned{tensor_numbers} : 0;
          const unsigned without_out = numbers | (returns ? functional : updating);
          AtenNode aten;
          if (const nb::object found = form.attr("aten_node"); !found.is_none()) {
            const nb::dict keys = found[3];
            aten = {
                reinterpret_cast<void*>(nb::cast<uintptr_t>(found[0])), nb::cast<uint64_t>(found[1]),
                Noted(found[2], keys)};
            for (const auto& [key, number] : keys) aten.kernels.note(nb::cast<std::string>(key));
          }
          const Kernels all = kernels_of(declaration, numbers | functional | updating | writing);
          if (all.empty()) continue; // an operator that was defined in Python
          const Signature& signature = all[0]->kernel.signature;
          if (numbers && signature.tensors + signature.reals >= kMaxOperands) continue; // too many for a Stack
          function->paths.push_back(
              {&signature, kernels_of(declaration, without_out), kernels_of(declaration, numbers | writing),
               kernels_of(nb::cast<std::string>(form.attr("recorded").attr("declaration")), without_out), returns,
               numbers != 0, aten, returns ? kept(form.attr("recorder")) : nullptr});
        }
        return object_of(function);
      },
      "parameters"_a, "forms"_a, "otherwise"_a.none(), "as_passed"_a, "has_out"_a, "leading"_a = 0);
}

} // namespace elementwise::python
