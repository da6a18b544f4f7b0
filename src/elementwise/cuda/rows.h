// The CUDA kernels of operators over rows. A team of threads (team.h) copies a row to shared memory, 128 bits at a
// time, and converts 16-bit types to float. The functor computes the row there, as on the CPU, and the team stores the
// results. A row that does not fit in shared memory is computed where it is, or in memory of torch if its elements are
// not adjacent or have 16 bits.
#pragma once

#include <cstring>

#include "../rows/kernels.h"
#include "../rows/task.h"

namespace elementwise::cuda {

constexpr int kTeams = 4;     // teams of a block, if a team is a warp
constexpr int kBusy = 512;    // threads that keep a multiprocessor busy
constexpr int kOfThread = 16; // a thread computes at least this many elements of a row
// The most threads of a team, with half of a multiprocessor's registers.
template <class C>
constexpr int kTeamThreads = sizeof(C) == 4 ? 512 : 256;

// The parameters of a kernel.
template <int kOperands, int kNumbers>
struct RowsTask {
  int64_t size, begin, end, last_size; // elements of a row; the first row and the end; size of the last dimension
  int dims;
  uint32_t of_row;   // bit k: operand k has one value for each row
  uint32_t along;    // bit k: operand k is summed along the row
  uint32_t constant; // bit k: operand k is the same for all rows, and a team loads it once
  int64_t sizes[kRowDims], stride[kRowDims][kOperands];
  int64_t step[kOperands], pitch[kOperands]; // from one element to the next; from one row to the next
  void* data[kOperands];
  int32_t dtypes[kOperands], bytes[kOperands];
  int64_t buffer[kOperands];  // bytes from the beginning of a team's memory, or -1: computed where it is
  std::byte* memory;          // of all teams; null: it is shared memory
  int64_t of_team;            // bytes of each team's memory
  int64_t kept_rows, of_kept; // how many rows the functor keeps, at the beginning of that memory; bytes of each
  Number numbers[kNumbers + 1];
};
static_assert(sizeof(RowsTask<kMaxOperands, kMaxArguments>) <= kParameterBytes);

// Tells the compiler that a tensor is in global memory. Otherwise it uses generic loads and stores, which also reach
// shared memory.
template <class T>
__device__ T* global(T* x) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(x));
#endif
  return x;
}

// Starts to copy 128 bits to shared memory. No register holds them, so a thread does not wait before it starts the next
// copy. `wait_for_copies` waits for all. The copy goes through the L1 cache (.ca), because all teams read the same
// weights: without it (.cg), rms_norm of 4096 x 1024 took 21 us in place of 12.
__device__ inline void start_copy(const void* from, void* to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
#else
  std::memcpy(__builtin_assume_aligned(to, 16), __builtin_assume_aligned(from, 16), 16);
#endif
}
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Calls take(i, read(i)) for each i that is `begin`, or a multiple of the number of threads later, and below `end`. It
// reads four before it takes the first, also at the end, because a read takes long.
__device__ void read_in_fours(int64_t begin, int64_t end, const auto& read, const auto& take) {
  const int64_t step = passes::threads();
#pragma unroll 1
  for (int64_t i = begin; i < end; i += 4 * step) {
    decltype(read(i)) values[4];
#pragma unroll
    for (int m = 0; m < 4; m++) values[m] = read(i + m * step < end ? i + m * step : i);
#pragma unroll
    for (int m = 0; m < 4; m++)
      if (i + m * step < end) take(i + m * step, values[m]);
  }
}

// Copies elements of T from a tensor, where they are `step` apart, to the team's memory, or back. If they are adjacent,
// it copies 128 bits at a time.
template <class T>
__device__ void load(const std::byte* from, int64_t step, int64_t n, void* to) {
  using C = compute_t<T>;
  constexpr int kSize = 16 / sizeof(T);
  const T* const x = global(reinterpret_cast<const T*>(from));
  C* const y = static_cast<C*>(to);
  const int64_t vectors = step == 1 && reinterpret_cast<uintptr_t>(from) % 16 == 0 ? n / kSize : 0;
  if constexpr (std::is_same_v<T, C>) { // they are only copied if `to` is shared memory: see RowsLaunch::place
#pragma unroll 1
    for (int64_t i = passes::rank(); i < vectors; i += passes::threads()) start_copy(x + i * kSize, y + i * kSize);
  } else {
    const auto read = [=](int64_t i) { return reinterpret_cast<const Vector<T, kSize>*>(x)[i]; };
    read_in_fours(passes::rank(), vectors, read, [=](int64_t i, const Vector<T, kSize>& vector) {
      Vector<C, kSize> wide;
#pragma unroll
      for (int lane = 0; lane < kSize; lane++) wide.lane[lane] = widen(vector.lane[lane]);
      reinterpret_cast<Vector<C, kSize>*>(y)[i] = wide;
    });
  }
  read_in_fours(
      vectors * kSize + passes::rank(), n, [=](int64_t j) { return x[j * step]; },
      [=](int64_t j, T element) { y[j] = widen(element); });
}
template <class T>
__device__ void store(const void* from, int64_t step, int64_t n, std::byte* to) {
  using C = compute_t<T>;
  constexpr int kSize = 16 / sizeof(T);
  const C* const x = static_cast<const C*>(from);
  T* const y = global(reinterpret_cast<T*>(to));
  const int64_t vectors = step == 1 && reinterpret_cast<uintptr_t>(to) % 16 == 0 ? n / kSize : 0;
#pragma unroll 1
  for (int64_t i = passes::rank(); i < vectors; i += passes::threads()) {
    const auto wide = reinterpret_cast<const Vector<C, kSize>*>(x)[i];
    Vector<T, kSize> vector;
#pragma unroll
    for (int lane = 0; lane < kSize; lane++) vector.lane[lane] = narrow<T>(wide.lane[lane]);
    reinterpret_cast<Vector<T, kSize>*>(y)[i] = vector;
  }
#pragma unroll 1
  for (int64_t j = vectors * kSize + passes::rank(); j < n; j += passes::threads()) y[j * step] = narrow<T>(x[j]);
}

__device__ void for_type(int32_t dtype, int bytes, const auto& move) {
  if (dtype == kOrdinal<float16>)
    move(float16{});
  else if (dtype == kOrdinal<bfloat16>)
    move(bfloat16{});
  else if (bytes == 4)
    move(uint32_t{});
  else if (bytes == 8)
    move(uint64_t{});
  else if (bytes == 2)
    move(uint16_t{});
  else
    move(uint8_t{});
}

// The addresses of each operand: in the tensor, and in the memory that the functor uses. It is in shared memory, so
// that loops over operands need not be unrolled, and the functor can have a pointer to it.
template <int kOperands>
struct RowAt {
  std::byte* at[kOperands];
  void* data[kOperands];
  std::byte* kept; // the rows that the functor keeps
  int64_t kept_rows, of_kept;
};

template <class Loop, class C, int kResults, int kOperands, int kNumbers>
__global__ void __launch_bounds__(kTeamThreads<C>, 1)
    rows_kernel(const __grid_constant__ RowsTask<kOperands, kNumbers> task) {
  __shared__ RowAt<kOperands> of_teams[kTeams];
  RowAt<kOperands>& row_at = of_teams[threadIdx.y];
  const int64_t team = int64_t{blockIdx.x} * blockDim.y + threadIdx.y, step = int64_t{gridDim.x} * blockDim.y;
  std::byte* const memory =
      task.memory ? task.memory + team * task.of_team : shared_memory() + threadIdx.y * task.of_team;
  const auto elements = [&](int k) { return task.of_row >> k & 1 ? 1 : task.size; };
  if (passes::rank() == 0) {
    row_at.kept = memory;
    row_at.kept_rows = task.kept_rows;
    row_at.of_kept = task.of_kept;
  }
#pragma unroll 1
  for (int64_t row = task.begin + team; row < task.end; row += step) {
    if (const int k = passes::rank(); k < kOperands) {
      int64_t offset = (row - task.begin) * task.pitch[k], rest = row;
      for (int d = task.dims - 1; d > 0; d--) {
        offset += rest % task.sizes[d] * task.stride[d][k];
        rest /= task.sizes[d];
      }
      offset += rest * task.stride[0][k];
      row_at.at[k] = static_cast<std::byte*>(task.data[k]) + offset * task.bytes[k];
      row_at.data[k] = task.buffer[k] < 0 ? row_at.at[k] : memory + task.buffer[k];
    }
    passes::sync();
#pragma unroll 1
    for (int k = kResults; k < kOperands; k++)
      if (task.buffer[k] >= 0 && (row == task.begin + team || !(task.constant >> k & 1)))
        for_type(task.dtypes[k], task.bytes[k], [&](auto type) {
          load<decltype(type)>(row_at.at[k], task.step[k], elements(k), row_at.data[k]);
        });
    wait_for_copies();
    passes::sync();
    // A division of 64 bits takes a hundred instructions.
    const bool is_narrow = (row | task.last_size) >> 32 == 0;
    const int64_t index =
        is_narrow ? static_cast<uint32_t>(row) % static_cast<uint32_t>(task.last_size) : row % task.last_size;
    const auto kept = [](void* of_team, int k, int64_t) -> void* {
      const auto& row = *static_cast<RowAt<kOperands>*>(of_team);
      if (k >= row.kept_rows) passes::stop("a functor must keep the same number of rows whatever the tensors hold");
      return row.kept + k * row.of_kept;
    };
    Loop::compute({task.size, index, row_at.data, task.numbers, kept, &row_at});
    passes::sync();
#pragma unroll 1
    for (int k = 0; k < kResults; k++) {
      if (task.buffer[k] < 0) continue;
      if (task.along >> k & 1) {
        const C* const x = static_cast<const C*>(row_at.data[k]);
        const C sum =
            passes::joined(task.size, C(0), [](auto a, auto b) { return a + b; }, [&](int64_t j) { return x[j]; });
        if (passes::rank() == 0) *reinterpret_cast<C*>(row_at.at[k]) = sum;
      } else {
        for_type(task.dtypes[k], task.bytes[k], [&](auto type) {
          store<decltype(type)>(row_at.data[k], task.step[k], elements(k), row_at.at[k]);
        });
      }
    }
    passes::sync(); // before the memory is used for the next row
  }
}

// The gradient of a broadcast input, which is summed over the dimensions of rows where its stride is 0.
template <class C>
struct Summed {
  int64_t columns, step, numel; // elements that a row adds; the distance between them; elements of the result
  int64_t stride[kRowDims];
  const C* rows; // what each row adds
  int64_t few;   // how many rows are added up in C, and then to the sum of the part
  double* sums;  // of each part
  void* to;
  int32_t dtype;
};
template <class C>
struct SumTask {
  int64_t begin, count, parts; // the first row in memory; the number of rows; the number of parts
  int64_t first, until;        // the parts that this launch adds up
  int dims, results;
  int64_t sizes[kRowDims];
  Summed<C> summed[kMaxOperands];
};
static_assert(sizeof(SumTask<double>) <= kParameterBytes);

// Calls body(result, i) for all i below result.numel * parts, for each result.
template <class C>
__device__ void for_each_sum(const SumTask<C>& task, int64_t parts, const auto& body) {
  for (int64_t all = int64_t{blockIdx.x} * kThreads + threadIdx.x;; all += int64_t{gridDim.x} * kThreads) {
    int64_t i = all;
    int k = 0;
    while (k < task.results && i >= task.summed[k].numel * parts) i -= task.summed[k++].numel * parts;
    if (k == task.results) return;
    body(task.summed[k], i);
  }
}

// Adds up the rows of each part, in their order, for each element of the results.
template <class C>
__global__ void __launch_bounds__(kThreads) add_rows(const __grid_constant__ SumTask<C> task) {
  for_each_sum(task, task.until - task.first, [&](const Summed<C>& result, int64_t i) {
    const int64_t part = task.first + i / result.numel, column = i % result.numel % result.columns;
    const int64_t begin = task.count * part / task.parts, end = task.count * (part + 1) / task.parts;
    int64_t rest = i % result.numel / result.columns, at = column * result.step, row = 0; // the first row of this sum
    int64_t outer = 1, inner = 1, inner_pitch = 1; // inner: the last summed dimension; outer: all others
    int last = -1;
    for (int64_t d = task.dims - 1, pitch = 1; d >= 0; pitch *= task.sizes[d--]) {
      if (result.stride[d] != 0) {
        at += rest % task.sizes[d] * result.stride[d];
        row += rest % task.sizes[d] * pitch;
        rest /= task.sizes[d];
      } else if (last < 0) {
        last = static_cast<int>(d);
        inner = task.sizes[d];
        inner_pitch = pitch;
      } else {
        outer *= task.sizes[d];
      }
    }
    double sum = 0;
    C of_few = 0;
    int64_t next = begin + result.few;
    for (int64_t k = 0; k < outer; k++) {
      int64_t from = row;
      rest = k;
      for (int64_t d = task.dims - 1, pitch = 1; d >= 0; pitch *= task.sizes[d--]) {
        if (result.stride[d] != 0 || d == last) continue;
        from += rest % task.sizes[d] * pitch;
        rest /= task.sizes[d];
      }
      const auto until = [&](int64_t limit) {
        const int64_t steps = limit <= from ? 0 : (limit - from + inner_pitch - 1) / inner_pitch;
        return steps < inner ? steps : inner;
      };
      const int64_t place = (from - task.begin) * result.columns + column, pitch = inner_pitch * result.columns;
      const int64_t stop = until(end);
      for (int64_t m = until(begin); m < stop;) {
        if (const int64_t row_of_m = from + m * inner_pitch; row_of_m >= next) {
          sum += of_few;
          of_few = 0;
          next = row_of_m - (row_of_m - begin) % result.few + result.few;
        }
        const C* x = result.rows + place + m * pitch;
        const int64_t count = (stop < until(next) ? stop : until(next)) - m;
#pragma unroll 8 // so that a thread waits for memory once for several rows
        for (int64_t n = 0; n < count; n++, x += pitch) of_few += *x;
        m += count;
      }
    }
    result.sums[part * result.numel + at] = sum + of_few;
  });
}

// Adds up parts pairwise. They are read before the first addition, so that a thread waits for memory once.
template <class C>
__global__ void __launch_bounds__(kThreads) add_parts(const __grid_constant__ SumTask<C> task) {
  for_each_sum(task, 1, [&](const Summed<C>& result, int64_t i) {
    double sum[rows::kMostParts];
#pragma unroll
    for (int part = 0; part < rows::kMostParts; part++)
      sum[part] = part < task.parts ? result.sums[part * result.numel + i] : 0;
#pragma unroll
    for (int width = 1; width < rows::kMostParts; width *= 2)
#pragma unroll
      for (int part = 0; part < rows::kMostParts; part += 2 * width)
        if (part + width < task.parts) sum[part] += sum[part + width];
    if (result.dtype == kOrdinal<float16>)
      static_cast<float16*>(result.to)[i] = narrow<float16>(static_cast<float>(sum[0]));
    else if (result.dtype == kOrdinal<bfloat16>)
      static_cast<bfloat16*>(result.to)[i] = narrow<bfloat16>(static_cast<float>(sum[0]));
    else
      static_cast<C*>(result.to)[i] = static_cast<C>(sum[0]);
  });
}

// Starts the kernels of a call. `allocate` returns memory of torch until the end of the call.
template <class Loop, class C, int kResults, int kOperands, int kNumbers>
class RowsLaunch {
 public:
  RowsLaunch(const rows::Task& task, void* stream, const Allocate& allocate)
      : task_(task), stream_(stream), allocate_(allocate) {}

  Error operator()() {
    fill();
    if (!task_.summed) return compute(0, task_.count);
    constexpr int64_t kMost = 1 << 26; // bytes of rows that are computed before they are added up
    int64_t of_row = 1;
    for (int k = 0; k < kResults; k++)
      if (task_.is_summed(k)) of_row += columns(k) * int64_t{sizeof(C)};
    const int64_t parts = task_.parts(), rows_of_part = (task_.count + parts - 1) / parts;
    const int64_t at_once = std::clamp<int64_t>(kMost / of_row / std::max<int64_t>(1, rows_of_part), 1, parts);
    SumTask<C> sum{0, task_.count, parts, 0, 0, task_.dims, 0, {}, {}};
    std::copy_n(task_.sizes, task_.dims, sum.sizes);
    int64_t numel = 0; // of all results
    for (int k = 0; k < kResults; k++) {
      if (!task_.is_summed(k)) continue;
      C* const rows = memory<C>(at_once * (rows_of_part + 1) * columns(k));
      device_.data[k] = rows;
      Summed<C>& result = sum.summed[sum.results++];
      result = {columns(k),
                task_.step[k],
                task_.numel[k],
                {},
                rows,
                task_.rows_at_once(k),
                memory<double>(parts * task_.numel[k]),
                task_.data[k],
                task_.dtypes[k]};
      for (int d = 0; d < task_.dims; d++) result.stride[d] = task_.stride[d][k];
      numel += task_.numel[k];
    }
    for (sum.first = 0; sum.first < parts; sum.first = sum.until) {
      sum.until = std::min(parts, sum.first + at_once);
      sum.begin = task_.count * sum.first / parts;
      if (const Error error = compute(sum.begin, task_.count * sum.until / parts)) return error;
      if (const Error error = for_each_of((sum.until - sum.first) * numel, add_rows<C>, sum)) return error;
    }
    return for_each_of(numel, add_parts<C>, sum);
  }

 private:
  int64_t columns(int k) const { // the number of elements that a row adds to a result
    return device_.along >> k & 1 ? 1 : task_.elements(k);
  }
  template <class T>
  T* memory(int64_t n) const {
    return static_cast<T*>(allocate_(std::max<int64_t>(1, n) * sizeof(T)));
  }
  Error for_each_of(int64_t n, void (*kernel)(SumTask<C>), const SumTask<C>& sum) const {
    if (n == 0) return {};
    return start(kernel, (n + kThreads - 1) / kThreads, kThreads, stream_, sum);
  }

  void fill() {
    device_.size = task_.size;
    device_.last_size = task_.last_size;
    device_.dims = task_.dims;
    device_.of_row = task_.of_row;
    std::copy_n(task_.numbers, kNumbers, device_.numbers);
    for (int d = 0; d < task_.dims; d++) device_.sizes[d] = task_.sizes[d];
    ask();
    for (int k = 0; k < kOperands; k++) {
      bool is_constant = k >= kResults && task_.is_apart;
      for (int d = 0; d < task_.dims; d++) {
        device_.stride[d][k] = task_.is_summed(k) ? 0 : task_.stride[d][k];
        is_constant &= task_.stride[d][k] == 0;
      }
      const bool is_along = task_.is_summed(k) && task_.step[k] == 0 && !task_.is_of_row(k);
      device_.constant |= uint32_t{is_constant} << k;
      device_.along |= uint32_t{is_along} << k;
      device_.step[k] = task_.is_summed(k) ? 1 : task_.step[k];
      device_.pitch[k] = task_.is_summed(k) ? columns(k) : 0;
      device_.data[k] = task_.data[k];
      device_.dtypes[k] = task_.is_summed(k) ? kOrdinal<C> : task_.dtypes[k];
      device_.bytes[k] = static_cast<int32_t>(task_.is_summed(k) ? sizeof(C) : task_.bytes[k]);
    }
  }

  // Runs the functor to learn which rows it keeps.
  void ask() {
    const auto checked = Loop::checked(cpu::UniformRow(task_.size, task_.numbers), 1);
    keeps_in_result_ = checked.keeps_in_result;
    device_.kept_rows = checked.kept_rows;
    device_.of_kept = (task_.size * int64_t{sizeof(typename Loop::Kept)} + 31) / 32 * 32;
  }

  // Assigns a place in the team's memory to each operand, or only to those that cannot be computed in place.
  void place(bool all) {
    device_.of_team = device_.kept_rows * device_.of_kept;
    for (int k = 0; k < kOperands; k++) {
      const bool is_16_bits = has_16_bits(device_.dtypes[k]);
      const bool is_adjacent = task_.elements(k) == 1 || device_.step[k] == 1;
      const bool is_direct =
          is_adjacent && !is_16_bits && !(device_.along >> k & 1) && (k >= kResults || task_.is_apart);
      device_.buffer[k] = -1;
      const bool is_written_once = k < kResults && !keeps_in_result_;
      if (task_.is_unwanted(k) || (is_direct && (!all || is_written_once || task_.elements(k) == 1))) continue;
      device_.buffer[k] = device_.of_team;
      device_.of_team += (task_.elements(k) * (is_16_bits ? 4 : device_.bytes[k]) + 31) / 32 * 32;
    }
  }

  Error compute(int64_t begin, int64_t end) {
    if (begin == end) return {};
    device_.begin = begin;
    device_.end = end;
    place(true);
    const Limits limits = limits_of_device();
    const bool is_shared = device_.of_team <= limits.shared;
    if (!is_shared) place(false);
    const int64_t rows = end - begin, fit = is_shared ? limits.shared / std::max<int64_t>(1, device_.of_team) : 2;
    // How many rows a multiprocessor computes at a time.
    const int64_t at_once = std::min((rows + limits.processors - 1) / limits.processors, fit);
    int threads = 32;
    while (threads < kTeamThreads<C> && threads * at_once < kBusy && threads * kOfThread < task_.size) threads *= 2;
    const int64_t teams = threads > 32 ? 1 : std::clamp<int64_t>(fit, 1, kTeams);
    const int64_t blocks = std::min((rows + teams - 1) / teams, int64_t{limits.processors} * (is_shared ? 16 : 2));
    device_.memory = is_shared || device_.of_team == 0
                         ? nullptr
                         : static_cast<std::byte*>(allocate_(blocks * teams * device_.of_team));
    const Grid grid{blocks, threads, static_cast<int>(teams), is_shared ? teams * device_.of_team : 0};
    return start(cuda::rows_kernel<Loop, C, kResults, kOperands, kNumbers>, grid, stream_, device_);
  }

  const rows::Task& task_;
  void* const stream_;
  const Allocate& allocate_;
  RowsTask<kOperands, kNumbers> device_{};
  bool keeps_in_result_ = false; // the functor keeps a row in the memory of its only result
};

template <class Kernel>
Error launch_rows(const rows::Task& task, void* stream, const Allocate& allocate) {
  Error error;
  with_dtype(typename Kernel::Dtypes{}, task.dtype, [&](auto storage) {
    using C = compute_t<decltype(storage)>;
    using Loop = passes::RowLoop<Kernel, C>;
    constexpr int kOperands = Kernel::kResults + Kernel::kInputs;
    error = RowsLaunch<Loop, C, Kernel::kResults, kOperands, Kernel::kNumbers>(task, stream, allocate)();
  });
  return error;
}

} // namespace elementwise::cuda
