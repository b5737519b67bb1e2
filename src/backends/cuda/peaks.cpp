// Micro-benchmarks of a GPU's memory.
#include "backends/cuda/peaks.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels/memory_loops.h"
#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "backends/cuda/peaks_bench.h"
#include "core/units.h"

namespace rooflm::backends::cuda {
namespace {

/// Half of the free memory, at most 4 GiB: many times the size of any cache.
std::size_t walk_bytes(int index) {
  constexpr std::size_t kMost = std::size_t{4} << 30U;
  constexpr std::size_t kWhole = std::size_t{1} << 20U;
  check(cudaSetDevice(index), "selecting the device");
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return std::min(kMost, free / 2) / kWhole * kWhole;
}

/// p, g, m, v and the copy of one large tensor, consecutively in memory.
void submit_adamw(cudaStream_t stream, const Bench& bench, std::int64_t count) {
  const float* hyper = bench.floats(0);
  const std::int64_t first = 4;  // offset after hyper
  const UpdateStep step{
      .hyper = hyper, .beta1 = core::MovingAverage(0.9), .beta2 = core::MovingAverage(0.95), .eps = 1e-8F};
  const std::array<UpdatedTensor, 1> tensors{UpdatedTensor{.count = count,
                                                           .parameter = bench.floats(first),
                                                           .gradient = bench.floats(first + count),
                                                           .moment1 = bench.floats(first + 2 * count),
                                                           .moment2 = bench.floats(first + 3 * count),
                                                           .copy = bench.floats(first + 4 * count)}};
  launch_adamw(stream, step, tensors);
}

std::string size_of_pass(double bytes) { return fmt::format("{} a pass", core::format_bytes(bytes)); }

void add_dram_loops(std::vector<TimedLoop>& loops, const std::shared_ptr<Bench>& bench, std::size_t bytes) {
  constexpr double kUpdateBytes =
      30;  // bytes of AdamW per parameter: p, g, m, v read; p, m, v and the copy written
  constexpr std::int64_t kWhole = 64;
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  const std::int64_t half = count / 2;
  const double whole = static_cast<double>(count) * sizeof(float);
  const auto add = [&](const char* what, double amount, auto submit) {
    loops.push_back({.what = what,
                     .level = "DRAM",
                     .problem = size_of_pass(amount),
                     .amount = amount,
                     .run_s = [bench, submit] { return bench->time_s(submit); }});
  };
  const Bench& b = *bench;
  add("read", whole,
      [&b, count](cudaStream_t s) { launch_read_loop(s, count, 1, b.floats(0), b.floats(0)); });
  add("write", whole, [&b, count](cudaStream_t s) { launch_write_loop(s, count, 0.0F, b.floats(0)); });
  add("update", 2 * whole, [&b, count](cudaStream_t s) { launch_update_loop(s, count, b.floats(0)); });
  add("copy", whole,
      [&b, half](cudaStream_t s) { launch_copy_loop(s, half, 1, b.floats(0), b.floats(half)); });
  const std::int64_t parameters = (count - kWhole) * 2 / 9 / kWhole * kWhole;  // 4.5 arrays of fp32
  add("adamw", kUpdateBytes * static_cast<double>(parameters),
      [&b, parameters](cudaStream_t s) { submit_adamw(s, b, parameters); });
}

/// Walks through a third of the cache, often enough that the launch time is negligible.
void add_l2_loops(std::vector<TimedLoop>& loops, const std::shared_ptr<Bench>& bench, double cache_bytes) {
  constexpr int kPasses = 64;
  constexpr std::int64_t kWhole = 1024;
  const auto count = static_cast<std::int64_t>(cache_bytes / 3 / sizeof(float)) / kWhole * kWhole;
  const std::int64_t half = count / 2;
  const double moved = static_cast<double>(count) * sizeof(float) * kPasses;
  const auto add = [&](const char* what, auto submit) {
    loops.push_back({.what = what,
                     .level = "L2",
                     .problem = size_of_pass(moved / kPasses),
                     .amount = moved,
                     .run_s = [bench, submit] { return bench->time_s(submit); }});
  };
  const Bench& b = *bench;
  add("read", [&b, count](cudaStream_t s) { launch_read_loop(s, count, kPasses, b.floats(0), b.floats(0)); });
  add("copy",
      [&b, half](cudaStream_t s) { launch_copy_loop(s, half, kPasses, b.floats(0), b.floats(half)); });
}

}  // namespace

double l2_bytes(int index) {
  int bytes = 0;
  if (cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, index) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return bytes;
}

std::vector<TimedLoop> memory_loops(int index) {
  const std::size_t bytes = walk_bytes(index);
  const auto bench = std::make_shared<Bench>(index, bytes);
  // Ones as the optimizer's scalars, so nothing is denormal.
  launch_write_loop(bench->stream(), static_cast<std::int64_t>(bytes / sizeof(float)), 1.0F,
                    bench->floats(0));
  std::vector<TimedLoop> loops;
  add_dram_loops(loops, bench, bytes);
  if (const double cache_bytes = l2_bytes(index); cache_bytes > 0) add_l2_loops(loops, bench, cache_bytes);
  return loops;
}

}  // namespace rooflm::backends::cuda
