// Compares the CUDA kernels, compiled by the host compiler, with the CPU kernels: they must return the same bits for
// each operator and dtype, and write nothing beside the result. The test works for any list of operators.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "elementwise/cpu/launch.h"
#include "elementwise/cpu/rows.h"
#include "elementwise/cuda/launch.h"
#include "elementwise/derivatives.h"
#include "elementwise/settings.h"
#include "operators.h"

namespace {

using namespace elementwise;

int failures = 0, cases = 0;

uint64_t random_bits() { // splitmix64, from the same seed on every machine
  static uint64_t state = 0;
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

int64_t random_below(int64_t n) {
  return static_cast<int64_t>(random_bits() % n);
}

// Half of the floating-point numbers have random bits; the others have exponents close to that of 1. Integers are small
// and not zero, because operators may be undefined for others.
template <class T>
T random_number() {
  if constexpr (std::is_same_v<T, bool>) {
    return random_bits() & 1;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(1 + random_below(100));
  } else {
    constexpr int fraction = std::is_same_v<T, double>    ? 52
                             : std::is_same_v<T, float>   ? 23
                             : std::is_same_v<T, float16> ? 10
                                                          : 7;
    constexpr uint64_t exponents = (uint64_t{1} << (8 * sizeof(T) - 1 - fraction)) - 1;
    uint64_t bits = random_bits();
    if (random_bits() & 1) bits = (bits & ~(exponents << fraction)) | ((exponents / 2 - random_below(4)) << fraction);
    T number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }
}

// NaNs count as the same, because which NaN a kernel returns is not specified.
template <class T>
bool same(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x && y != y) return true;
  } else if constexpr (kFloat16Bit<T>) {
    const int infinity = std::is_same_v<T, float16> ? 0x7c00 : 0x7f80;
    if ((x.bits & 0x7fff) > infinity && (y.bits & 0x7fff) > infinity) return true;
  }
  return std::memcmp(&x, &y, sizeof(x)) == 0;
}

// How to fill and to compare elements of a type.
struct Storage {
  int64_t bytes;
  void (*fill)(char* first, int64_t n, int64_t step);
  // The same for an operator over rows. Numbers near 1 can be summed; an int64 is a place in a row, or -100.
  void (*fill_row)(char* first, int64_t n, int64_t size, bool are_near_one);
  bool (*same)(const char* first, const char* other, int64_t n, int64_t step);
};

template <class T>
bool is_near_one(T x) {
  constexpr int fraction = std::is_same_v<T, float16> ? 10 : 7, one = std::is_same_v<T, float16> ? 15 : 127;
  if constexpr (std::is_floating_point_v<T>)
    return std::abs(x) < 16 && std::abs(x) > 0.01;
  else if constexpr (kFloat16Bit<T>)
    return std::abs(((x.bits & 0x7fff) >> fraction) - one) < 4;
  else
    return true;
}

template <class T>
constexpr Storage kElements = {
    sizeof(T),
    [](char* first, int64_t n, int64_t step) {
      for (int64_t i = 0; i < n; i++) reinterpret_cast<T*>(first)[i * step] = random_number<T>();
    },
    [](char* first, int64_t n, int64_t size, bool are_near_one) {
      for (T* x = reinterpret_cast<T*>(first); n > 0; n--, x++) {
        do *x = random_number<T>();
        while (are_near_one && !is_near_one(*x));
        if constexpr (std::is_same_v<T, int64_t>)
          *x = random_below(8) ? random_below(std::max<int64_t>(1, size)) : -100;
      }
    },
    [](const char* first, const char* other, int64_t n, int64_t step) {
      bool equal = true;
      for (int64_t i = 0; i < n; i++)
        equal &= same(reinterpret_cast<const T*>(first)[i * step], reinterpret_cast<const T*>(other)[i]);
      return equal;
    },
};

// Sizes, and the strides of each operand, the outermost dimension first; results come before inputs.
struct Layout {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides[kMaxOperands];

  int64_t extent(int operand) const {
    int64_t last = 0;
    for (size_t d = 0; d < sizes.size(); d++) last += strides[operand][d] * (sizes[d] - 1);
    return last + 1;
  }
};

// Arguments that are no tensors.
std::array<Number, kMaxArguments> numbers_of(const Signature& signature) {
  std::array<Number, kMaxArguments> numbers{};
  Number* number = numbers.data();
  for (const Argument& argument : signature.arguments) {
    if (argument.is_tensor()) continue;
    const auto n = static_cast<int64_t>(random_below(5));
    if (argument.kind == Kind::real) {
      (number++)->real = 0.3 + 0.4 * static_cast<double>(n);
    } else {
      (number++)->integer = n;
    }
  }
  return numbers;
}

// Runs both kernels for the type T: the CPU's on `memory`, and CUDA's on the copy `other`.
template <
    class Kernel, class T, class R = typename Kernel::template Results<T>,
    class X = typename Kernel::template Inputs<T>>
struct On;
template <class Kernel, class T, class... R, class... X>
struct On<Kernel, T, List<R...>, List<X...>> {
  static constexpr int kResults = sizeof...(R), kOperands = kResults + sizeof...(X);
  static constexpr Storage elements[] = {kElements<R>..., kElements<X>...};
  static constexpr bool kInPlace = std::is_same_v<parameters::At<0, List<R...>>, parameters::At<0, List<X...>>>;
  const Signature& signature;
  size_t kernel;
  std::array<Number, kMaxArguments> own = numbers_of(signature);
  const Number* numbers = own.data();

  static Plan plan_of(const Layout& layout) {
    const int64_t* strides[kOperands];
    for (int k = 0; k < kOperands; k++) strides[k] = layout.strides[k].data();
    return make_plan(kOperands, layout.sizes.size(), layout.sizes.data(), strides);
  }

  void cpu(const Plan& plan, void* const* data) const {
    elementwise::cpu::launch(
        {kernel, kOrdinal<T>, numbers, plan, data}, [](int64_t end, int64_t, const auto& body) { body(0, end); });
  }

  void cuda(const Plan& plan, void* const* data) const {
    elementwise::cuda::launchers[kernel].elements({kernel, kOrdinal<T>, numbers, plan, data}, nullptr);
  }

  void expect(bool equal, const char* what, const Layout& layout) const {
    cases++;
    if (equal || failures++) return; // reports only the first failure
    std::fprintf(
        stderr, "%s, %s, dtype %d, %d operands: CUDA gives other bits, shape", signature.declaration.data(), what,
        kOrdinal<T>, kOperands);
    for (const int64_t size : layout.sizes) std::fprintf(stderr, " %lld", static_cast<long long>(size));
    for (int k = 0; k < kOperands; k++) {
      std::fprintf(stderr, ", strides");
      for (const int64_t stride : layout.strides[k]) std::fprintf(stderr, " %lld", static_cast<long long>(stride));
    }
    std::fprintf(stderr, "\n");
  }

  // Compares one call. Each operand begins `offset` elements after the start of its memory. If there are several
  // results, some calls do not write one of them.
  void compare(const char* what, Layout layout, const int* offset, bool in_place) const {
    const int chosen = static_cast<int>(random_below(2 * kResults));
    const int unwritten = kResults > 1 && !in_place && chosen < kResults ? chosen : -1;
    if (unwritten >= 0) std::ranges::fill(layout.strides[unwritten], 0);
    const Plan plan = plan_of(layout);
    std::unique_ptr<char[]> memory[kOperands], other[kOperands]; // of exact size, so that a sanitizer sees overruns
    void *data[kOperands], *other_data[kOperands];
    for (int k = 0; k < kOperands; k++) {
      const int64_t n = layout.extent(k) + offset[k], bytes = n * elements[k].bytes;
      memory[k] = std::make_unique<char[]>(bytes);
      other[k] = std::make_unique<char[]>(bytes);
      elements[k].fill(memory[k].get(), n, 1);
      std::memcpy(other[k].get(), memory[k].get(), bytes);
      data[k] = memory[k].get() + offset[k] * elements[k].bytes;
      other_data[k] = other[k].get() + offset[k] * elements[k].bytes;
      if (k == unwritten) data[k] = other_data[k] = nullptr;
    }
    if (in_place) data[kResults] = data[0], other_data[kResults] = other_data[0];
    cpu(plan, data);
    cuda(plan, other_data);
    bool equal = true;
    for (int k = 0; k < kResults; k++)
      equal &= elements[k].same(memory[k].get(), other[k].get(), layout.extent(k) + offset[k], 1);
    expect(equal, what, layout);
  }

  Layout adjacent(std::vector<int64_t> sizes) const {
    Layout layout{std::move(sizes), {}};
    for (int k = 0; k < kOperands; k++) {
      layout.strides[k].resize(layout.sizes.size());
      int64_t stride = 1;
      for (size_t d = layout.sizes.size(); d-- > 0; stride *= layout.sizes[d]) layout.strides[k][d] = stride;
    }
    return layout;
  }

  // Sizes around a vector, a block and several blocks; all pointers are aligned, or all but one.
  void adjacent_elements() const {
    std::vector<int64_t> sizes;
    for (int64_t n = 1; n <= 40; n++) sizes.push_back(n);
    for (int64_t n = 256; n <= 8192; n *= 2)
      for (const int64_t around : {-1, 0, 1, 9}) sizes.push_back(n + around);
    for (const int64_t n : sizes)
      for (int unaligned = -1; unaligned < kOperands; unaligned++) {
        int offset[kOperands] = {};
        if (unaligned >= 0) offset[unaligned] = static_cast<int>(1 + n % 3);
        elementwise::cuda::most_blocks = n % 4 == 0 ? std::numeric_limits<int>::max() : n % 4;
        compare("adjacent", adjacent({n}), offset, kInPlace && n % 5 == 0 && unaligned < 0);
      }
  }

  // Dimensions in random order, with gaps or expanded; grids that are smaller than the work.
  void random_layouts() const {
    for (int i = 0; i < 1000; i++) {
      Layout layout;
      for (int64_t dims = random_below(6), d = 0; d < dims; d++)
        layout.sizes.push_back(1 + random_below(d == 0 ? 40 : 5));
      const bool in_place = kInPlace && i % 8 == 0;
      int offset[kOperands] = {};
      for (int k = 0; k < kOperands; k++) {
        std::vector<size_t> order;
        for (size_t d = 0; d < layout.sizes.size(); d++) order.insert(order.begin() + random_below(d + 1), d);
        layout.strides[k].resize(order.size());
        int64_t stride = 1 + (random_below(4) == 0);
        for (const size_t d : order) {
          const bool expanded = k >= kResults && random_below(4) == 0;
          layout.strides[k][d] = expanded ? 0 : stride;
          if (!expanded) stride = stride * layout.sizes[d] + random_below(2) * random_below(3);
        }
        offset[k] = static_cast<int>(random_below(3));
      }
      if (in_place) layout.strides[kResults] = layout.strides[0], offset[kResults] = offset[0];
      elementwise::cuda::most_blocks = 1 + random_below(3);
      compare("strided", layout, offset, in_place);
    }
    elementwise::cuda::most_blocks = std::numeric_limits<int>::max();
  }

  // Reserved memory: only pages that are touched take space.
  struct Reserved {
    explicit Reserved(int64_t size) : bytes(size) {
      data = static_cast<char*>(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      if (data == MAP_FAILED) std::perror("mmap"), std::exit(1);
    }
    Reserved(const Reserved&) = delete;
    ~Reserved() {
      munmap(data, bytes);
    }
    size_t bytes;
    char* data;
  };

  // Compares only the last elements of a layout: its last row, or the end of that.
  void compare_the_end(const char* what, const Layout& layout) const {
    constexpr int64_t kMost = 257; // at most the elements of the last two blocks
    const int64_t n = std::min(kMost, layout.sizes.empty() ? 1 : layout.sizes.back());
    Layout end{{n}, {}};
    std::vector<std::unique_ptr<Reserved>> memory;
    std::vector<char> expected[kResults];
    void *data[kOperands], *cpu_data[kOperands];
    char* last[kOperands]; // the first of the last elements
    for (int k = 0; k < kOperands; k++) {
      const int64_t stride = layout.strides[k].back(), bytes = elements[k].bytes;
      end.strides[k] = {k < kResults ? 1 : stride};
      memory.push_back(std::make_unique<Reserved>(layout.extent(k) * bytes));
      data[k] = memory[k]->data;
      last[k] = memory[k]->data + (layout.extent(k) - 1 - stride * (n - 1)) * bytes;
      elements[k].fill(last[k], n, stride);
      cpu_data[k] = last[k];
      if (k < kResults) {
        expected[k].resize(n * bytes);
        cpu_data[k] = expected[k].data();
      }
    }
    cpu(plan_of(end), cpu_data);
    elementwise::cuda::ends_alone = true;
    cuda(plan_of(layout), data);
    elementwise::cuda::ends_alone = false;
    bool equal = true;
    for (int k = 0; k < kResults; k++)
      equal &= elements[k].same(last[k], expected[k].data(), n, layout.strides[k].back());
    expect(equal, what, layout);
  }

  void past_32_bits() const {
    constexpr int64_t kLimit = int64_t{1} << 31; // from here on, offsets do not fit into an int
    constexpr int64_t kWidest = std::max({sizeof(R)..., sizeof(X)...});
    compare_the_end("2^31 vectors", adjacent({(kLimit + 513) * 16 / kWidest + 1}));
    for (const int64_t columns : {3, 1000, 1024, 65537})
      for (const int64_t rows : {kLimit / (columns + 1) - 1, 2 * kLimit / columns + 1}) {
        Layout layout = adjacent({rows, columns});
        layout.strides[kResults][0] = columns + 1;
        compare_the_end("2^31 elements in rows", layout);
      }
    for (int far = 0; far < kOperands; far++)
      for (const int64_t stride : {kLimit - 3, kLimit - 2, 2 * kLimit - 2, 2 * kLimit + 11}) {
        Layout layout = adjacent({2, 3});
        for (int k = 0; k < kOperands; k++) layout.strides[k][0] = k == far ? stride : 7;
        compare_the_end("a stride of 2^31", layout);
      }
  }
};

// Whether a kernel over rows computes gradients, and a choice of those that the call does not ask for.
template <class Kernel>
struct GradientsOf {
  static constexpr bool kAre = false, kIsDerived = false;
  static uint32_t unwanted(Number*) {
    return 0;
  }
};
template <class Original, rows::Role role, Kind... kKind>
struct GradientsOf<Kernel<rows::Derived<Original, role>, kKind...>> {
  static constexpr bool kAre = rows::takes_grads(role), kIsDerived = true;
  static uint32_t unwanted(Number* numbers) {
    constexpr Kind kinds[] = {kKind...};
    uint32_t bits = 0;
    if (!kAre) return bits;
    if (role == rows::Role::gradients)
      bits = ~static_cast<uint32_t>(numbers[Original::kNumbers].integer = random_below(8));
    for (int t = 0; t < Original::kTensors; t++)
      if (kinds[Original::arguments[t]] == Kind::absent) bits |= uint32_t{1} << t;
    return bits;
  }
};

// A kernel over rows. Most rows have numbers near 1, so that sums are finite; other rows have any numbers.
struct OnRows {
  const Signature& signature;
  size_t kernel;
  int32_t dtype;
  int results, operands;
  const Storage* elements;
  const int32_t* dtypes;
  const bool *results_of_row, *inputs_of_row;
  bool are_sums, is_derived, may_be_in_place;
  uint32_t (*unwanted)(Number*);

  bool is_of_row(int k) const {
    return k < results ? results_of_row[k] : inputs_of_row[k - results];
  }

  void compare(int64_t size) const {
    rows::Task task{};
    task.index = kernel;
    task.dtype = dtype;
    std::array<Number, kMaxArguments> numbers = numbers_of(signature);
    const uint32_t unwanted = this->unwanted(numbers.data());
    task.numbers = numbers.data();
    task.results = results;
    task.operands = operands;
    task.size = size;
    task.dims = static_cast<int>(random_below(size > 3000 ? 2 : 4));
    for (int d = 0; d < task.dims; d++) {
      task.sizes[d] = random_below(20) ? 1 + random_below(5 - d) : d == 0 ? 40 : 0;
      task.count *= task.sizes[d];
      task.last_size = std::max<int64_t>(1, task.sizes[d]);
    }
    const bool in_place = may_be_in_place && random_below(4) == 0 && !is_of_row(0) && !is_of_row(results);
    task.is_apart = !in_place;
    std::vector<char> memory[kMaxOperands], other[kMaxOperands];
    void *data[kMaxOperands], *other_data[kMaxOperands];
    int64_t extents[kMaxOperands];
    const Storage* of[kMaxOperands];
    for (int k = 0; k < operands; k++) {
      const bool is_float =
          has_16_bits(dtype) && dtypes[k] == dtype && !in_place && random_below(4) == 0; // like a float32 weight
      of[k] = is_float ? &kElements<float> : &elements[k];
      std::vector<int> order; // the innermost first; task.dims is the dimension that is reduced
      for (int d = 0; d < task.dims + !is_of_row(k); d++)
        order.insert(order.begin() + (random_below(2) ? 0 : random_below(static_cast<int64_t>(order.size()) + 1)), d);
      if (is_of_row(k)) task.of_row |= uint32_t{1} << k;
      const bool is_sum = k < results && are_sums, is_plain = is_sum || random_below(2);
      if (is_sum) { // in torch's layout
        if (unwanted >> k & 1) task.unwanted |= uint32_t{1} << k;
        std::sort(order.rbegin(), order.rend());
      }
      task.step[k] = 0;
      int64_t stride = is_plain ? 1 : 1 + random_below(2), last = 0;
      for (const int d : order) {
        const int64_t n = d == task.dims ? size : task.sizes[d];
        const bool is_repeated = (k >= results || is_sum) && n != 1 && random_below(d == task.dims ? 8 : 3) == 0;
        (d == task.dims ? task.step[k] : task.stride[d][k]) = is_repeated ? 0 : stride;
        if (is_repeated && is_sum && !(task.unwanted >> k & 1)) task.summed |= uint32_t{1} << k;
        if (is_repeated) continue;
        last += stride * std::max<int64_t>(0, n - 1);
        stride = stride * n + (is_plain ? 0 : random_below(3));
      }
      if (in_place && k == results) {
        for (int d = 0; d < task.dims; d++) task.stride[d][k] = task.stride[d][0];
        task.step[k] = task.step[0];
        last = extents[0] - 1;
      }
      const bool is_empty = task.count == 0 || (size == 0 && !is_of_row(k));
      extents[k] = is_sum ? (stride == 0 ? 0 : last + 1) : is_empty ? 0 : last + 1;
      task.numel[k] = extents[k];
      task.dtypes[k] = is_float ? kOrdinal<float> : dtypes[k];
      task.bytes[k] = of[k]->bytes;
      memory[k].resize(extents[k] * of[k]->bytes + 64);
      const int64_t shift = random_below(3) ? 0 : of[k]->bytes;
      of[k]->fill_row(memory[k].data() + shift, extents[k], size, random_below(16) > 0);
      if (is_derived && dtypes[k] == kOrdinal<int64_t>) // the operator's own call has checked the places
        for (int64_t i = 0; i < extents[k]; i++) {
          auto& place = reinterpret_cast<int64_t*>(memory[k].data() + shift)[i];
          place = std::max<int64_t>(place, 0);
        }
      other[k] = memory[k];
      data[k] = memory[k].data() + shift;
      other_data[k] = other[k].data() + shift;
    }
    if (in_place) data[results] = data[0], other_data[results] = other_data[0];
    std::copy_n(data, operands, task.data);
    try {
      elementwise::cpu::launch_rows(
          {signature, functional}, task, [](int64_t end, int64_t, const auto& body) { body(0, end); });
    } catch (const std::runtime_error&) { // a place lies outside of its row
      return;
    }
    std::copy_n(other_data, operands, task.data);
    elementwise::cuda::most_blocks = 1 + random_below(4);
    elementwise::cuda::shared_bytes = random_below(3) ? 48 * 1024 : random_below(2) * 2048;
    std::vector<std::vector<std::max_align_t>> scratch;
    elementwise::cuda::launchers[kernel].rows(task, nullptr, [&](int64_t bytes) -> void* {
      scratch.emplace_back(bytes / sizeof(std::max_align_t) + 4);
      void* at = scratch.back().data();
      size_t space = bytes + 64;
      return std::align(64, bytes, at, space);
    });
    bool equal = true;
    for (int k = 0; k < results; k++)
      equal &= of[k]->same(static_cast<char*>(data[k]), static_cast<char*>(other_data[k]), extents[k], 1);
    cases++;
    if (equal || failures++ > 20) return;
    std::fprintf(
        stderr, "%s, dtype %d, %d operands: CUDA gives other bits, %lld rows of %lld, summed %x\n",
        signature.declaration.data(), dtype, operands, static_cast<long long>(task.count), static_cast<long long>(size),
        task.summed);
  }

  void all() const {
    std::vector<int64_t> sizes = {0, 1, 2, 7, 8, 9, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 8193, 20000};
    for (const int64_t around : {16, 32, 64, 128})
      for (const int64_t n : {around - 1, around, around + 1}) sizes.push_back(n);
    const bool has_places = std::find(dtypes, dtypes + operands, kOrdinal<int64_t>) != dtypes + operands;
    for (const int64_t size : sizes) {
      if (size == 0 && is_derived && has_places) continue; // there is none
      for (int i = 0; i < (size < 200 ? 3 : 1); i++) compare(size);
    }
    elementwise::cuda::most_blocks = std::numeric_limits<int>::max();
  }
};

template <class T, class Kernel, class... R, class... X>
void compare_rows(const Signature& signature, size_t place, Kernel, List<R...>, List<X...>) {
  static constexpr Storage elements[] = {kElements<R>..., kElements<X>...};
  static constexpr int32_t dtypes[] = {kOrdinal<R>..., kOrdinal<X>...};
  using Gradients = GradientsOf<Kernel>;
  OnRows{
      signature,
      place,
      kOrdinal<T>,
      sizeof...(R),
      sizeof...(R) + sizeof...(X),
      elements,
      dtypes,
      Kernel::OfResults::of_row,
      Kernel::OfInputs::of_row,
      Gradients::kAre,
      Gradients::kIsDerived,
      !Gradients::kAre && dtypes[0] == dtypes[sizeof...(R)],
      Gradients::unwanted}
      .all();
}

template <class... Operator>
void run_all(List<Operator...>, bool large) {
  size_t place = 0; // the index of a kernel
  [[maybe_unused]] const auto of_kernel = [&]<class Kernel>(const Signature& signature, Kernel) {
    const auto in_one = [&]<class T>(T) {
      if constexpr (parameters::is_of_rows<typename Kernel::Functor>) {
        compare_rows<T>(
            signature, place, Kernel{}, typename Kernel::template Results<T>{}, typename Kernel::template Inputs<T>{});
      } else if constexpr (derivatives::order<typename Kernel::Functor> == 0) {
        const On<Kernel, T> on{signature, place};
        on.adjacent_elements();
        on.random_layouts();
        if (large) on.past_32_bits();
      }
    };
    [&]<class... T>(List<T...>) { (in_one(T{}), ...); }(typename Kernel::Dtypes{});
    place++;
  };
  [[maybe_unused]] const auto of_one = [&]<class... Kernel>(const Signature& signature, List<Kernel...>) {
    (of_kernel(signature, Kernel{}), ...);
  };
  (of_one(Operator::signature, typename Operator::Kernels{}), ...);
}

} // namespace

int main(int argc, char**) { // with any argument, the test uses no large memory
  run_all(WithDerivatives<ELEMENTWISE_LIBRARY::Operators>{}, argc == 1);
  std::fprintf(stderr, "%d cases, %d failed\n", cases, failures);
  return failures > 0;
}
