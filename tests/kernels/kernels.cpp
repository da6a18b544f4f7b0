// Tests the CPU kernels alone: compares results with exact arithmetic, in every layout, as a whole and in parts, and
// checks that nothing is written beside them. It prints a digest of the bits of each case, which is the same on every
// machine. MULADD_NB_SIMD names the instruction set; the default is the best one. If this machine cannot run it, the
// status is 77, "skipped". Compiled with elementwise/tests/host.h, this tests the CUDA kernels.
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "elementwise/cpu/launch.h"
#include "operators.h"
#ifdef ELEMENTWISE_CUDA_ON_HOST
#include "elementwise/cuda/launch.h"
#endif

namespace {

using namespace elementwise;

// ---- The bits of a number in the four formats.

template <class T>
struct Format {
  static constexpr int bits = 8 * sizeof(T);
  static constexpr int digits = // bits of the significand, including the one that is not stored
      std::is_same_v<T, double>    ? 53
      : std::is_same_v<T, float>   ? 24
      : std::is_same_v<T, float16> ? 11
                                   : 8;
  static constexpr uint64_t fraction = (uint64_t{1} << (digits - 1)) - 1;
  static constexpr int exponents = 1 << (bits - digits); // the last one is for infinity and NaN
  static constexpr int bias = exponents / 2 - 1;
};

template <class T>
uint64_t bits_of(T x) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(x)); // little-endian, as every machine that torch runs on
  return bits;
}

template <class T>
double decode(T x) {
  using F = Format<T>;
  const uint64_t bits = bits_of(x), fraction = bits & F::fraction;
  const int exponent = bits >> (F::digits - 1) & (F::exponents - 1);
  double magnitude = fraction ? NAN : INFINITY;
  if (exponent < F::exponents - 1) {
    const uint64_t significand = exponent ? fraction | (F::fraction + 1) : fraction;
    magnitude = std::ldexp(static_cast<double>(significand), std::max(exponent, 1) - F::bias - (F::digits - 1));
  }
  return bits >> (F::bits - 1) ? -magnitude : magnitude;
}

// ---- Exact arithmetic, without fma and without the conversions of the kernels.

template <class C>
struct Wider { // holds a product of two C exactly, and has more than two digits to spare
  using Float = double;
  using Bits = uint64_t;
};
template <>
struct Wider<double> {
#if LDBL_MANT_DIG == 113
  using Float = long double;
#else
  __extension__ using Float = __float128;
#endif
  __extension__ using Bits = unsigned __int128;
};

// a * b + c, rounded once: the sum is rounded to odd in the wider type, so that the second rounding gives the correctly
// rounded result (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
template <class C>
C fused(C a, C b, C c) {
  using Float = typename Wider<C>::Float;
  const Float product = static_cast<Float>(a) * b, addend = c;
  Float sum = product + addend;
  if (!(sum - sum == 0)) return static_cast<C>(sum); // infinity or NaN
  const Float part = sum - product, error = (product - (sum - part)) + (addend - part);
  if (error != 0) {
    typename Wider<C>::Bits bits;
    std::memcpy(&bits, &sum, sizeof(bits));
    if (bits % 2 == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
    std::memcpy(&sum, &bits, sizeof(bits));
  }
  return static_cast<C>(sum);
}

// x rounded to the nearest number of T, ties to even; infinity if x is too large for T.
template <class T>
double nearest(double x) {
  using F = Format<T>;
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1, std::max(std::ilogb(x), 1 - F::bias) - (F::digits - 1));
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::ilogb(rounded) > F::bias ? std::copysign(INFINITY, x) : rounded;
}

// An operator by its index in the list, and its exact result. x has three numbers; the last is a parameter or an
// element.
template <class C>
struct Case {
  const char* name;
  size_t kernel;
  int inputs;
  C (*exact)(const C* x);
};

template <class C>
std::vector<Case<C>> cases() {
  return {
      {"muladd", 0, 2, [](const C* x) { return fused<C>(x[0], x[1], x[2]); }},
      {"muladd3", 1, 3, [](const C* x) { return fused<C>(x[0], x[1], x[2]); }},
      {"mul", 2, 2, [](const C* x) { return fused<C>(x[0], x[1], -0.0); }}, // adding -0.0 keeps the sign of a zero
      {"add", 3, 2, [](const C* x) { return fused<C>(x[0], 1, x[1]); }},
  };
}

// ---- Random numbers: most are close to 1, so that sums cancel; the others cover all other kinds.

uint64_t random_bits() { // splitmix64, from the same seed on every machine
  static uint64_t state = 0;
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class T>
T random_number() {
  using F = Format<T>;
  uint64_t exponent = F::bias - 4 + random_bits() % 9, fraction = random_bits() & F::fraction;
  switch (random_bits() % 16) {
    case 0: // zero
      exponent = fraction = 0;
      break;
    case 1: // subnormal
      exponent = 0;
      break;
    case 2: // large
      exponent = F::exponents - 2;
      break;
    case 3: // infinity
      exponent = F::exponents - 1;
      fraction = 0;
      break;
    case 4: // NaN
      exponent = F::exponents - 1;
      fraction = (F::fraction + 1) / 2;
      break;
    case 5: // any
      exponent = random_bits() % (F::exponents - 1);
      break;
  }
  const uint64_t bits = (random_bits() & 1) << (F::bits - 1) | exponent << (F::digits - 1) | fraction;
  T number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// ---- Layouts: sizes and strides, the outermost dimension first. There are `offset` elements before the first one.

struct Layout {
  const char* name;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides[3]; // of the output and two inputs; a third input has the strides of the first one
  int64_t offset = 0;
};

std::vector<Layout> layouts() {
  std::vector<Layout> all = {
      {"scalar", {}, {{}, {}, {}}},
      {"long", {9'000}, {{1}, {1}, {1}}},
      {"strided", {3'000}, {{1}, {2}, {3}}},
      {"strided out", {3'000}, {{2}, {1}, {1}}},
      {"rows", {30, 100}, {{104, 1}, {100, 1}, {111, 1}}},
      {"narrow rows", {200, 5}, {{7, 1}, {5, 1}, {9, 1}}},
      {"short rows", {60, 27}, {{27, 1}, {54, 1}, {40, 1}}},
      {"transposed", {70, 90}, {{90, 1}, {1, 70}, {90, 1}}},
      {"transposed out", {70, 90}, {{1, 70}, {90, 1}, {90, 1}}},
      {"expanded", {33, 50}, {{50, 1}, {0, 2}, {1, 0}}},
      {"expanded scalar", {1'500}, {{1}, {0}, {0}}},
      {"permuted", {3, 5, 7, 11}, {{385, 77, 11, 1}, {1, 3, 15, 105}, {77, 231, 1, 7}}},
      {"channels last", {2, 20, 6, 6}, {{720, 1, 120, 20}, {720, 1, 120, 20}, {720, 36, 6, 1}}},
  };
  for (int64_t n = 1; n <= 70; n++) all.push_back({"tails", {n}, {{1}, {1}, {1}}, n % 5});
  return all;
}

// ---- One case.

bool passed = true;

struct Digest {
  uint64_t value = 0xcbf29ce484222325; // FNV-1a
  void add(uint64_t bits) {
    for (int i = 0; i < 64; i += 8) value = (value ^ (bits >> i & 0xff)) * 0x100000001b3;
  }
};

template <class T>
struct Memory {
  Memory(const Layout& layout, const std::vector<int64_t>& strides, bool filled) : strides(strides.data()) {
    int64_t last = layout.offset;
    for (size_t d = 0; d < strides.size(); d++) last += strides[d] * (layout.sizes[d] - 1);
    elements.resize(last + 1); // of exact size, so that a sanitizer sees overruns
    std::memset(elements.data(), 0x5a, elements.size() * sizeof(T));
    for (int64_t i = layout.offset; i <= last && filled; i++) elements[i] = random_number<T>();
  }
  const int64_t* strides;
  std::vector<T> elements;
};

template <class T>
void run(
    const Layout& layout, const Case<compute_t<T>>& op, double c, [[maybe_unused]] bool stream, bool in_parts,
    Digest* digest) {
  using C = compute_t<T>;
  std::vector<Memory<T>> operands; // the output, then the inputs
  for (int k = 0; k <= op.inputs; k++) operands.emplace_back(layout, layout.strides[k == 3 ? 1 : k], k > 0);
  std::vector<const int64_t*> strides;
  std::vector<void*> data;
  for (Memory<T>& operand : operands) {
    strides.push_back(operand.strides);
    data.push_back(operand.elements.data() + layout.offset);
  }
  const Plan plan = make_plan(operands.size(), layout.sizes.size(), layout.sizes.data(), strides.data());
  const Number number{.real = c};
  const Task task{op.kernel, kOrdinal<T>, &number, plan, data.data()};
#ifdef ELEMENTWISE_CUDA_ON_HOST
  cuda::most_blocks = in_parts ? 2 : 1 << 20;
  cuda::launchers[op.kernel].elements(task, nullptr);
#else
  const cpu::Computer computer = cpu::isa().computers[op.kernel](kOrdinal<T>);
  const cpu::Tiles tiles(plan, computer, data.data());
  const int64_t step = in_parts ? 1 : tiles.total;
  for (int64_t tile = 0; tile < tiles.total; tile += step)
    cpu::Run(task, computer, tiles, stream && tiles.can_stream(computer, data.data(), plan.operands))(
        tile, tile + step);
#endif

  std::vector<bool> written(operands[0].elements.size());
  std::vector<int64_t> index(layout.sizes.size());
  for (int64_t left = plan.numel(); left > 0; left--) {
    const auto at = [&](size_t k) {
      int64_t offset = layout.offset;
      for (size_t d = 0; d < index.size(); d++) offset += index[d] * strides[k][d];
      return offset;
    };
    C x[3] = {0, 0, static_cast<C>(c)};
    for (int k = 1; k <= op.inputs; k++) x[k - 1] = static_cast<C>(decode(operands[k].elements[at(k)]));
    const T result = operands[0].elements[at(0)];
    const double want = nearest<T>(op.exact(x)), got = decode(result);
    const bool both_nan = want != want && got != got; // any NaN is right
    if (!both_nan && bits_of(want) != bits_of(got)) {
      if (passed)
        std::fprintf(
            stderr, "%s, %s: %a, %a and %a give %a, not %a\n", op.name, layout.name, double{x[0]}, double{x[1]},
            double{x[2]}, got, want);
      passed = false;
    }
    digest->add(both_nan ? ~uint64_t{0} : bits_of(result));
    written[at(0)] = true;
    for (size_t d = index.size(); d-- > 0 && ++index[d] == layout.sizes[d];) index[d] = 0;
  }
  T untouched;
  std::memset(&untouched, 0x5a, sizeof(untouched));
  for (size_t i = 0; i < written.size(); i++) {
    if (written[i] || bits_of(operands[0].elements[i]) == bits_of(untouched)) continue;
    if (passed) std::fprintf(stderr, "%s: element %zu, beside the result, was written\n", layout.name, i);
    passed = false;
  }
}

template <class T>
void run_all(const char* name) {
  for (const auto& op : cases<compute_t<T>>()) {
    Digest digest;
    for (const Layout& layout : layouts())
      for (const bool stream : {false, true})
        for (const bool in_parts : {false, true})
          run<T>(layout, op, stream == in_parts ? 0.3 : -1.0, stream, in_parts, &digest);
    std::printf("%-8s %-8s %016llx\n", name, op.name, static_cast<unsigned long long>(digest.value));
  }
}

} // namespace

int main() {
  try {
    std::fprintf(stderr, "%s\n", cpu::isa().name);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 77;
  }
  run_all<float16>("float16");
  run_all<bfloat16>("bfloat16");
  run_all<float>("float32");
  run_all<double>("float64");
  return passed ? 0 : 1;
}
