// If a functor over rows calls a reduction in a function of elements, that is an error, instead of wrong numbers.
#include <cstdio>
#include <string>

#include "elementwise/elementwise.h"
#include "elementwise/rows/kernels.h"

namespace {

using namespace elementwise;

static_assert(Signature("f(Tensor x, SymInt[] sizes)").fault == Fault::none);
static_assert(Signature("f(Tensor x, SymInt[] sizes, SymInt[] others)").fault == Fault::sizes);
static_assert(Signature("f(Tensor x, int dim, SymInt[] sizes)").fault == Fault::sizes);

// The result overwrites the kept row, so an element of that row cannot be read.
struct ReadsKept {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x) const {
    const auto kept = row.keep([](C x) { return 2 * x; }, x);
    return row.each([&](C x) { return x - row.at(kept, 0); }, kept);
  }
};
struct Sums {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x) const {
    return row.each([&](C y) { return y / row.sum(x); }, x);
  }
};
struct Right {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x) const {
    const C sum = row.sum(x);
    return row.each([&](C y) { return y / sum + row.at(x, 0); }, x);
  }
};

struct Keeps {
  template <class C, class Row>
  ELEMENTWISE_FUNCTION Elements<C> operator()(Row& row, Elements<C> x) const {
    return row.each([&](C y) { return row.keep([](C x) { return 2 * x; }, x), y; }, x);
  }
};

// Computes one row. Returns the mistake for which it is refused, or "right".
template <class Functor, bool is_recorded = false>
std::string sentence() {
  using Recorded = rows::Derived<rows::Original<Functor, 1>, rows::Role::recorded>;
  float x[3] = {1, 2, 3}, y[3], kept[3];
  double reduced[2];
  void *data[] = {y, x}, *data_of_recorded[] = {y, &reduced[0], &reduced[1], x};
  const auto scratch = [](void* run, int, int64_t) { return run; };
  const cpu::OneRow row{3, 0, is_recorded ? data_of_recorded : data, nullptr, scratch, kept};
  try {
    passes::RowLoop<Kernel<std::conditional_t<is_recorded, Recorded, Functor>, Kind::tensor>, float>::compute(row);
  } catch (const cpu::RowError& found) {
    return found.mistake;
  }
  return y[1] == 2.0f / 6 + 1 ? "right" : "wrong"; // what Right computes
}

} // namespace

int main() {
  const std::string expected =
      "a function of elements called a reduction, row.each, row.keep or row.at: call it before, and use its result in "
      "the function";
  bool passes = true;
  for (const std::string& wrong :
       {sentence<ReadsKept>(), sentence<Sums>(), sentence<Keeps>(), sentence<Keeps, true>()}) {
    std::printf("a mistake: %s\n", wrong.c_str());
    passes = passes && wrong == expected;
  }
  for (const std::string& right : {sentence<Right>(), sentence<Right, true>()}) {
    std::printf("no mistake: %s\n", right.c_str());
    passes = passes && right == "right";
  }
  return passes ? 0 : 1;
}
