// How products were launched, from what a profiler saw. No GPU: the trace is made up.
#include "lab/micro/gemm_launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/error.h"
#include "lab/micro/micro_cells.h"

namespace rooflm::lab {
namespace {

/// A product in two launches of one kernel, a sum of its parts, and a copy.
trace::DeviceTrace trace_of_product() {
  trace::DeviceTrace trace;
  trace.names = {"gemm", "splitKreduce", "copy device to device"};
  trace.launches = {{.grid = {66, 6, 1}, .block = {256, 1, 1}, .registers = 128},
                    {.grid = {24, 24, 1}, .block = {128, 1, 1}, .registers = 32}};
  trace.activities = {
      {.kind = trace::ActivityKind::kernel, .name = 1, .start_ns = 0, .end_ns = 30, .launch = 1},
      {.kind = trace::ActivityKind::kernel, .name = 0, .start_ns = 40, .end_ns = 60, .launch = 0},
      {.kind = trace::ActivityKind::kernel, .name = 0, .start_ns = 70, .end_ns = 90, .launch = 0},
      {.kind = trace::ActivityKind::copy, .name = 2, .start_ns = 90, .end_ns = 900}};
  trace.devices = {{.device = 0,
                    .multiprocessors = 132,
                    .warps = 64,
                    .blocks = 32,
                    .registers = 65536,
                    .shared_bytes = 233472,
                    .major = 9,
                    .minor = 0}};
  return trace;
}

/// Sees `trace` in whatever runs.
class TracerOf final : public trace::ActivityTracer {
 public:
  explicit TracerOf(trace::DeviceTrace trace) : trace_(std::move(trace)) {}
  [[nodiscard]] std::string version() const override { return "made up"; }
  void start(bool /*with_memory*/) override { ++started; }
  void stop() noexcept override { ++stopped; }
  [[nodiscard]] trace::DeviceTrace take() override { return std::exchange(trace_, {}); }
  [[nodiscard]] std::optional<std::uint64_t> node_id(std::uint64_t) const override { return std::nullopt; }
  int started = 0, stopped = 0;

 private:
  trace::DeviceTrace trace_;
};

TEST(GemmLaunch, TheKernelWithMostTimeIsDescribed) {
  TracerOf tracer(trace_of_product());
  int runs = 0;
  const auto launch = trace_gemm(tracer, [&] { ++runs; });
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(runs, 2) << "once before it is traced";
  EXPECT_EQ(tracer.started + tracer.stopped, 2);
  EXPECT_EQ(launch->kernel, "gemm");
  EXPECT_EQ(launch->kernels, 3);
  EXPECT_EQ(launch->blocks(), 66 * 6);
  EXPECT_EQ(launch->block[0], 256);
  // 128 registers of 256 threads: 2 blocks at once on each of 132 multiprocessors.
  EXPECT_EQ(launch->occupancy.blocks, 2);
  EXPECT_DOUBLE_EQ(launch->occupancy.waves, 1.5);
  EXPECT_DOUBLE_EQ(launch->tail().value(), 0.25);
}

TEST(GemmLaunch, WhatIsNotKnownIsNothing) {
  EXPECT_FALSE(gemm_launch_of({}).has_value());
  trace::DeviceTrace trace = trace_of_product();
  trace.devices.clear();
  EXPECT_EQ(gemm_launch_of(trace)->occupancy.blocks, 0);
  EXPECT_FALSE(gemm_launch_of(trace)->tail().has_value());
}

TEST(GemmLaunch, ATracerIsStoppedWhenTheProductFails) {
  TracerOf tracer({});
  int runs = 0;
  const auto fail = [&] {
    if (++runs == 2) throw core::Unavailable("CUDA: a kernel failed");
  };
  EXPECT_THROW(trace_gemm(tracer, fail), core::Unavailable);
  EXPECT_EQ(tracer.stopped, 1);
}

TEST(GemmLaunch, CellsHaveItWhereItIsKnown) {
  std::array<MeasuredGemm, 2> rows;
  for (MeasuredGemm& row : rows) row.result = GemmResult{};
  rows[1].launch = gemm_launch_of(trace_of_product());
  const auto cells = cells_of(rows);
  const auto text = [&](std::int64_t number, const std::string& col) -> std::string {
    const auto found = std::ranges::find_if(
        cells, [&](const record::Cell& cell) { return cell.row == number && cell.col == col; });
    return found == cells.end() ? "none" : found->text;
  };
  EXPECT_EQ(text(0, "grid"), "none");
  EXPECT_EQ(text(1, "grid"), "66x6x1");
  EXPECT_EQ(text(1, "block"), "256x1x1");
  EXPECT_EQ(text(1, "kernel"), "gemm");
}

}  // namespace
}  // namespace rooflm::lab
