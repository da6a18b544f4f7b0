// Records a call with a node of ATen, which is in C++, in place of one in Python (see _layer/aten_node.py).
//
// The kernel of an operator of ATen at the key Autograd makes a node. Then it redispatches below autograd, with the
// keys that it was called with. We call it with a key at which only Computed::take is registered. So that kernel runs
// in place of ATen's, and returns a result that this library has computed.
#pragma once

#include <torch/csrc/stable/library.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "ask_torch.h"

namespace elementwise::python {

// A result that this thread has computed, and that an operator of ATen is about to record. Hooks of the program may run
// before that, and record other calls.
class Computed {
 public:
  Computed(const Signature& signature, OwnTensor result, const AtenTensorHandle* tensors)
      : signature_(signature), result_(std::move(result)) {
    for (int i = 0; i < signature.tensors; i++) tensors_[i] = implementation(Tensor(tensors[i]));
  }
  Computed(const Computed&) = delete;
  ~Computed() {
    innermost() = outer_;
  }

  bool is_taken() const {
    return !result_.get();
  }

  [[noreturn]] void fail(const char* why) const {
    throw std::runtime_error(std::string(signature_.name) + ": " + why);
  }

  // The kernel. It has the arguments of ATen's operator, all tensors.
  static void take(StableIValue* stack, uint64_t count, uint64_t) {
    Computed* const computed = innermost();
    bool are_same = true;
    for (uint64_t i = 0; i < count; i++) {
      const OwnTensor given(stack[i]);
      are_same = are_same && computed && implementation(given) == computed->tensors_[i];
    }
    if (!computed || computed->is_taken())
      throw std::runtime_error("this kernel is only for the small calls of a library");
    if (!are_same) computed->fail("a hook has exchanged the tensors that are being recorded");
    stack[0] = computed->result_.release();
  }

 private:
  static Computed*& innermost() {
    thread_local Computed* of_thread = nullptr;
    return of_thread;
  }

  const Signature& signature_;
  OwnTensor result_;
  const void* tensors_[kMostRedispatched];
  Computed* const outer_ = std::exchange(innermost(), this);
};

// An operator of ATen with the same derivative, whose arguments are the tensors of a call.
struct AtenNode {
  void* redispatch = nullptr; // see python::redispatch; null if there is no operator
  uint64_t keys = 0;
  Noted kernels; // at the key Autograd, and at the key of Computed::take

  // Returns the result with the node. Hooks of the program may be called.
  nanobind::object record(const Signature& signature, OwnTensor result, const AtenTensorHandle* tensors) const {
    const Computed computed(signature, std::move(result), tensors);
    nanobind::object recorded = object_of(python::redispatch(redispatch, keys, tensors, signature.tensors));
    if (!computed.is_taken()) computed.fail("the operator that aten names has not called its own kernel");
    return recorded;
  }
};

inline void define_aten_node(nanobind::module_& m) {
  // Registers Computed::take for an operator of ATen at a dispatch key, for as long as the process lives.
  m.def("take_computed", [](const std::string& op, const std::string& key) {
    using torch::stable::detail::StableLibrary;
    (new StableLibrary(StableLibrary::Kind::IMPL, "aten", key.c_str(), __FILE__, __LINE__))
        ->impl(op.c_str(), Computed::take);
  });
}

} // namespace elementwise::python
