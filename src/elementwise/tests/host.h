// Lets the host compiler compile CUDA kernels, for their test. A launch is a loop over the blocks and their threads,
// one after the other. If the threads of a block wait for each other, each is a fibre with its own stack, and they take
// turns.
#pragma once

#undef _FORTIFY_SOURCE // with it, longjmp refuses to go to another stack
#define ELEMENTWISE_CUDA_ON_HOST
#define __launch_bounds__(...)
#define __grid_constant__

// CUDA's headers can be compiled for the host, where __global__ and similar words are empty. Without these headers, the
// declarations below are enough for kernels that are not element-wise.
#if __has_include(<cuda_fp16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#define __global__
#define __device__
#define __host__
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
#endif

#undef __shared__
#define __shared__ static

#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "elementwise/cuda/start.h"

inline uint3 blockIdx, threadIdx;
inline dim3 gridDim, blockDim;

// The threads of a block that wait for each other, as fibres.
class Fibres {
 public:
  // Calls body() with each threadIdx.
  void run(const std::function<void()>& body) {
    body_ = &body;
    const size_t count = blockDim.x * blockDim.y;
    while (all_.size() < count) all_.push_back(std::make_unique<Fibre>());
    warps_.assign((count + 31) / 32, {});
    block_ = {};
    for (size_t i = 0; i < count; i++) all_[i]->is_done = false;
    for (size_t left = count; left > 0;) {
      passed_ = 0;
      for (size_t i = 0; i < count; i++) {
        if (all_[i]->is_done) continue;
        resume(static_cast<unsigned>(i));
        left -= all_[i]->is_done;
        passed_ += all_[i]->is_done;
      }
      if (!passed_) std::fprintf(stderr, "threads wait for others that do not come\n"), std::abort();
    }
  }

  void wait_for_block() {
    wait(block_, blockDim.x * blockDim.y);
  }
  void wait_for_warp() {
    wait(warps_[now_ / 32].barrier, 32);
  }
  unsigned shuffle(unsigned x, int lane) {
    Warp& warp = warps_[now_ / 32];
    unsigned* const slots = warp.slots[warp.barrier.passed % 2]; // other threads may still read the previous ones
    slots[now_ % 32] = x;
    wait_for_warp();
    return slots[lane & 31];
  }

 private:
  struct Fibre {
    jmp_buf at;
    bool is_started = false, is_done = true;
    char stack[128 * 1024];
  };
  struct Barrier {
    unsigned waiting = 0, passed = 0;
  };
  struct Warp {
    Barrier barrier;
    unsigned slots[2][32];
  };

  void resume(unsigned i) {
    now_ = i;
    threadIdx = {i % blockDim.x, i / blockDim.x, 0};
    if (setjmp(scheduler_)) return;
    Fibre& fibre = *all_[i];
    if (fibre.is_started) longjmp(fibre.at, 1);
    fibre.is_started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fibre.stack;
    context.uc_stack.ss_size = sizeof(fibre.stack);
    context.uc_link = nullptr;
    static Fibres* self;
    self = this;
    makecontext(&context, [] { self->live(); }, 0);
    setcontext(&context);
  }
  void live() { // a fibre is a thread of each block in turn
    for (;;) {
      (*body_)();
      all_[now_]->is_done = true;
      pause();
    }
  }
  void pause() {
    if (!setjmp(all_[now_]->at)) longjmp(scheduler_, 1);
  }
  void wait(Barrier& barrier, unsigned count) {
    const unsigned passed = barrier.passed;
    if (++barrier.waiting == count) {
      barrier.waiting = 0;
      barrier.passed++;
      passed_++;
    }
    while (barrier.passed == passed) pause();
  }

  const std::function<void()>* body_;
  std::vector<std::unique_ptr<Fibre>> all_;
  std::vector<Warp> warps_;
  Barrier block_;
  unsigned now_ = 0, passed_ = 0;
  jmp_buf scheduler_;
};
inline Fibres fibres;

inline void __syncthreads() {
  fibres.wait_for_block();
}
inline void __syncwarp() {
  fibres.wait_for_warp();
}
inline unsigned __shfl_sync(unsigned, unsigned x, int lane) {
  return fibres.shuffle(x, lane);
}
inline void __assertfail(const char* message, const char*, unsigned, const char*, size_t) {
  std::fprintf(stderr, "%s\n", message);
  std::_Exit(1);
}

namespace elementwise::cuda {

// A test changes these: how many blocks a grid can hold, and whether only the first and the last two blocks run.
inline int64_t most_blocks = std::numeric_limits<int>::max();
inline bool ends_alone = false;

template <class... Parameters>
Error start(
    void (*kernel)(Parameters...), int64_t blocks, int threads, void*,
    const std::type_identity_t<Parameters>&... arguments) {
  const char* const most = std::getenv("ELEMENTWISE_MOST_BLOCKS"); // a test in Python sets it
  gridDim.x = static_cast<unsigned>(std::min(blocks, most ? std::atol(most) : most_blocks));
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
    if (ends_alone && blockIdx.x > 0) blockIdx.x = std::max(blockIdx.x, gridDim.x - 2);
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) kernel(arguments...);
  }
  return {};
}

inline int64_t shared_bytes = 48 * 1024; // a test changes it, too
inline Limits limits_of_device() {
  return {shared_bytes, 2};
}
inline std::vector<double> memory_of_block;
inline std::byte* shared_memory() {
  void* at = memory_of_block.data();
  size_t space = memory_of_block.size() * sizeof(double);
  return static_cast<std::byte*>(std::align(64, 1, at, space));
}

template <class... Parameters>
Error start(
    void (*kernel)(Parameters...), const Grid& grid, void*, const std::type_identity_t<Parameters>&... arguments) {
  gridDim.x = static_cast<unsigned>(std::min(grid.blocks, most_blocks));
  blockDim.x = grid.threads;
  blockDim.y = grid.teams;
  memory_of_block.assign(grid.shared / sizeof(double) + 16, 0);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) fibres.run([&] { kernel(arguments...); });
  blockDim.y = 1;
  return {};
}

// For kernels that are not element-wise: treats every tensor as if it were on this device.
bool runs(const auto&) {
  return true;
}
void on_device(const auto&, int32_t, const auto& run) {
  run(nullptr);
}

} // namespace elementwise::cuda
