// The parts of a plan, with answers by hand: times of ops, lanes, pipelines.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "perfmodel/op_times.h"
#include "perfmodel/pipeline.h"
#include "perfmodel/simulate.h"
#include "program/fp32_products.h"
#include "program/ops.h"

namespace rooflm {
namespace {

using program::Lane;

program::Program product_of(core::DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                            bool tf32 = false) {
  program::Program program;
  program.add_tensor({.name = "a", .shape = {m, k}, .dtype = dtype});
  program.add_tensor({.name = "b", .shape = {k, n}, .dtype = dtype});
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.inputs = {0, 1};
  op.attrs = {{"batch", 1}, {"m", m}, {"n", n}, {"k", k}, {"tf32", tf32}};
  program.append(std::move(op), "c");
  program.tensor(2).dtype = dtype;
  return program;
}

program::Program half_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return product_of(core::DType::bf16, m, n, k);
}

TEST(OpTimes, OneFullWaveOfTilesTakesWhatTheModelSays) {
  const auto device = devices::find_device("h100-sxm");
  const perfmodel::OpTimes times(device, {});
  const auto& table = times.tables().matmul;
  // 132 tiles of 256 x 128 on 132 multiprocessors.
  const auto program = half_product(256 * 132, 128, 8192);
  const auto time = times.time_of(program, program.ops[0]);
  const double compute = 2.0 * 256 * 128 * (8192 + table.fill_k) * 132 / table.flop_per_s;
  const double stored = table.store_share * 2.0 * 256 * 132 * 128 / table.byte_per_s;
  const double moved = 2.0 * (256 * 132 * 8192.0 + 128 * 8192.0 + 256 * 132 * 128.0) / table.byte_per_s;
  EXPECT_NEAR(time.seconds, table.launch_s + std::max(compute + stored, moved), 1e-9);
  EXPECT_EQ(time.basis, perfmodel::Basis::calibrated);
}

/// Of few rows a packed weight is fewer bytes. Of many it is unpacked first, which costs what it moves.
TEST(OpTimes, PackedWeightsAreUnpackedForManyRows) {
  const auto device = devices::find_device("h100-sxm");
  const perfmodel::OpTimes times(device, {});
  const auto seconds_of = [&](std::int64_t m, core::DType weight) {
    auto program = half_product(m, 8192, 8192);
    program.tensor(1).dtype = weight;
    return times.time_of(program, program.ops[0]).seconds;
  };
  for (const core::DType packed : {core::DType::int8, core::DType::int4, core::DType::nf4}) {
    EXPECT_LT(seconds_of(32, packed), seconds_of(32, core::DType::bf16));
    for (const std::int64_t m : {33, 2048}) {
      const double moved = 8192.0 * 8192 * 2 / times.tables().matmul.byte_per_s;
      EXPECT_GT(seconds_of(m, packed), seconds_of(m, core::DType::bf16) + moved);
      EXPECT_LT(seconds_of(m, packed), seconds_of(m, core::DType::bf16) + 2 * moved);
    }
  }
}

TEST(OpTimes, DevicesThatNobodyMeasuredAreAssumedAndScaled) {
  const auto h100 = devices::find_device("h100-sxm");
  const auto a100 = devices::find_device("a100-sxm");
  const auto program = half_product(8192, 8192, 8192);
  const auto fast = perfmodel::OpTimes(h100, {}).time_of(program, program.ops[0]);
  const auto slow = perfmodel::OpTimes(a100, {}).time_of(program, program.ops[0]);
  EXPECT_EQ(slow.basis, perfmodel::Basis::assumed);
  EXPECT_GT(slow.spread, fast.spread);
  // 312 / 989.4 of the peak, of which 85 instead of 80 % are sustained.
  EXPECT_NEAR(fast.seconds / slow.seconds, 312 / 989.4 * 0.8495 / 0.803, 0.03);
}

/// 253.7 and 256.5 TFLOP/s, alone for long (Azure/AI-benchmarking-guide, ND A100 v4).
TEST(OpTimes, LargeProductsOfAnA100AreWhatWasMeasured) {
  const auto a100 = devices::find_device("a100-sxm");
  for (const auto& [size, measured] : {std::pair{8192, 253.7e12}, std::pair{16384, 256.5e12}}) {
    const auto program = half_product(size, size, size);
    const double flop = 2.0 * size * size * size;
    EXPECT_NEAR(flop / perfmodel::OpTimes(a100, {}).time_of(program, program.ops[0]).seconds / measured, 1,
                0.02);
  }
}

/// 83 % of the data sheet's bandwidth where an H100 reaches 89 %.
TEST(OpTimes, BytesTakeWhatStreamsReach) {
  const perfmodel::OpTimes h100(devices::find_device("h100-sxm"), {});
  const perfmodel::OpTimes a100(devices::find_device("a100-sxm"), {});
  const auto program = half_product(1 << 20, 8, 8);  // bound by its bytes
  const auto moved = [&](const perfmodel::OpTimes& times) {
    return times.time_of(program, program.ops[0]).moved_s;
  };
  EXPECT_NEAR(moved(a100) / moved(h100), 3.35 / 2.039 * 0.887 / 0.834, 1e-6);
}

/// cublasSgemm and TF32 of 8192^3 on an H100: 52.1 and 412 TFLOP/s, the latter with k in rows of both
/// operands; CUDA cores do 66.9 at their highest clock. GEMMs of steps reach nine tenths of both.
TEST(OpTimes, ProductsOfFp32AreThoseOfTheirPipes) {
  const auto device = devices::find_device("h100-sxm");
  const perfmodel::OpTimes times(device, {});
  const auto rate = [&](std::int64_t m, std::int64_t k, bool tf32, double hz) {
    auto program = product_of(core::DType::f32, m, 8192, k, tf32);
    program.ops[0].attrs.set("trans_b", tf32);
    const auto time = times.time_of(program, program.ops[0]);
    const double flop = 2.0 * static_cast<double>(m * k) * 8192;
    return flop / perfmodel::OpTimes::at_clock(time, hz / times.power().table_hz);
  };
  EXPECT_NEAR(rate(8192, 8192, false, 1.98e9) / 52.1e12, 0.9, 0.03);
  EXPECT_LT(rate(8192, 8192, false, 1.48e9), 132 * 256 * 1.48e9);
  EXPECT_NEAR(rate(8192, 8192, true, 1.7e9) / 412e12, 0.88, 0.05);
}

/// docs/performance/number_formats.md: 87 to 91 TFLOP/s of 4096^3, cuBLAS 52.
TEST(OpTimes, SixProductsOfBf16TakeWhatTheirKernelDoes) {
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"), {});
  auto program = product_of(core::DType::f32, 4096, 4096, 4096);
  program.ops[0].attrs.set("trans_b", true);
  const double fp32_s = times.time_of(program, program.ops[0]).seconds;
  program::set_fp32_products(program.ops[0], program::Fp32Products::bf16x6);
  const auto time = times.time_of(program, program.ops[0]);
  const double seconds = perfmodel::OpTimes::at_clock(time, 1.98e9 / times.power().table_hz);
  EXPECT_NEAR(2.0 * 4096 * 4096 * 4096 / seconds / 88e12, 1, 0.1);
  EXPECT_LT(time.seconds, 0.6 * fp32_s);
}

/// Rows of 1320 elements, an odd number of 16 bytes, are slower than the longer ones of 1328.
TEST(OpTimes, UnevenRowsAreSlower) {
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"), {});
  const auto seconds = [&](std::int64_t k) {
    auto program = half_product(8192, 4096, k);
    return times.time_of(program, program.ops[0]).seconds;
  };
  EXPECT_GT(seconds(1320), 1.1 * seconds(1328));
  EXPECT_GT(seconds(1328), seconds(1312));
}

/// 36 tiles of 64 x 64 on 132 multiprocessors, however long k is; the gradient of x is split.
TEST(OpTimes, ForwardProductsOnCudaCoresAreNotSplit) {
  const auto device = devices::find_device("h100-sxm");
  const perfmodel::OpTimes times(device, {});
  const auto seconds = [&](core::DType dtype, std::int64_t k, bool is_forward = true) {
    auto program = product_of(dtype, 384, 384, k);
    program.ops[0].attrs.set("trans_b", is_forward);
    return times.time_of(program, program.ops[0]).seconds;
  };
  EXPECT_GT(seconds(core::DType::f32, 8192) / seconds(core::DType::f32, 1024), 6);
  EXPECT_LT(seconds(core::DType::f32, 8192, false) / seconds(core::DType::f32, 1024, false), 4);
  EXPECT_LT(seconds(core::DType::bf16, 8192) / seconds(core::DType::bf16, 1024), 4);
}

program::Program flash_attention(std::int64_t seq) {
  program::Program program;
  constexpr std::int64_t kHeads = 16;
  constexpr std::int64_t kDim = 128;
  program.add_tensor({.name = "qkv", .shape = {1, seq, 3 * kHeads * kDim}, .dtype = core::DType::bf16});
  program::Op op;
  op.def = &program::ops::kFlashAttention;
  op.inputs = {0};
  op.attrs = {{"heads", kHeads}, {"kv_heads", kHeads}, {"head_dim", kDim}};
  program.append(std::move(op), "y");
  return program;
}

/// PyTorch's flash backend did 317 to 333 TFLOP/s of the half below the diagonal at T=8192 and 32768, at 1.86
/// and 1.665 GHz.
TEST(OpTimes, AttentionOfFrameworksIsWhatWasMeasuredOfIt) {
  const auto device = devices::find_device("h200");
  const auto program = flash_attention(32768);
  const perfmodel::OpTimes own(device, {});
  const perfmodel::OpTimes times(device, {.attention = "flash-attention-2"});
  const auto time = times.time_of(program, program.ops[0]);
  const double half = 2.0 * 32768 * 32768 * 16 * 128;
  const double clock = 1.665e9 / own.power().table_hz;
  EXPECT_NEAR(half / perfmodel::OpTimes::at_clock(time, clock) / 333e12, 1, 0.03);
  EXPECT_GT(time.seconds, own.time_of(program, program.ops[0]).seconds);
  // Nothing is known of another chip's.
  const auto a100 = devices::find_device("a100-sxm");
  EXPECT_EQ(
      perfmodel::OpTimes(a100, {.attention = "flash-attention-2"}).time_of(program, program.ops[0]).seconds,
      perfmodel::OpTimes(a100, {}).time_of(program, program.ops[0]).seconds);
}

/// Published of an A100 as it runs: 40 and 30 % of its 312 TFLOP/s, of what is below the diagonal.
TEST(OpTimes, AttentionThatWasMeasuredAsADeviceRunsIsNotScaled) {
  const auto a100 = devices::find_device("a100-sxm");
  const auto program = flash_attention(1 << 18);
  const perfmodel::OpTimes times(a100, {.is_deterministic = false, .attention = "flash-attention-triton"});
  const double half = 2.0 * (1 << 18) * (1 << 18) * 16 * 128;
  EXPECT_NEAR(half / times.time_of(program, program.ops[0]).seconds / (0.4 * 312e12), 1, 0.01);
}

/// LayerNorm was measured from 38 MB on: 19 us.
TEST(OpTimes, KindsMeasuredAtLargeSizesOnlyTakeLessForSmallOnes) {
  const auto seconds = [](std::int64_t rows, const char* device) {
    program::Program program;
    program.add_tensor({.name = "x", .shape = {rows, 768}, .dtype = core::DType::bf16});
    for (const char* name : {"g", "b"})
      program.add_tensor({.name = name, .shape = {768}, .dtype = core::DType::bf16});
    program::Op op;
    op.def = &program::ops::kLayerNorm;
    op.inputs = {0, 1, 2};
    program.append(std::move(op), "y");
    const perfmodel::OpTimes times(devices::find_device(device), {});
    return times.time_of(program, program.ops[0]).seconds;
  };
  for (const char* device : {"h100-sxm", "h200", "a100-sxm"}) {
    EXPECT_LT(seconds(1024, device), 9e-6) << device;  // 3 MB
    EXPECT_GT(seconds(1, device), 1e-6) << device;
    EXPECT_NEAR(seconds(16384, device) / seconds(32768, device), 0.48, 0.05) << device;
  }
}

TEST(OpTimes, KernelsThatMoveMoreBytesTakeAsMuchLonger) {
  program::Program program;
  program.add_tensor({.name = "x", .shape = {1 << 16, 4096}, .dtype = core::DType::bf16});
  program::Op op;
  op.def = &program::ops::kGelu;
  op.inputs = {0};
  program.append(std::move(op), "y");
  program.tensor(1).dtype = core::DType::bf16;
  const auto device = devices::find_device("h100-sxm");
  const double once = perfmodel::OpTimes(device, {}).time_of(program, program.ops[0]).seconds;
  const perfmodel::OpTimes more(device, {.moved = {{"gelu", 3}}});
  EXPECT_NEAR(more.time_of(program, program.ops[0]).seconds / once, 3, 0.01);
}

TEST(OpTimes, ADeviceWithoutRatesIsRefused) {
  auto unknown = devices::device_reported_as("NVIDIA H1000", devices::Kind::gpu);
  EXPECT_THROW(perfmodel::OpTimes(unknown, {}), core::UsageError);
}

TEST(Pipeline, EqualStagesLeaveTheBubbleOfTheTextbook) {
  for (const auto schedule : {compile::PipelineSchedule::gpipe, compile::PipelineSchedule::one_f_one_b}) {
    for (const int p : {2, 4, 8}) {
      for (const int m : {1, 4, 16}) {
        const std::vector<perfmodel::StageTimes> stages(static_cast<std::size_t>(p), {1.0, 2.0, 0.5});
        const auto times = perfmodel::pipeline_times(stages, m, schedule);
        EXPECT_NEAR(times.step_s, (m + p - 1) * 3.0 + 0.5, 1e-9) << p << ' ' << m;
        EXPECT_NEAR(times.bubble_s / (3.0 * m), static_cast<double>(p - 1) / m, 1e-9) << p << ' ' << m;
      }
    }
  }
}

TEST(Pipeline, OneForwardOneBackwardKeepsAsManyMicroBatchesAsStagesFollow) {
  using compile::PipelineSchedule;
  const compile::Sharding four{.pipeline = 4};
  EXPECT_EQ(perfmodel::in_flight(0, four, 16), 4);
  EXPECT_EQ(perfmodel::in_flight(3, four, 16), 1);
  EXPECT_EQ(perfmodel::in_flight(0, four, 2), 2);
  EXPECT_EQ(perfmodel::in_flight(3, {.pipeline = 4, .schedule = PipelineSchedule::gpipe}, 16), 16);
  // Two parts each: (2 * 3 + 4 + 1) of them, half a micro-batch each.
  EXPECT_EQ(perfmodel::in_flight(0, {.pipeline = 4, .interleave = 2}, 16), 5.5);
}

TEST(Pipeline, InterleavedPartsFillItFaster) {
  const std::vector<perfmodel::StageTimes> stages(4, {1.0, 2.0, 0.0});
  const auto times = perfmodel::pipeline_times(stages, 8, compile::PipelineSchedule::one_f_one_b, 3);
  EXPECT_NEAR(times.step_s, 8 * 3.0 + 3 * 3.0 / 3, 1e-9);
}

/// What only a part at an end of the model has is in that part's passes, and the stage takes as long in all.
TEST(Pipeline, EndsOfTheModelAreInOnePart) {
  constexpr int kStages = 4, kParts = 2, kMicroBatches = 8;
  std::vector<perfmodel::StageTimes> stages(kStages, {1.0, 2.0, 0.0});
  stages.front() = {1.25, 2.0, 0.0, 0.25, 0.0};
  stages.back() = {1.5, 3.0, 0.0, 0.5, 1.0};
  std::vector<perfmodel::StageSpan> spans;
  const auto times = perfmodel::pipeline_times(stages, kMicroBatches, compile::PipelineSchedule::one_f_one_b,
                                               kParts, &spans);
  for (const auto& span : spans) {
    const bool is_first = span.stage == 0 && span.part == 0;
    const bool is_last = span.stage == kStages - 1 && span.part == kParts - 1;
    const double forward_s = 0.5 + (is_first ? 0.25 : 0) + (is_last ? 0.5 : 0);
    const double backward_s = 1.0 + (is_last ? 1.0 : 0);
    EXPECT_NEAR(span.end_s - span.start_s, span.is_forward ? forward_s : backward_s, 1e-12);
  }
  EXPECT_GE(times.step_s, kMicroBatches * 4.5);
}

TEST(Pipeline, HeadsAreKeptForOneMicroBatch) {
  using compile::PipelineSchedule;
  EXPECT_EQ(perfmodel::heads_in_flight({.pipeline = 4}, 16), 1);
  EXPECT_EQ(perfmodel::heads_in_flight({.pipeline = 4, .interleave = 2}, 16), 1);
  EXPECT_EQ(perfmodel::heads_in_flight({.pipeline = 4, .schedule = PipelineSchedule::gpipe}, 16), 16);
}

/// Each stage does one pass at a time, of all its parts and micro-batches, and no pass begins before those
/// that it reads have ended.
TEST(Pipeline, InterleavedPassesAreInTheirOrder) {
  constexpr int kStages = 4, kParts = 3, kMicroBatches = 8;
  const std::vector<perfmodel::StageTimes> stages(kStages, {1.0, 2.0, 0.5});
  std::vector<perfmodel::StageSpan> spans;
  perfmodel::pipeline_times(stages, kMicroBatches, compile::PipelineSchedule::one_f_one_b, kParts, &spans);
  ASSERT_EQ(spans.size(), 2U * kStages * kParts * kMicroBatches);
  std::map<std::array<std::int64_t, 3>, double> ends[2];  // by direction; micro-batch, part, stage
  std::vector<double> free_s(kStages);
  std::ranges::stable_sort(spans, {}, &perfmodel::StageSpan::start_s);
  for (const auto& span : spans) {
    double& free = free_s[static_cast<std::size_t>(span.stage)];
    EXPECT_GE(span.start_s, free - 1e-12);
    EXPECT_NEAR(span.end_s - span.start_s, (span.is_forward ? 1.0 : 2.0) / kParts, 1e-12);
    free = span.end_s;
    ends[span.is_forward ? 1 : 0][{span.micro_batch, span.part, span.stage}] = span.end_s;
  }
  for (const auto& span : spans) {
    // Parts of the model in their order: part * stages + stage.
    const int place = span.part * kStages + span.stage;
    const int from = span.is_forward ? place - 1 : place + 1;
    if (from >= 0 && from < kParts * kStages) {
      const double ready_s =
          ends[span.is_forward ? 1 : 0].at({span.micro_batch, from / kStages, from % kStages});
      EXPECT_GE(span.start_s, ready_s - 1e-12);
    } else if (!span.is_forward) {
      EXPECT_GE(span.start_s, ends[1].at({span.micro_batch, span.part, span.stage}) - 1e-12);
    }
  }
}

program::Program lanes(const std::vector<Lane>& order) {
  program::Program program;
  for (const Lane lane : order) {
    program::Op op;
    op.def = &program::ops::kAdd;
    op.lane = lane;
    program.ops.push_back(op);
  }
  return program;
}

void expect_whole(const perfmodel::Timeline& t) {
  EXPECT_NEAR(t.busy_s + t.slowed_s + t.exposed_s + t.host_s + t.waiting_s, t.step_s, 1e-12);
}

TEST(Simulate, WhatNobodyWaitsForIsHidden) {
  auto program = lanes({Lane::compute, Lane::communication, Lane::compute, Lane::compute});
  program.ops[3].waits = {1};
  const auto t = perfmodel::simulate(program, std::vector{1.0, 2.0, 5.0, 1.0}, {.other_slowdown = 1});
  EXPECT_DOUBLE_EQ(t.step_s, 7);
  EXPECT_DOUBLE_EQ(t.exposed_s, 0);
  EXPECT_DOUBLE_EQ(t.communication_s, 2);
  EXPECT_DOUBLE_EQ(t.spans[1].start_s, 1);
  expect_whole(t);
}

TEST(Simulate, WhatIsWaitedForIsExposed) {
  auto program = lanes({Lane::compute, Lane::communication, Lane::compute, Lane::compute});
  program.ops[3].waits = {1};
  const auto t = perfmodel::simulate(program, std::vector{1.0, 4.0, 1.0, 1.0}, {.other_slowdown = 1});
  EXPECT_DOUBLE_EQ(t.step_s, 6);
  EXPECT_DOUBLE_EQ(t.exposed_s, 3);
  expect_whole(t);
}

TEST(Simulate, OpsBesideACollectiveAreSlower) {
  auto program = lanes({Lane::communication, Lane::compute, Lane::compute});
  program.ops[2].waits = {0};
  const auto t = perfmodel::simulate(program, std::vector{3.0, 4.0, 1.0}, {.other_slowdown = 1.5});
  // In 3 s two thirds as much is done: 2; then 2 at full speed.
  EXPECT_DOUBLE_EQ(t.step_s, 6);
  EXPECT_DOUBLE_EQ(t.slowed_s, 1);
  expect_whole(t);
}

/// A collective over the network does not keep one within the node waiting.
TEST(Simulate, LinksRunBesideEachOther) {
  program::Program program =
      lanes({Lane::compute, perfmodel::kNetworkLane, Lane::communication, Lane::compute});
  program.ops[3].waits = {2};
  const auto t = perfmodel::simulate(program, std::vector{1.0, 4.0, 2.0, 3.0}, {.other_slowdown = 1});
  EXPECT_DOUBLE_EQ(t.step_s, 6);  // 1, then 2 exposed, then 3 beside the rest of the network's
  EXPECT_DOUBLE_EQ(t.exposed_s, 2);
  EXPECT_DOUBLE_EQ(t.communication_s, 4);
}

TEST(Simulate, ASlowHostBindsTheStep) {
  const auto t = perfmodel::simulate(lanes({Lane::compute, Lane::compute, Lane::compute}),
                                     std::vector{1.0, 1.0, 1.0}, {.launch_host_s = 2});
  EXPECT_DOUBLE_EQ(t.step_s, 7);
  EXPECT_DOUBLE_EQ(t.host_s, 4);
  expect_whole(t);
}

TEST(Simulate, TheBackgroundRunsWhereTheDeviceWouldWait) {
  auto program = lanes({Lane::compute, Lane::communication, Lane::background, Lane::compute, Lane::compute});
  program.ops[3].waits = {1};
  program.ops[4].waits = {2};
  const auto t = perfmodel::simulate(program, std::vector{1.0, 4.0, 2.0, 1.0, 1.0}, {.other_slowdown = 1});
  EXPECT_DOUBLE_EQ(t.step_s, 7);
  EXPECT_DOUBLE_EQ(t.exposed_s, 2);
  expect_whole(t);
}

TEST(Frameworks, AreFoundByNameOrSuggested) {
  EXPECT_EQ(perfmodel::find_framework("rooflm-fused").launch_host_s, 0);
  EXPECT_THROW(perfmodel::find_framework("pytorch"), core::UsageError);
}

}  // namespace
}  // namespace rooflm
