// The arithmetic: what is computed for one element, on the host and on the device.
//
// An operator is one functor here, (a, b) -> result, in the compute type. float32 and float64 compute
// in themselves; float16 and bfloat16 compute in float32 and are rounded once more when they are
// stored. std::fma rounds once, by definition, with and without an FMA instruction; the build turns off
// contraction, so that nothing else is ever fused behind our back.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define MULADD_NB_HOST_DEVICE __host__ __device__
#else
#define MULADD_NB_HOST_DEVICE
#endif

namespace muladd_nb {

enum class Dtype { float16, bfloat16, float32, float64 };
enum class Function { muladd, mul, add };

inline int64_t element_size(Dtype dtype) {
  return dtype == Dtype::float64 ? 8 : dtype == Dtype::float32 ? 4 : 2;
}

// Storage of the 16-bit types; each backend converts them with its own instructions.
struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

template <class T>
using compute_t = std::conditional_t<sizeof(T) == 2, float, T>;

// The functors stand in an unnamed namespace because they are compiled once per instruction set: with
// external linkage the linker would keep one copy, and it might be the one a machine cannot run. For nvcc it
// has a name: an unnamed one's is a hash of the source's path, and no two builds of the wheel would be the same.
#ifdef __CUDACC__
inline namespace device {
#else
namespace {
#endif

template <class C>
struct MulAdd {
  C c;
  MULADD_NB_HOST_DEVICE C operator()(C a, C b) const {
    return std::fma(a, b, c);
  }
};

// C may also be a vector of numbers: an operator on it is one on each lane.
struct Mul {
  template <class C>
  MULADD_NB_HOST_DEVICE C operator()(C a, C b) const {
    return a * b;
  }
};

struct Add {
  template <class C>
  MULADD_NB_HOST_DEVICE C operator()(C a, C b) const {
    return a + b;
  }
};

// Calls body(functor) with the functor of `function`; c is rounded to the compute type here, first.
template <class C, class Body>
void with_functor(Function function, double c, const Body& body) {
  switch (function) {
    case Function::muladd:
      return body(MulAdd<C>{static_cast<C>(c)});
    case Function::mul:
      return body(Mul{});
    case Function::add:
      return body(Add{});
  }
}

// Calls body(T{}) with the storage type of `dtype`.
template <class Body>
void with_dtype(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::float16:
      return body(float16{});
    case Dtype::bfloat16:
      return body(bfloat16{});
    case Dtype::float32:
      return body(float{});
    case Dtype::float64:
      return body(double{});
  }
}

} // namespace
} // namespace muladd_nb
