// The CPU backend: torch's threads, and what to do about large memory.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "../contract.h"
#include "fresh.h"
#include "launch.h"

namespace elementwise::cpu {

struct Backend {
  static constexpr int32_t kDeviceType = 0;

  static void on_fresh_output(void* data, size_t bytes) {
    cpu::on_fresh_output(data, bytes);
  }

  static void launch(const contract::Caller&, const Task& task, int32_t) {
    cpu::launch(
        task, [](int64_t end, int64_t grain, const auto& body) { torch::stable::parallel_for(0, end, grain, body); });
  }
};

} // namespace elementwise::cpu
