// The checks before a small call bypasses the dispatcher: whether anything observes it, and which tensor a Python
// object is.
//
// A call makes a dozen checks. Each takes tens of nanoseconds in a Python function. So on versions of torch that the
// tests ran on (_layer/torch_private.py) we call torch's C++ functions, outside of its stable ABI. On every other torch
// we call the Python functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "../contract.h"
#include "../kernels_of_library.h"
#include "../system.h"
#include "../tensor.h"

namespace elementwise::python {

// Functions and objects of torch. Python sets them at import, and they live as long as the process.
struct Torch {
  // A Python function, or a dictionary and a key; and the answer if nothing observes the call: False, 0 or -1. CPython
  // has only one object for each of these, so we compare answers by address.
  struct Question {
    PyObject *of, *key, *expected;
  };
  // The dispatch keys that a thread includes and excludes; both are 0 by default.
  struct DispatchKeys {
    uint64_t included, excluded;
    bool operator==(const DispatchKeys&) const = default;
  };
  // Functions of torch's C++. Each may be null.
  struct {
    bool (*requires_grad)(const void* implementation); // whether a tensor requires grad
    int64_t (*function_modes)();                       // the number of active ones
    bool (*has_callbacks)();                           // whether a profiler is active
    void (*bump_version)(AtenTensorHandle tensor);
    void (*set_error)(const std::exception_ptr& error); // sets the Python error that torch raises for it
    PyObject* (*wrap)(AtenTensorHandle tensor);         // makes a Python object, and moves from the tensor
    // Whether the dispatcher's `entry` for an operator has a kernel for a key, and which one.
    bool (*has_kernel)(const void* entry, uint16_t key);
    const void* (*kernel)(const void* entry, uint16_t key);
    // These two are in the stable ABI from torch 2.14 on. Objects and types are PyObject*.
    AOTITorchError (*from_object)(void* object, AtenTensorHandle* tensor);
    AOTITorchError (*to_object)(AtenTensorHandle tensor, void* type, void** object);
  } in_c;
  std::string dispatch_keys;    // the symbol of a thread's DispatchKeys, or empty
  DispatchKeys inference_mode;  // a thread's DispatchKeys in inference mode
  size_t implementation_offset; // offset of the C++ tensor's address in a Python tensor, or 0
  size_t keys_offset;           // offset of the dispatch keys in a C++ tensor, or 0
  std::vector<Question> of_keys, others;
  PyObject *Tensor, *Parameter;
  PyObject *autocasts, *is_inference_mode_enabled, *keys_of_tensor, *dispatch; // functions
};

inline Torch& torch() {
  static Torch of_process{};
  return of_process;
}

// Thrown when a Python error is set.
struct ErrorInPython : std::exception {};

// Owns the result of a function of CPython. Throws if it is null, because the function has set an error.
inline nanobind::object owned(PyObject* object) {
  if (!object) throw ErrorInPython();
  return nanobind::steal(object);
}

// The address of a function or variable of torch, or null. We do not use weak symbols: because of them, the tool that
// audits the module would report torch 2.14 as the oldest that it runs on.
inline void* find_symbol(const char* symbol) {
  // dlsym also searches the libraries that libtorch_python depends on, which are torch's other libraries.
  static void* const torch_python = [] {
    system::Handle found;
    system::for_each_object([&found](const char* path) {
      if (std::strstr(path, "/libtorch_python.")) found = system::opened(path);
      return found != nullptr;
    });
    return found.release();
  }();
  return torch_python ? dlsym(torch_python, symbol) : nullptr;
}

// Returns this thread's keys. Requires that torch().dispatch_keys is not empty.
inline Torch::DispatchKeys dispatch_keys() {
  thread_local const void* const of_thread = find_symbol(torch().dispatch_keys.c_str());
  return *static_cast<const Torch::DispatchKeys*>(of_thread);
}

// Whether this thread has its default dispatch keys, or those of inference mode: then there is no transform, dispatch
// mode, tracing or autocast. False if the keys cannot be read.
inline bool has_default_dispatch() {
  if (torch().dispatch_keys.empty()) return false;
  const Torch::DispatchKeys keys = dispatch_keys();
  return keys == Torch::DispatchKeys{} || keys == torch().inference_mode;
}

// Whether all Python functions answer that nothing observes the call.
inline bool all_as_expected(const std::vector<Torch::Question>& questions) {
  for (const auto& [of, key, expected] : questions)
    if ((key ? PyDict_GetItemWithError(of, key) : owned(PyObject_CallNoArgs(of)).ptr()) != expected) return false;
  return true;
}

// Tells whether a mode, a transform, a profiler or tracing would notice which operators are called. Dispatch keys other
// than the default ones may be those of an observer that we do not know.
inline bool is_observed() {
  const auto& in_c = torch().in_c;
  return (in_c.function_modes && in_c.function_modes() > 0) || (in_c.has_callbacks && in_c.has_callbacks()) ||
         !all_as_expected(torch().others) ||
         !(torch().dispatch_keys.empty() ? all_as_expected(torch().of_keys) : has_default_dispatch());
}

// Whether autocast is active for any device.
inline bool autocasts() {
  return !has_default_dispatch() && owned(PyObject_CallNoArgs(torch().autocasts)).ptr() != Py_False;
}

// Whether autograd records nothing, even if a tensor requires grad and grad mode is on: inference mode excludes its
// keys.
inline bool is_below_autograd() {
  if (!torch().dispatch_keys.empty()) return (dispatch_keys().excluded & torch().inference_mode.excluded) != 0;
  return owned(PyObject_CallNoArgs(torch().is_inference_mode_enabled)).ptr() != Py_False;
}

// See Tensor::bump_version. Below autograd's keys ATen's operators do not count, but torch's function does. So we call
// it only if the thread has its default keys.
inline bool bump_version(AtenTensorHandle tensor) try {
  if (torch().dispatch_keys.empty() || dispatch_keys() != Torch::DispatchKeys{}) return false;
  torch().in_c.bump_version(tensor);
  return true;
} catch (const std::exception&) {
  return false; // the tensor may not be written
}

// Whether Python's tensors can be converted to handles and back.
inline bool reaches_tensors() {
  const Torch& of = torch();
  return (of.implementation_offset || of.in_c.from_object) && (of.in_c.wrap || of.in_c.to_object);
}

inline bool is_tensor(PyObject* x) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(x));
  return type == torch().Tensor || type == torch().Parameter;
}

// The tensor of a Python object. A handle points to the address of a C++ tensor, and the object contains that address,
// so a pointer into the object is a handle. If its offset is not known, the stable ABI makes a handle, which `own` then
// owns.
inline Tensor tensor_of(PyObject* object, OwnTensor& own) {
  if (torch().implementation_offset)
    return Tensor(reinterpret_cast<AtenTensorHandle>(reinterpret_cast<char*>(object) + torch().implementation_offset));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(torch().in_c.from_object(object, &handle));
  own = OwnTensor(handle);
  return own;
}

// The address of a tensor's implementation, which tells tensors apart.
inline const void* implementation(Tensor tensor) {
  return *reinterpret_cast<const void* const*>(tensor.get());
}

inline nanobind::object object_of(OwnTensor tensor) {
  if (torch().in_c.wrap) return owned(torch().in_c.wrap(tensor.get()));
  void* object;
  TORCH_ERROR_CODE_CHECK(torch().in_c.to_object(tensor.get(), nullptr, &object));
  return owned(static_cast<PyObject*>(object));
}

constexpr int kMostRedispatched = 3; // the tensors that `redispatch` can pass

// Calls at::_ops::*::redispatch of an operator of one to three tensors, with dispatch keys. Throws ErrorInPython.
inline OwnTensor redispatch(void* function, uint64_t keys, const AtenTensorHandle* x, int count) {
  // An at::Tensor: a pointer, in a class with a destructor, so that it is returned in memory.
  struct Returned {
    void* implementation;
    ~Returned() {}
  };
  const auto call = [function, keys](auto... tensors) {
    return new Returned(reinterpret_cast<Returned (*)(uint64_t, decltype(tensors)...)>(function)(keys, tensors...));
  };
  try {
    // A handle is the address of an at::Tensor that `new` made.
    return OwnTensor(
        reinterpret_cast<AtenTensorHandle>(
            count == 1   ? call(x[0])
            : count == 2 ? call(x[0], x[1])
                         : call(x[0], x[1], x[2])));
  } catch (...) {
    torch().in_c.set_error(std::current_exception()); // the error of a hook keeps its type
    throw ErrorInPython();
  }
}

inline bool requires_grad(PyObject* object, Tensor tensor) {
  if (torch().in_c.requires_grad) return torch().in_c.requires_grad(implementation(tensor));
  return owned(PyObject_GetAttrString(object, "requires_grad")).ptr() != Py_False;
}

// The dispatch keys of a tensor, as bits.
inline uint64_t keys_of(PyObject* object, Tensor tensor) {
  if (torch().keys_offset)
    return *reinterpret_cast<const uint64_t*>(*reinterpret_cast<char**>(tensor.get()) + torch().keys_offset);
  const nanobind::object keys = owned(PyObject_CallFunctionObjArgs(torch().keys_of_tensor, object, nullptr));
  return PyLong_AsUnsignedLongLong(owned(PyObject_CallMethod(keys.ptr(), "raw_repr", nullptr)).ptr());
}

// A reference that is never released; null for None.
inline PyObject* kept(nanobind::handle object) {
  return object.is_none() ? nullptr : object.inc_ref().ptr();
}

// The offset in bytes of a value among `count` words, or 0 if it is not among them.
inline size_t find(uint64_t value, const void* words, size_t count) {
  const auto* const begin = static_cast<const uint64_t*>(words);
  const auto* const found = std::find(begin, begin + count, value);
  return found == begin + count ? 0 : (found - begin) * sizeof(value);
}

// The dispatcher's kernels for an operator at some keys, as they were when they were noted. A program may register
// others later.
class Noted {
 public:
  Noted() = default;
  // `handle` is torch's Python object for the operator. `keys` has the numbers of the keys by their names.
  Noted(const nanobind::object& handle, const nanobind::dict& keys) {
    namespace nb = nanobind;
    for (const auto& [name, key] : keys) keys_.push_back({nb::cast<std::string>(name), nb::cast<uint16_t>(key)});
    if (!torch().in_c.has_kernel || !torch().in_c.kernel) return;
    // A pybind11 object has, after the header of a Python object, the address of its c10::OperatorHandle, which begins
    // with the address of the dispatcher's entry.
    const nb::handle object(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
    const char* const begin = reinterpret_cast<const char*>(handle.ptr());
    entry_ = **reinterpret_cast<const void* const* const*>(begin + nb::cast<size_t>(object.attr("__basicsize__")));
  }

  void note(const std::string& key) {
    for (Key& one : keys_)
      if (entry_ && one.name == key && torch().in_c.has_kernel(entry_, one.key))
        one.kernel = torch().in_c.kernel(entry_, one.key);
  }

  // Whether the dispatcher has the same kernels. A key that was not noted has none.
  bool are_present() const {
    if (!entry_) return true; // we cannot tell
    for (const Key& one : keys_)
      if (one.kernel ? torch().in_c.kernel(entry_, one.key) != one.kernel : torch().in_c.has_kernel(entry_, one.key))
        return false;
    return true;
  }

 private:
  struct Key {
    std::string name;
    uint16_t key;
    const void* kernel = nullptr; // null if it has none
  };

  const void* entry_ = nullptr;
  std::vector<Key> keys_;
};

// A kernel of this library, with the conditions under which a call may skip the dispatcher: the tensors are plain, and
// the program has not registered another kernel for the operator.
class PlainKernel {
 public:
  explicit PlainKernel(const KernelOfLibrary& kernel) : kernel(kernel), name(kernel.signature.qualified(kernel.form)) {
    namespace nb = nanobind;
    std::string device = contract::device_name({.name = {}, .device_type = kernel.device_type, .device_index = -1});
    for (char& letter : device) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    const nb::object found = nb::borrow(torch().dispatch)(name, device);
    if (found.is_none()) return;
    most_ = nb::cast<uint64_t>(found[0]);
    least_ = nb::cast<uint64_t>(found[1]);
    registered = Noted(found[2], found[3]);
    registered.note(device);
  }

  const KernelOfLibrary& kernel;
  const std::string name;
  Noted registered; // this library's kernels for the operator

  // Whether all tensors of a call are plain, given the union and the intersection of their dispatch keys. Tensors that
  // were made in inference mode lack the keys of autograd.
  bool takes(uint64_t together, uint64_t common) const {
    return !(together & ~most_) && (common & least_) == least_;
  }
  // Whether a tensor among them has the keys of autograd.
  bool is_differentiable(uint64_t together) const {
    return together != least_;
  }

 private:
  uint64_t most_ = 0, least_ = 1; // takes no tensor
};

// The kernels, in the order of kernels_of_library().
inline std::vector<PlainKernel>& plain_kernels() {
  static std::vector<PlainKernel> all;
  return all;
}

inline void define_ask_torch(nanobind::module_& m) {
  namespace nb = nanobind;
  // `known` is the module _layer/torch_private.py. If Python reloads its modules and calls this again, nothing changes.
  m.def("set_up", [](const nb::handle known, const nb::handle tensor, const nb::handle parameter) {
    Torch& set = torch();
    if (set.Tensor) return;
    const auto address = [&known](auto& of, const char* name) {
      of = reinterpret_cast<std::remove_reference_t<decltype(of)>>(nb::cast<uintptr_t>(known.attr(name)));
    };
    address(set.in_c.requires_grad, "requires_grad");
    address(set.in_c.function_modes, "function_modes");
    address(set.in_c.has_callbacks, "has_callbacks");
    address(set.in_c.bump_version, "bump_version");
    address(set.in_c.set_error, "set_error");
    address(set.in_c.wrap, "wrap");
    address(set.in_c.from_object, "from_object");
    address(set.in_c.to_object, "to_object");
    address(set.in_c.has_kernel, "has_kernel");
    address(set.in_c.kernel, "kernel");
    if (set.in_c.bump_version) fast_bump_version = bump_version;
    set.dispatch_keys = nb::cast<std::string>(known.attr("dispatch_keys"));
    if (const nb::object example = known.attr("example"); !example.is_none()) {
      const auto address = nb::cast<uintptr_t>(example.attr("_cdata"));
      const auto size = nb::cast<size_t>(example.type().attr("__basicsize__"));
      set.implementation_offset = find(address, example.ptr(), size / sizeof(address));
      constexpr size_t kWords = 24; // a C++ tensor has more
      set.keys_offset =
          find(nb::cast<uint64_t>(known.attr("keys_of_example")), reinterpret_cast<const void*>(address), kWords);
    }
    const auto ask = [&known](std::vector<Torch::Question>& questions, const char* name) {
      for (const nb::handle question : known.attr(name)) {
        const nb::object object = question[0], key = question[1];
        const nb::object of = key.is_none() ? object : nb::getattr(object, "__dict__");
        questions.push_back({kept(of), kept(key), kept(question[2])});
      }
    };
    ask(set.of_keys, "UNOBSERVED_KEYS");
    ask(set.others, "UNOBSERVED");
    set.Tensor = kept(tensor);
    set.Parameter = kept(parameter);
    set.autocasts = kept(known.attr("autocasts"));
    set.is_inference_mode_enabled = kept(known.attr("is_inference_mode_enabled"));
    set.keys_of_tensor = kept(known.attr("dispatch_keys_of"));
    set.dispatch = kept(known.attr("dispatch"));
    for (const KernelOfLibrary& kernel : kernels_of_library()) plain_kernels().emplace_back(kernel);
  });
  // Notes that this library has registered the latest kernel for an operator and a dispatch key.
  m.def("note_kernel", [](const std::string& op, const std::string& key) {
    for (PlainKernel& kernel : plain_kernels())
      if (kernel.name == op) kernel.registered.note(key);
  });
  // Called once outside of inference mode and once inside it: finds which dispatch keys the mode changes, whatever else
  // is active. Later calls change nothing.
  m.def("note_inference_mode", [] {
    static int calls = 0;
    if (torch().dispatch_keys.empty() || calls++ >= 2) return;
    const Torch::DispatchKeys keys = dispatch_keys();
    torch().inference_mode.included ^= keys.included;
    torch().inference_mode.excluded ^= keys.excluded;
  });
  m.def("address", [](const char* symbol) { return reinterpret_cast<uintptr_t>(find_symbol(symbol)); });
}

} // namespace elementwise::python
