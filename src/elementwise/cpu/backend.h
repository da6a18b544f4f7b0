// The CPU backend for torch: it runs a task on torch's threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "../contract.h"
#include "fresh.h"
#include "launch.h"
#include "rows.h"

namespace elementwise::cpu {

struct Backend {
  static constexpr int32_t kDeviceType = 0;

  static void on_fresh_output(void* data, size_t bytes) {
    cpu::on_fresh_output(data, bytes);
  }

  static void launch(const contract::Caller&, const Task& task, int32_t) {
    cpu::launch(task, parallel_for);
  }

  // The same for a task with results to sum. If bit k of `summed` is set, elements of result k that have the same place
  // in memory are added up. allocate(bytes) returns memory that lives as long as the call.
  template <class Allocate>
  static void launch_sums(const contract::Caller&, const Task& task, uint32_t summed, const Allocate& allocate) {
    Sums sums(task, summed);
    sums(allocate(sums.bytes()), parallel_for);
  }

  static void launch_rows(const contract::Caller& op, const rows::Task& task, int32_t) {
    if (!cpu::launch_rows(task, parallel_for)) contract::fail(op, "a place that is read lies outside of its row");
  }

 private:
  static constexpr auto parallel_for = [](int64_t end, int64_t grain, const auto& body) {
    torch::stable::parallel_for(0, end, grain, body);
  };
};

} // namespace elementwise::cpu
