// Tests elementwise/python/reads.h, which finds the arguments that the partial derivatives of a functor read.
#include "elementwise/python/reads.h"

#include <cstdio>
#include <cstdlib>

namespace {

using namespace elementwise;

// A functor that calls a lambda with the same arguments.
#define FUNCTOR(Name, result, ...)    \
  struct Name {                       \
    template <class C>                \
    C operator()(__VA_ARGS__) const { \
      result;                         \
    }                                 \
  };

FUNCTOR(Product, return x * y, C x, C y)
FUNCTOR(MulAdd, return elementwise::fma(x, y, z), C x, C y, C z)
FUNCTOR(SiluMul, return x * elementwise::sigmoid(x) * y, C x, C y)
FUNCTOR(Negated, return y - x, C x, C y)
FUNCTOR(Root, return elementwise::sqrt(x) / y, C x, C y)
// A derivative of a branch reads what the condition compares and both sides read, or nothing if both sides have the
// same constant.
FUNCTOR(Leaky, return x > 0 ? x : y * x, C x, C y)
FUNCTOR(Shifted, return x + elementwise::max(y, C(0)), C x, C y)
FUNCTOR(Sides, return x > z ? y : 2 * y, C x, C y, C z)
FUNCTOR(Chosen, return flag ? x * y : x + y, C x, C y, bool flag)
FUNCTOR(Given, return bias ? x * *bias : x, C x, Optional<C> bias)
FUNCTOR(Clipped, return elementwise::clamp(x, -y, y), C x, C y)
FUNCTOR(
    Loop, C s = 0; while (x > 1) {
      if (y > 0) s = s + y;
      x = x / 2;
    } return s * x,
                   C x, C y)
FUNCTOR(Halved, while (x > 1) x = x / 2; return x * y, C x, C y)
FUNCTOR(Rounded, return elementwise::detach(elementwise::rint(x)) + (x - elementwise::detach(x)), C x)
FUNCTOR(Weighted, return elementwise::detach(x * y) * x, C x, C y)
// Which of more than ten conditions hold is not traced: then it reads everything.
FUNCTOR(Steps, C sum = 0; for (int k = 0; k < 12; k++) sum = sum + (x > k ? y : C(1)); return sum * z, C x, C y, C z)
// If there are several results, it reads what the derivative of any of them reads, and is never a constant.
struct Several {
  template <class C>
  Results<C, bool, C> operator()(C x, C y, C z) const {
    return {x * y - z, {x > y, {x + z}}};
  }
};
struct Sloped {
  template <class C>
  Results<C, C> operator()(C x, C y) const {
    return {y > 0 ? x : 2 * x, {x}};
  }
};
// Functors that cannot be traced read everything. Such a functor does not run on with an integer that is not known.
FUNCTOR(Odd, int64_t n = static_cast<int64_t>(x); while (n % 2 == 0) n /= 2; return x * C(5040 % n) * y, C x, C y)
// The kernel of the gradient reads its constants, if these differ between the types that it computes in.
FUNCTOR(Epsilon, return x * std::numeric_limits<C>::epsilon() + y, C x, C y)
FUNCTOR(Halves, return x * C(std::is_same_v<math::primal_t<C>, double> ? 0.25 : 0.5), C x)
FUNCTOR(Same, return x * C(sizeof(math::primal_t<C>) >= 4 ? 0.5 : 2), C x)
FUNCTOR(Counted, return n > 1 ? x * y : x, C x, C y, int64_t n)
FUNCTOR(Whole, return static_cast<int64_t>(x) * y, C x, C y)
FUNCTOR(Masked, return x * static_cast<C>(y), C x, int8_t y)

// The arguments that a derivative adds have names of their own, also after the tenth.
constexpr Signature kOfMany("many(Tensor x, Tensor y)");
constexpr auto kGradients = derivatives::declaration<kOfMany, 12, 0>();
static_assert(
    std::string_view(kGradients.text).ends_with("Tensor grad__9, Tensor grad__10, Tensor grad__11, int needs__)"));

template <class F, Literal declaration>
void expect(size_t by, uint64_t arguments, double constant = 0) {
  using Op = Operator<declaration, F, functional | differentiable>;
  const Reads got = reads_of<Op>(std::array<int, 1>{static_cast<int>(by)});
  if (got.arguments == arguments && got.constant == constant) return;
  std::fprintf(
      stderr, "%s by %zu reads %llx and is %g, and not %llx and %g\n", declaration.text, by,
      static_cast<unsigned long long>(got.arguments), got.constant, static_cast<unsigned long long>(arguments),
      constant);
  std::exit(1);
}

constexpr uint64_t kX = 1, kY = 2, kZ = 4;

} // namespace

int main() {
  expect<Product, "product(Tensor x, Tensor y)">(0, kY);
  expect<Product, "product(Tensor x, Tensor y)">(1, kX);
  expect<Product, "scaled(Tensor x, float y)">(0, kY);
  expect<MulAdd, "muladd(Tensor x, Tensor y, Tensor z)">(0, kY);
  expect<MulAdd, "muladd(Tensor x, Tensor y, Tensor z)">(2, 0, 1);
  expect<SiluMul, "silu_mul(Tensor x, Tensor y)">(0, kX | kY);
  expect<SiluMul, "silu_mul(Tensor x, Tensor y)">(1, kX);
  expect<Negated, "negated(Tensor x, Tensor y)">(0, 0, -1);
  expect<Root, "root(Tensor x, Tensor y)">(0, kX | kY);
  expect<Leaky, "leaky(Tensor x, float y)">(0, kX | kY);
  expect<Shifted, "shifted(Tensor x, Tensor y)">(0, 0, 1);
  expect<Shifted, "shifted(Tensor x, Tensor y)">(1, kY);
  expect<Sides, "sides(Tensor x, Tensor y, Tensor z)">(0, 0);
  expect<Sides, "sides(Tensor x, Tensor y, Tensor z)">(1, kX | kZ);
  expect<Chosen, "chosen(Tensor x, Tensor y, bool flag)">(0, kY | kZ);
  expect<Given, "given(Tensor x, Tensor? bias=None)">(0, kY);
  expect<Given, "given(Tensor x, Tensor? bias=None)">(1, kX | kY);
  expect<Clipped, "clipped(Tensor x, Tensor y)">(0, kX | kY);
  expect<Halved, "halved(Tensor x, Tensor y)">(1, Reads::kAll);
  expect<Rounded, "rounded(Tensor x)">(0, 0, 1);
  expect<Weighted, "weighted(Tensor x, Tensor y)">(0, kX | kY);
  expect<Weighted, "weighted(Tensor x, Tensor y)">(1, 0);
  expect<Steps, "steps(Tensor x, Tensor y, Tensor z)">(2, Reads::kAll);
  expect<Several, "several(Tensor x, Tensor y, Tensor z)">(0, kX | kY);
  expect<Several, "several(Tensor x, Tensor y, Tensor z)">(2, kX | kY);
  expect<Sloped, "sloped(Tensor x, Tensor y)">(0, kY);
  expect<Counted, "counted(Tensor x, Tensor y, int n)">(0, Reads::kAll);
  expect<Whole, "whole(Tensor x, Tensor y)">(1, Reads::kAll);
  expect<Masked, "masked(Tensor x, Tensor y)">(0, Reads::kAll);
  expect<Odd, "odd(Tensor x, Tensor y)">(1, Reads::kAll);
  expect<Epsilon, "epsilon(Tensor x, Tensor y)">(0, Reads::kAll);
  expect<Epsilon, "epsilon(Tensor x, Tensor y)">(1, 0, 1);
  expect<Halves, "halves(Tensor x)">(0, Reads::kAll);
  expect<Same, "same(Tensor x)">(0, 0, 0.5);
  expect<Loop, "loop(Tensor x, Tensor y)">(0, Reads::kAll);
  return 0;
}
