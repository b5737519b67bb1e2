// Observed steps on an NVIDIA GPU are replayed, marks included: the same numbers, and times that add up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "core/error.h"
#include "model/forward.h"
#include "program/ops.h"
#include "record/op_times.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"
#include "trace/activity_tracer.h"
#include "trace/alone_recorder.h"
#include "trace/op_recorder.h"
#include "trace/op_spans.h"
#include "trace/step_trace.h"

namespace rooflm {
namespace {

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kSeq = 13;
constexpr int kSteps = 6;

class CudaTrace : public testing::TestWithParam<compile::EngineKind> {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
  }
  tests::StepRunner make() const {
    const compile::StepOptions options{.engine = GetParam(),
                                       .attention = compile::default_attention(GetParam())};
    return {config,
            kBatch,
            kSeq,
            options,
            tests::initial_weights(config),
            backends::cuda::make_cuda_backend(0, {})};
  }

  const model::ModelConfig config = tests::small_config(model::Arch::llama);
};

TEST_P(CudaTrace, EveryObservedStepHasEveryOpOnceWithinItsTime) {
  constexpr double kSlack = 1.05;
  constexpr double kSecondsPerNs = 1e-9;
  auto plain = make();
  auto observed = make();
  trace::OpRecorder recorder(observed.engine().program(), observed.backend(), kSteps);
  std::size_t ops = 0;
  for (const auto& op : observed.engine().program().ops) ops += op.phase == program::Phase::setup ? 0 : 1;
  for (int i = 0; i < kSteps; ++i) {
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i));
    recorder.set_step(i);
    EXPECT_EQ(observed.step(batch, 1e-3, &recorder), plain.step(batch, 1e-3)) << "step " << i;
    EXPECT_EQ(recorder.events().size(), ops * static_cast<std::size_t>(i + 1));
  }
  EXPECT_EQ(observed.weight("h.1.feed_forward.fc1.weight"), plain.weight("h.1.feed_forward.fc1.weight"));
  recorder.set_step(kSteps);
  const engines::StepTimes times = observed.engine().run(&recorder);
  double device_s = 0;
  for (const record::Event& event : recorder.events()) {
    EXPECT_GE(event.device_ns, 0);
    if (event.step == kSteps) device_s += static_cast<double>(event.device_ns) * kSecondsPerNs;
  }
  EXPECT_GT(device_s, 0.0);
  EXPECT_LE(device_s, times.step_s * kSlack);
}

/// Launch, kernels and waiting of an op alone are more than its kernels, and no number changes.
TEST_P(CudaTrace, OpsAloneTakeLongerThanTheirKernels) {
  auto plain = make();
  auto alone = make();
  trace::OpRecorder observed(plain.engine().program(), plain.backend(), kSteps);
  trace::AloneRecorder recorder(alone.engine().program(), alone.backend());
  for (int i = 0; i < kSteps; ++i) {
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i));
    EXPECT_EQ(alone.step(batch, 1e-3, i < 2 ? nullptr : &recorder), plain.step(batch, 1e-3, &observed)) << i;
  }
  double wall_s = 0;
  for (const record::Counter& counter : recorder.counters()) wall_s += counter.value;
  double device_s = 0;
  for (const record::OpTime& time : record::summarise_ops(observed.events())) device_s += time.device_s;
  EXPECT_EQ(recorder.counters().size(), record::summarise_ops(observed.events()).size());
  EXPECT_GT(wall_s, device_s);
}

/// Traced kernels belong to ops, and to the step that asked for them; tracing changes no number.
TEST_P(CudaTrace, EveryTracedKernelIsOfAnOp) {
  auto plain = make();
  auto traced = make();
  std::unique_ptr<trace::ActivityTracer> tracer;
  try {
    tracer = trace::open_cupti();
  } catch (const core::Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  trace::NodeOps nodes;
  trace::OpSpans spans;
  std::vector<trace::TracedStep> steps;
  for (int i = 0; i < kSteps; ++i) {
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i));
    const double wanted = plain.step(batch);
    const backends::Recording* recording = traced.engine().recording(false);
    const bool is_traced = i > 1;  // the first are not replayed
    if (i == 2 && recording != nullptr) {
      for (const backends::NodeOp& node : recording->nodes()) {
        const auto id = tracer->node_id(node.node);
        ASSERT_TRUE(id.has_value());
        nodes.add(*id, node.op, node.part);
      }
    }
    if (is_traced) tracer->start(true);
    steps.push_back({.step = i, .begin_ns = trace::steady_ns(), .nodes = &nodes});
    EXPECT_EQ(traced.step(batch, 1e-3, recording == nullptr ? &spans : nullptr), wanted) << "step " << i;
    steps.back().end_ns = trace::steady_ns();
    steps.back().ops = spans.take();
    if (!steps.back().ops.empty()) steps.back().nodes = nullptr;
    if (is_traced) tracer->stop();
  }
  const trace::DeviceTrace found = tracer->take();
  EXPECT_EQ(found.dropped, 0);
  ASSERT_FALSE(found.devices.empty());
  const trace::TraceRows rows = trace::rows_of(found, steps, 0, "cuda");
  EXPECT_GT(rows.kernels, 0);
  EXPECT_EQ(rows.without_op, 0);
  for (const record::Activity& activity : rows.activities) {
    EXPECT_GE(activity.end_ns, activity.start_ns);
    ASSERT_TRUE(activity.step.has_value());
    EXPECT_GE(activity.start_ns, steps.at(static_cast<std::size_t>(*activity.step)).begin_ns);
  }
  // An eager step takes the memory of its tensors and gives all of it back; a fused one takes none.
  std::int64_t taken = 0;
  std::int64_t live_bytes = 0;
  for (const record::Activity& activity : rows.activities) {
    if (rows.names.at(static_cast<std::size_t>(activity.name)).kind != "memory") continue;
    taken += activity.bytes.value_or(0) > 0 ? 1 : 0;
    live_bytes += activity.bytes.value_or(0);
    EXPECT_TRUE(activity.op.has_value());
  }
  EXPECT_EQ(taken > 0, GetParam() == compile::EngineKind::eager);
  EXPECT_EQ(live_bytes, 0);
}

/// A replay that is held begins when it is submitted, and computes the same.
TEST_P(CudaTrace, AHeldStepComputesTheSame) {
  auto plain = make();
  auto held = make();
  for (int i = 0; i < kSteps; ++i) {
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i));
    EXPECT_EQ(held.step(batch), plain.step(batch));
  }
  const engines::StepTimes times = held.engine().run(nullptr, engines::Start::when_submitted);
  plain.engine().run();
  EXPECT_EQ(times.was_held, held.engine().recording(false) != nullptr);
  EXPECT_GT(times.step_s, 0);
  EXPECT_EQ(held.weight("h.1.feed_forward.fc1.weight"), plain.weight("h.1.feed_forward.fc1.weight"));
}

std::unique_ptr<trace::ActivityTracer> open_or_null(const trace::TracerMemory& memory, std::string& reason) {
  try {
    return trace::open_cupti(memory);
  } catch (const core::Unavailable& error) {
    reason = error.what();
    return nullptr;
  }
}

/// What finds no room is counted; what did find room is whole, and steps compute the same.
TEST_P(CudaTrace, AnOverflowIsCounted) {
  constexpr int kManySteps = 30;
  auto runner = make();
  std::string reason;
  const auto tracer = open_or_null({.buffers = 2, .bytes_of_each = std::size_t{32} << 10U}, reason);
  if (tracer == nullptr) GTEST_SKIP() << reason;
  const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, 1);
  for (int i = 0; i < 2; ++i) runner.step(batch);
  tracer->start(false);
  for (int i = 0; i < kManySteps; ++i) runner.step(batch);
  tracer->stop();
  const trace::DeviceTrace found = tracer->take();
  EXPECT_GT(found.dropped, 0);
  for (const trace::DeviceActivity& activity : found.activities)
    EXPECT_GE(activity.end_ns, activity.start_ns);
  EXPECT_EQ(tracer->take().dropped, 0);
}

/// A kernel that faults while it is traced: the message names it, and nobody waits for the profiler.
TEST(CudaTraceFault, IsSaidInOneLine) {
  constexpr int kFaultSaid = 3;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (const auto status = backends::cuda::query_cuda(); status.devices.empty()) GTEST_SKIP() << status.reason;
  const auto run = [] {
    const auto gpu = backends::cuda::make_cuda_backend(0, {});
    const auto program =
        compile::training_step(model::forward(tests::small_config(model::Arch::llama), kBatch, kSeq), {});
    const auto gelu =
        std::ranges::find_if(program.ops, [](const program::Op& op) { return op.is(program::ops::kSwiGlu); });
    const backends::Kernel kernel = gpu->make_kernel(program, *gelu);
    const auto tracer = trace::open_cupti();
    tracer->start(false);
    const std::vector<void*> nowhere(4, reinterpret_cast<void*>(std::uintptr_t{4096}));
    std::string text;
    try {
      kernel({.in = nowhere, .out = nowhere});
      gpu->synchronize();
    } catch (const core::Unavailable& error) {
      text = error.what();
    }
    tracer->stop();
    try {
      static_cast<void>(tracer->take());
    } catch (const core::Unavailable& error) {
      text += std::string("; ") + error.what();
    }
    std::fprintf(stderr, "%s\n", text.c_str());
    std::_Exit(text.find("swiglu") != std::string::npos && text.find('\n') == std::string::npos ? kFaultSaid
                                                                                                : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(kFaultSaid), "illegal memory access");
}

INSTANTIATE_TEST_SUITE_P(BothEngines, CudaTrace,
                         testing::Values(compile::EngineKind::eager, compile::EngineKind::fused),
                         [](const auto& kind) { return std::string(compile::name_of(kind.param)); });

}  // namespace
}  // namespace rooflm
