// What a small call asks torch, from C: whether anything observes it, and what an object of Python is as a tensor.
//
// Python takes 30 to 110 ns to answer a question, and a call has a dozen of them. So torch's own C++ is asked, outside
// of its stable ABI, on those torches that the tests ran on (_layer/torch_private.py); and Python on every other.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "../system.h"
#include "../tensor.h"

namespace elementwise::python {

// What Python knows of torch. Set at the import, and kept as long as the process runs.
struct Torch {
  // A function, or a dictionary and a key; and the answer where nothing observes, which is False, 0 or -1: there is one
  // object of each.
  struct Question {
    PyObject *of, *key, *quiet;
  };
  // A thread's changes to what it dispatches to: {0, 0} if there is none.
  struct DispatchKeys {
    uint64_t included, excluded;
    bool operator==(const DispatchKeys&) const = default;
  };
  // Functions of torch, each of which may be null.
  struct {
    bool (*is_neg)(AtenTensorHandle tensor);
    bool (*requires_grad)(const void* implementation); // of a tensor
    int64_t (*function_modes)();                       // how many
    bool (*has_callbacks)();                           // of a profiler
    void (*bump_version)(AtenTensorHandle tensor);
    void (*set_data)(AtenTensorHandle tensor, AtenTensorHandle value); // as `tensor.data = value` does
    PyObject* (*wrap)(AtenTensorHandle tensor);                        // moves from it
    // Of the stable ABI from torch 2.14 on. Objects and types are PyObject*.
    AOTITorchError (*from_object)(void* object, AtenTensorHandle* tensor);
    AOTITorchError (*to_object)(AtenTensorHandle tensor, void* type, void** object);
  } in_c;
  std::string dispatch_keys;   // the symbol of the thread's own, or nothing
  DispatchKeys inference_mode; // what they are in it
  size_t implementation;       // where in an object the address of its tensor's implementation is, or 0
  std::vector<Question> of_keys, others;
  PyObject *Tensor, *Parameter;
  PyObject *autocasts, *is_inference_mode_enabled; // functions
};

inline Torch& torch() {
  static Torch of_process{};
  return of_process;
}

// Python has set an error.
struct ErrorInPython : std::exception {};

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

// Where torch has a function or variable, or null. Not by weak symbols, from which a tool that audits the module would
// take torch 2.14 for the oldest that it runs on.
inline void* find_symbol(const char* symbol) {
  // It needs torch's other libraries, which are therefore looked into, too.
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

// Where they are known.
inline Torch::DispatchKeys dispatch_keys() {
  thread_local const void* const of_thread = find_symbol(torch().dispatch_keys.c_str());
  return *static_cast<const Torch::DispatchKeys*>(of_thread);
}

// Is there no transform, mode of dispatch, tracing or autocast? False where that is not known.
inline bool is_at_rest() {
  if (torch().dispatch_keys.empty()) return false;
  const Torch::DispatchKeys keys = dispatch_keys();
  return keys == Torch::DispatchKeys{} || keys == torch().inference_mode;
}

inline bool is_quiet(const std::vector<Torch::Question>& questions) {
  for (const auto& [of, key, quiet] : questions)
    if ((key ? PyDict_GetItemWithError(of, key) : Object(PyObject_CallNoArgs(of)).get()) != quiet) return false;
  return true;
}

// Does anything see which operators are called?
inline bool is_observed() {
  const auto& in_c = torch().in_c;
  return (in_c.function_modes && in_c.function_modes() > 0) || (in_c.has_callbacks && in_c.has_callbacks()) ||
         !is_quiet(torch().others) || !(is_at_rest() || is_quiet(torch().of_keys));
}

// On any device.
inline bool autocasts() {
  return !is_at_rest() && Object(PyObject_CallNoArgs(torch().autocasts)).get() != Py_False;
}

// Is nothing recorded, whatever requires grad? Inference mode excludes the keys of autograd, and grad mode may be on.
inline bool is_below_autograd() {
  if (!torch().dispatch_keys.empty()) return (dispatch_keys().excluded & torch().inference_mode.excluded) != 0;
  return Object(PyObject_CallNoArgs(torch().is_inference_mode_enabled)).get() != Py_False;
}

// See Tensor::bump_version. Torch's function counts below autograd's keys, too, where ATen's operators do not.
inline bool bump_version(AtenTensorHandle tensor) try {
  if (torch().dispatch_keys.empty() || dispatch_keys() != Torch::DispatchKeys{}) return false;
  torch().in_c.bump_version(tensor);
  return true;
} catch (const std::exception&) {
  return false; // it may not be written to
}

inline bool is_tensor(PyObject* x) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(x));
  return type == torch().Tensor || type == torch().Parameter;
}

// A handle points to the address of a tensor's implementation. An object holds that address, too: where it does is
// a handle. On a torch of which that is not known, the handle is `own`.
inline Tensor tensor_of(PyObject* object, OwnTensor& own) {
  if (torch().implementation)
    return Tensor(reinterpret_cast<AtenTensorHandle>(reinterpret_cast<char*>(object) + torch().implementation));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(torch().in_c.from_object(object, &handle));
  own = OwnTensor(handle);
  return own;
}

inline Object object_of(OwnTensor tensor) {
  if (torch().in_c.wrap) return Object(torch().in_c.wrap(tensor.get()));
  void* object;
  TORCH_ERROR_CODE_CHECK(torch().in_c.to_object(tensor.get(), nullptr, &object));
  return Object(static_cast<PyObject*>(object));
}

// Returns whether it worked, and if not, Python has set an error.
inline bool set_data(PyObject* object, OwnTensor value) {
  if (!torch().in_c.set_data) return PyObject_SetAttrString(object, "data", object_of(std::move(value)).get()) == 0;
  OwnTensor own;
  torch().in_c.set_data(tensor_of(object, own).get(), value.get());
  return true;
}

inline bool requires_grad(PyObject* object, Tensor tensor) {
  if (torch().in_c.requires_grad) return torch().in_c.requires_grad(*reinterpret_cast<void* const*>(tensor.get()));
  return Object(PyObject_GetAttrString(object, "requires_grad")).get() != Py_False;
}

inline bool is_negated(PyObject* object, Tensor tensor) {
  if (torch().in_c.is_neg) return torch().in_c.is_neg(tensor.get());
  return Object(PyObject_CallMethod(object, "is_neg", nullptr)).get() != Py_False;
}

inline PyObject* kept(nanobind::handle object) {
  return object.is_none() ? nullptr : object.inc_ref().ptr();
}

// Looks into a tensor for the address of the implementation, which it tells as `_cdata`.
inline size_t find_implementation(const nanobind::handle tensor) {
  const auto* const words = reinterpret_cast<const uintptr_t*>(tensor.ptr());
  const auto size = nanobind::cast<size_t>(tensor.type().attr("__basicsize__"));
  const auto* const end = words + size / sizeof(*words);
  const auto* const found = std::find(words, end, nanobind::cast<uintptr_t>(tensor.attr("_cdata")));
  return found == end ? 0 : (found - words) * sizeof(*words);
}

inline void define_questions(nanobind::module_& m) {
  namespace nb = nanobind;
  // `known` is the module _layer/torch_private.py. Returns whether tensors are reached.
  m.def("set_up", [](const nb::handle known, const nb::handle tensor, const nb::handle parameter) {
    Torch& set = torch();
    const auto address = [&known](auto& of, const char* name) {
      of = reinterpret_cast<std::remove_reference_t<decltype(of)>>(nb::cast<uintptr_t>(known.attr(name)));
    };
    address(set.in_c.is_neg, "is_neg");
    address(set.in_c.requires_grad, "requires_grad");
    address(set.in_c.function_modes, "function_modes");
    address(set.in_c.has_callbacks, "has_callbacks");
    address(set.in_c.bump_version, "bump_version");
    address(set.in_c.set_data, "set_data");
    address(set.in_c.wrap, "wrap");
    address(set.in_c.from_object, "from_object");
    address(set.in_c.to_object, "to_object");
    if (set.in_c.bump_version) bumps_version = bump_version;
    set.dispatch_keys = nb::cast<std::string>(known.attr("dispatch_keys"));
    if (const nb::object example = known.attr("example"); !example.is_none())
      set.implementation = find_implementation(example);
    const auto ask = [&known](std::vector<Torch::Question>& questions, const char* name) {
      for (const nb::handle question : known.attr(name)) {
        const nb::object object = question[0], key = question[1];
        const nb::object of = key.is_none() ? object : nb::getattr(object, "__dict__");
        questions.push_back({kept(of), kept(key), kept(question[2])});
      }
    };
    ask(set.of_keys, "QUIET_KEYS");
    ask(set.others, "QUIET");
    set.Tensor = kept(tensor);
    set.Parameter = kept(parameter);
    set.autocasts = kept(known.attr("autocasts"));
    set.is_inference_mode_enabled = kept(known.attr("is_inference_mode_enabled"));
    return (set.implementation || set.in_c.from_object) && (set.in_c.wrap || set.in_c.to_object);
  });
  // Called before inference mode, and in it: notes what that changes, whatever else is on.
  m.def("note_inference_mode", [] {
    if (torch().dispatch_keys.empty()) return;
    const Torch::DispatchKeys keys = dispatch_keys();
    torch().inference_mode.included ^= keys.included;
    torch().inference_mode.excluded ^= keys.excluded;
  });
  m.def("address", [](const char* symbol) { return reinterpret_cast<uintptr_t>(find_symbol(symbol)); });
}

} // namespace elementwise::python
