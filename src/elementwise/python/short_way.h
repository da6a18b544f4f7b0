// The short way of a small call: a C function of Python that takes it straight to the kernel of an operator.
//
// That is past the dispatcher, and only where nothing observes the call: its tensors are plain, and there is no
// transform, mode, tracing, profiler or autocast. Every other call is left to a function in Python, `otherwise`, which
// is given all arguments by position. What goes wrong here is left to it too, so nothing here has an error message.
//
// By CPython's limited API and not by nanobind, one of whose functions takes 0.1 us longer to call (measured).
#pragma once

#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../kernels_of_library.h"
#include "../tensor.h"

namespace elementwise::python {

// What Python knows of torch (_layer/torch_private.py). Set at the import, and kept as long as the process runs.
struct Torch {
  // A function, or an object and the name of an attribute; and its answer where nothing observes, which is False, 0 or
  // -1: there is one object of each.
  struct Question {
    PyObject *of, *attribute, *quiet;
  };
  // Functions of torch. A call of one takes some ns, and Python, which is asked where it is null, 30 to 110 (measured).
  struct {
    AOTITorchError (*from_object)(void* object, AtenTensorHandle* tensor); // objects and types are PyObject*
    AOTITorchError (*to_object)(AtenTensorHandle tensor, void* type, void** object);
    bool (*is_neg)(AtenTensorHandle tensor);
    bool (*requires_grad)(const void* implementation); // of a tensor, to which its handle points
    bool (*autocasts)(int8_t device_type);
  } in_c;
  PyObject *Tensor, *Parameter;
  std::vector<Question> questions;
  PyObject *autocasts, *to_pointer, *from_pointer; // functions
  PyObject *is_neg, *requires_grad, *data;         // names
};

inline Torch& torch() {
  static Torch of_process{};
  return of_process;
}

// Python has set an error.
struct ErrorInPython : std::exception {};
// And it is that of a hook of the program, which is not called again.
struct ErrorOfProgram {};

// An owned reference.
class Object {
 public:
  explicit Object(PyObject* object) : object_(object) {
    if (!object) throw ErrorInPython();
  }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ~Object() {
    Py_XDECREF(object_);
  }
  PyObject* get() const {
    return object_;
  }
  PyObject* release() {
    return std::exchange(object_, nullptr);
  }

 private:
  PyObject* object_;
};

// Does anything see which operators are called?
inline bool is_observed() {
  for (const Torch::Question& question : torch().questions) {
    const Object answer(
        question.attribute ? PyObject_GetAttr(question.of, question.attribute) : PyObject_CallNoArgs(question.of));
    if (answer.get() != question.quiet) return true;
  }
  return false;
}

inline bool autocasts(int32_t device_type) {
  if (torch().in_c.autocasts) return torch().in_c.autocasts(static_cast<int8_t>(device_type));
  return Object(PyObject_CallNoArgs(torch().autocasts)).get() != Py_False; // for any
}

inline bool is_tensor(PyObject* x) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(x));
  return type == torch().Tensor || type == torch().Parameter;
}

inline bool requires_grad(PyObject* object, const Tensor& tensor) {
  if (torch().in_c.requires_grad) return torch().in_c.requires_grad(*reinterpret_cast<void* const*>(tensor.get()));
  return Object(PyObject_GetAttr(object, torch().requires_grad)).get() != Py_False;
}

inline bool is_negated(PyObject* object, const Tensor& tensor) {
  if (torch().in_c.is_neg) return torch().in_c.is_neg(tensor.get());
  return Object(PyObject_CallMethodObjArgs(object, torch().is_neg, nullptr)).get() != Py_False;
}

inline Tensor tensor_of(PyObject* object) {
  AtenTensorHandle handle;
  if (torch().in_c.from_object) {
    TORCH_ERROR_CODE_CHECK(torch().in_c.from_object(object, &handle));
    return Tensor(handle);
  }
  const Object pointer(PyObject_CallFunctionObjArgs(torch().to_pointer, object, nullptr));
  return Tensor(static_cast<AtenTensorHandle>(PyCapsule_GetPointer(pointer.get(), nullptr)));
}

inline Object object_of(const Tensor& tensor) {
  if (torch().in_c.to_object) {
    void* object;
    TORCH_ERROR_CODE_CHECK(torch().in_c.to_object(tensor.get(), nullptr, &object));
    return Object(static_cast<PyObject*>(object));
  }
  const Object pointer(PyCapsule_New(tensor.get(), nullptr, nullptr));
  return Object(PyObject_CallFunctionObjArgs(torch().from_pointer, pointer.get(), nullptr)); // it steals nothing
}

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
  Stack(const Signature& signature, PyObject* const* args, PyObject* out) {
    for (int i = 0; i < signature.count; i++) push(signature.arguments[i].kind, args[i]);
    if (out != Py_None) push(Kind::tensor, out);
  }

  int32_t device_type() const {
    return device_type_;
  }
  int64_t numel() const {
    return numel_; // of the largest
  }
  // Are all tensors what their metadata says, in memory? Not those that are sparse, functional, lazily negated, of
  // torch._efficientzerotensor, or without elements, of which these and others have no memory.
  bool is_plain() const {
    return is_plain_;
  }
  bool requires_grad() const {
    return requires_grad_; // where that counts
  }

  // Replaces the arguments, which the kernel takes over, by its results.
  void run(const KernelOfLibrary& kernel) {
    for (int k = 0; k < tensors_count_; k++) {
      StableIValue& value = values_[places_[k]];
      value = tensors_[k].release();
      if (is_optional_[k]) value = torch::stable::detail::from(new StableIValue(value));
    }
    const WithoutLock unlocked(numel_ > kLong);
    kernel.call(values_, static_cast<uint64_t>(count_), static_cast<uint64_t>(kernel.results));
  }

  Object result(int k) {
    return object_of(Tensor(values_[k]));
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
        if (x != Py_None) push_tensor(kind, x);
        return;
    }
    if (PyErr_Occurred()) throw ErrorInPython(); // the number is too large
  }

  void push_tensor(Kind kind, PyObject* x) {
    Tensor& tensor = tensors_[tensors_count_] = tensor_of(x);
    places_[tensors_count_] = count_ - 1;
    is_optional_[tensors_count_++] = kind == Kind::optional;
    int32_t layout, device_type;
    int64_t numel;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_layout(tensor.get(), &layout));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device_type));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensor.get(), &numel));
    is_plain_ = is_plain_ && layout == aoti_torch_layout_strided() && tensor.data() && !is_negated(x, tensor);
    requires_grad_ = requires_grad_ || (is_grad_enabled_ && python::requires_grad(x, tensor));
    numel_ = std::max(numel_, numel);
    if (tensors_count_ == 1) device_type_ = device_type; // the kernel compares them
  }

  static constexpr int64_t kLong = 1 << 12; // elements that take longer than to release the lock

  StableIValue values_[kMaxArguments + 1];
  int count_ = 0;
  Tensor tensors_[kMaxOperands];
  int places_[kMaxOperands], tensors_count_ = 0;
  bool is_optional_[kMaxOperands], is_plain_ = true;
  const bool is_grad_enabled_ = aoti_torch_grad_mode_is_enabled();
  bool requires_grad_ = false;
  int32_t device_type_ = -1;
  int64_t numel_ = 0;
};

using Kernels = std::vector<const KernelOfLibrary*>; // one for each kind of device

// One declaration of an operator.
struct Way {
  const Signature* signature;
  Kernels without_out, with_out;
  bool returns;       // its results or `out`, and not None
  PyObject* aten;     // records the same derivative by a node in C++; or null
  PyObject* recorder; // records a call, given a tuple of its results and all arguments; or null

  // Returns null, without an error, where this is not the way.
  PyObject* call(PyObject* const* args, PyObject* out, bool asks_autocast) const {
    if (!takes(args) || !(out == Py_None || is_tensor(out)) || is_observed()) return nullptr;
    Stack stack(*signature, args, out);
    if (!stack.is_plain() || (asks_autocast && autocasts(stack.device_type()))) return nullptr;
    const Kernels& kernels = out == Py_None ? without_out : with_out;
    const auto kernel = std::find_if(kernels.begin(), kernels.end(), [&stack](const KernelOfLibrary* one) {
      return one->device_type == stack.device_type();
    });
    if (kernel == kernels.end()) return nullptr;
    if (!stack.requires_grad()) return run(**kernel, stack, out);
    if (out != Py_None) return nullptr;
    if (aten && stack.numel() <= kMostComputedTwice && (asks_autocast || !autocasts(stack.device_type())))
      return record_by_aten(Object(run(**kernel, stack, out)), args);
    return recorder ? record(Object(run(**kernel, stack, out)), args) : nullptr;
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

  PyObject* run(const KernelOfLibrary& kernel, Stack& stack, PyObject* out) const {
    stack.run(kernel);
    if (!(kernel.form & functional)) return Py_NewRef(returns ? out : Py_None);
    if (kernel.results == 1) return stack.result(0).release();
    Object results(PyTuple_New(kernel.results));
    for (int k = 0; k < kernel.results; k++) PyTuple_SetItem(results.get(), k, stack.result(k).release());
    return results.release();
  }

  // The kernel's values with the node of ATen's operator: what that has computed gets the memory in which the kernel
  // has. The kernel comes first, because it checks.
  PyObject* record_by_aten(const Object& value, PyObject* const* args) const {
    const Object tensors(PyTuple_New(signature->tensors));
    for (int i = 0, k = 0; i < signature->count; i++)
      if (signature->arguments[i].is_tensor()) PyTuple_SetItem(tensors.get(), k++, Py_NewRef(args[i]));
    PyObject* const result = PyObject_Call(aten, tensors.get(), nullptr); // this calls the hooks of the program
    if (!result || PyObject_SetAttr(result, torch().data, value.get()) != 0) {
      Py_XDECREF(result);
      throw ErrorOfProgram();
    }
    return result;
  }

  // Above it, to compute twice takes longer than a node in Python (measured).
  static constexpr int64_t kMostComputedTwice = 1 << 16;

  // The node in Python is given what the kernel has computed: past the dispatcher, which would call that again.
  PyObject* record(const Object& value, PyObject* const* args) const {
    const Object given(PyTuple_New(1 + signature->count));
    const bool is_one = !PyTuple_Check(value.get());
    PyTuple_SetItem(given.get(), 0, is_one ? PyTuple_Pack(1, value.get()) : Py_NewRef(value.get()));
    for (int i = 0; i < signature->count; i++) PyTuple_SetItem(given.get(), 1 + i, Py_NewRef(args[i]));
    PyObject* const result = PyObject_Call(recorder, given.get(), nullptr); // this calls the hooks of the program
    if (!result) throw ErrorOfProgram();
    return result;
  }
};

struct Parameter {
  PyObject *name, *preset; // a default, or null
  bool is_keyword;
};

class Function {
 public:
  static constexpr size_t kMostParameters = 255;

  std::vector<Parameter> parameters; // a last one that is called `out` is no argument of a way
  std::vector<Way> ways;
  size_t leading; // arguments that are only handed on
  bool has_out;
  PyObject* otherwise; // for every other call
  PyObject* refuse;    // is called as this was, where its arguments do not fit the parameters

  PyObject* call(PyObject* positional, PyObject* by_name) const {
    PyObject* bound[kMostParameters];
    if (!bind(positional, by_name, bound)) return PyObject_Call(refuse, positional, by_name);
    try {
      PyObject* const out = has_out ? bound[parameters.size() - 1] : Py_None;
      for (const Way& way : ways)
        if (PyObject* const result = way.call(bound + leading, out, leading == 0)) return result;
    } catch (const ErrorOfProgram&) {
      return nullptr;
    } catch (const std::exception&) {
      PyErr_Clear(); // `otherwise` finds what it was, and says it
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
      PyObject* const given = by_name ? PyDict_GetItem(by_name, parameters[i].name) : nullptr;
      found += given != nullptr;
      bound[i] = given ? given : parameters[i].preset;
      if (!bound[i]) return false;
    }
    return !by_name || found == PyDict_Size(by_name); // no name is unknown, or given twice
  }
};

inline PyObject* call(PyObject* self, PyObject* positional, PyObject* by_name) {
  return static_cast<const Function*>(PyCapsule_GetPointer(self, nullptr))->call(positional, by_name);
}

// Returns it as Python's object. Both are kept as long as the process runs.
inline nanobind::object object_of(Function* function) {
  auto* const method = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call));
  static PyMethodDef definition{"short_way", method, METH_VARARGS | METH_KEYWORDS, nullptr};
  const nanobind::capsule self(function);
  return nanobind::steal<nanobind::object>(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

inline Kernels kernels_of(const std::string& declaration, unsigned forms) {
  Kernels found;
  for (const KernelOfLibrary& kernel : kernels_of_library())
    if (kernel.signature.declaration == declaration && (kernel.form == (kernel.form & forms))) found.push_back(&kernel);
  return found;
}

inline PyObject* kept(nanobind::handle object) {
  return object.is_none() ? nullptr : object.inc_ref().ptr();
}

inline void define_short_way(nanobind::module_& m) {
  namespace nb = nanobind;
  // `known` is the module _layer/torch_private.py.
  m.def("set_up", [](const nb::handle known, const nb::handle tensor, const nb::handle parameter) {
    Torch& set = torch();
    const auto address = [&known](auto& of, const char* name) {
      of = reinterpret_cast<std::remove_reference_t<decltype(of)>>(nb::cast<uintptr_t>(known.attr(name)));
    };
    address(set.in_c.from_object, "from_object");
    address(set.in_c.to_object, "to_object");
    address(set.in_c.is_neg, "is_neg");
    address(set.in_c.requires_grad, "requires_grad");
    address(set.in_c.autocasts, "autocasts_on");
    for (const nb::handle question : known.attr("QUIET"))
      set.questions.push_back({kept(question[0]), kept(question[1]), kept(question[2])});
    set.Tensor = kept(tensor);
    set.Parameter = kept(parameter);
    set.autocasts = kept(known.attr("autocasts"));
    set.to_pointer = kept(known.attr("to_pointer"));
    set.from_pointer = kept(known.attr("from_pointer"));
    set.is_neg = PyUnicode_InternFromString("is_neg");
    set.requires_grad = PyUnicode_InternFromString("requires_grad");
    set.data = PyUnicode_InternFromString("data");
  });
  // Not weak symbols, from which a tool that audits the module would take torch 2.14 for the oldest that it runs on.
  m.def("address", [](const char* symbol) { return reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, symbol)); });
  // `parameters` are tuples of a name, whether there is a default, that, and whether it is keyword-only; `ways` are
  // those of _layer/short_way.py.
  m.def(
      "short_way", [](const nb::list& parameters, bool has_out, size_t leading, const nb::list& ways,
                      const nb::object& otherwise, const nb::object& refuse) {
        auto* const function = new Function{{}, {}, leading, has_out, kept(otherwise), kept(refuse)};
        if (parameters.size() > Function::kMostParameters)
          throw std::length_error("a function with so many parameters");
        for (const nb::handle parameter : parameters) {
          PyObject* word = kept(parameter[0]);
          PyUnicode_InternInPlace(&word);
          PyObject* const preset = nb::cast<bool>(parameter[1]) ? nb::handle(parameter[2]).inc_ref().ptr() : nullptr;
          function->parameters.push_back({word, preset, nb::cast<bool>(parameter[3])});
        }
        for (const nb::handle way : ways) {
          const auto declaration = nb::cast<std::string>(way.attr("declaration"));
          const bool returns = nb::cast<bool>(way.attr("returns"));
          const Kernels all = kernels_of(declaration, functional | updating | writing);
          if (all.empty()) continue; // an operator that was defined in Python
          function->ways.push_back(
              {&all[0]->signature, kernels_of(declaration, returns ? functional : updating),
               kernels_of(declaration, writing), returns, kept(way.attr("aten")), kept(way.attr("recorder"))});
        }
        return object_of(function);
      });
}

} // namespace elementwise::python
