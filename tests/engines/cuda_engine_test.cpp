// Engines on an NVIDIA GPU compute what they compute on the processor: every kind of attention, recompute and
// batch splitting; a replayed step is the step.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using model::Arch;
using passes::AttentionKind;
using passes::Recompute;
using tests::StepRunner;

constexpr int kSteps = 20;
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kSeq = 13;

const std::string& missing_gpu() {
  static const std::string reason = [] {
    const auto status = backends::cuda::query_cuda();
    return status.devices.empty() ? status.reason : std::string();
  }();
  return reason;
}

compile::StepOptions make(compile::EngineKind engine, AttentionKind attention,
                          core::DType dtype = core::DType::f32, Recompute recompute = Recompute::none,
                          int micro_batches = 1) {
  return {.engine = engine,
          .attention = attention,
          .dtype = dtype,
          .recompute = recompute,
          .logits_padding = 64,
          .rewrites = {compile::Rewrite::compact_state, compile::Rewrite::gelu_in_epilogue,
                       compile::Rewrite::bias_in_gradients, compile::Rewrite::rebuild},
          .micro_batches = micro_batches};
}

/// Sees nothing; a step with an observer that wants to see each op is not replayed.
class Bystander final : public engines::Observer {
 public:
  void on_op_begin(const program::Program&, std::size_t) override {}
  void on_op_end(const program::Program&, std::size_t) override {}
};

/// Is content with the times of a replay.
class Marked final : public engines::Observer {
 public:
  [[nodiscard]] bool wants_marks() const override { return true; }
  void on_op_begin(const program::Program&, std::size_t) override {}
  void on_op_end(const program::Program&, std::size_t) override {}
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> last_weight;
};

Outcome train(const model::ModelConfig& config, const compile::StepOptions& options,
              std::unique_ptr<backends::Backend> backend, engines::Observer* observer = nullptr) {
  StepRunner runner(config, kBatch / options.micro_batches, kSeq, options, tests::initial_weights(config),
                    std::move(backend));
  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i % 3));
    outcome.losses.push_back(runner.step(batch, 3e-3, observer));
  }
  outcome.last_weight = runner.weight("h.1.feed_forward.fc1.weight");
  return outcome;
}

Outcome on_gpu(Arch arch, const compile::StepOptions& options, engines::Observer* observer = nullptr) {
  return train(tests::small_config(arch), options, backends::cuda::make_cuda_backend(0, {}), observer);
}

Outcome on_cpu(Arch arch, const compile::StepOptions& options) {
  return train(tests::small_config(arch), options,
               backends::make_cpu_backend(backends::CpuKernels::reference, 2));
}

void expect_close(const Outcome& a, const Outcome& b, double relative) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], relative * std::abs(b.losses[i])) << "step " << i;
  }
}

std::string describe(const compile::StepOptions& o) {
  return std::string(compile::name_of(o.engine)) + " " + std::string(passes::name_of(o.attention)) + " " +
         std::string(core::name_of(o.dtype)) + " " + std::string(passes::name_of(o.recompute)) + " in " +
         std::to_string(o.micro_batches);
}

class CudaEngine : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (!missing_gpu().empty()) GTEST_SKIP() << missing_gpu();
  }
};

/// Each kernel of a recorded step has one op, also beside others, under marks and where it took a memset's
/// place; as many as the op's kernel says.
TEST_P(CudaEngine, EachNodeOfARecordedStepHasOneOp) {
  constexpr std::size_t kOpsOfAMark = 64;
  for (const double clip : {1.0, 0.0}) {  // without clipping updates run beside the backward pass
    SCOPED_TRACE(clip);
    compile::StepOptions options = make(EngineKind::fused, AttentionKind::flash, core::DType::bf16);
    options.optimizer.clip_norm = clip;
    const auto config = tests::small_config(GetParam());
    StepRunner runner(config, kBatch, kSeq, options, tests::initial_weights(config),
                      backends::cuda::make_cuda_backend(0, {}));
    Marked marked;
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, 1);
    for (int i = 0; i < 2; ++i) runner.step(batch);
    runner.step(batch, 1e-3, &marked);
    const engines::Engine& engine = runner.engine();
    for (const bool with_marks : {false, true}) {
      SCOPED_TRACE(with_marks ? "with marks" : "without marks");
      const backends::Recording* recording = engine.recording(with_marks);
      ASSERT_NE(recording, nullptr);
      std::set<std::uint64_t> seen;
      std::vector<std::int64_t> nodes(engine.program().ops.size());
      std::size_t marks = 0;
      for (const backends::NodeOp& node : recording->nodes()) {
        EXPECT_TRUE(seen.insert(node.node).second) << "a node is listed twice";
        if (node.op) ++nodes.at(*node.op);
        marks += node.op ? 0 : 1;
      }
      EXPECT_LE(marks, nodes.size() / kOpsOfAMark + 1);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        const program::Op& op = engine.program().ops[i];
        if (op.phase == program::Phase::setup) continue;
        EXPECT_GT(nodes[i], 0) << op.def->name << " in " << op.scope;
        if (const auto launches = engine.kernel(i).launches) {
          EXPECT_EQ(nodes[i], *launches)
              << op.def->name << " in " << op.scope << ": " << engine.kernel(i).name;
        }
      }
    }
  }
}

/// fp32 accumulates in another order: 1e-4 relative over 20 steps, as between engines on the processor.
TEST_P(CudaEngine, LossesFollowTheProcessorInFp32) {
  const Outcome reference = on_cpu(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched));
  EXPECT_LT(reference.losses.back(), reference.losses.front() - 0.5) << "the model does not learn";
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const AttentionKind attention :
         {AttentionKind::looped, AttentionKind::batched, AttentionKind::flash}) {
      const compile::StepOptions options = make(engine, attention);
      SCOPED_TRACE(describe(options));
      expect_close(on_gpu(GetParam(), options), reference, 1e-4);
    }
  }
}

/// fp16 with loss scaling has three bits more than bf16.
TEST_P(CudaEngine, LossesFollowTheProcessorInFp16) {
  const Outcome reference = on_cpu(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched));
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash}) {
      for (const int splits : {1, 2}) {
        const compile::StepOptions options =
            make(engine, attention, core::DType::f16, Recompute::none, splits);
        SCOPED_TRACE(describe(options));
        expect_close(on_gpu(GetParam(), options), reference, 3e-3);
      }
    }
  }
}

/// A step that overflows is skipped on the device, in a replay as well.
TEST_P(CudaEngine, OverflowIsSkippedInReplaysAsOnTheProcessor) {
  const auto config = tests::small_config(GetParam());
  const compile::StepOptions options =
      make(compile::EngineKind::fused, AttentionKind::flash, core::DType::f16);
  const auto run = [&](std::unique_ptr<backends::Backend> backend) {
    StepRunner runner(config, kBatch, kSeq, options, tests::initial_weights(config), std::move(backend));
    const auto batch = tests::random_batch(kBatch * kSeq, config.vocab, 1);
    for (int i = 0; i < 3; ++i) runner.step(batch);
    runner.engine().store().write<float>("loss_scale", std::vector<float>{24, 5, 0});
    const auto before = runner.weight("h.1.feed_forward.fc1.weight");
    runner.step(batch);
    EXPECT_EQ(runner.weight("h.1.feed_forward.fc1.weight"), before);
    EXPECT_FALSE(std::isfinite(runner.gradient_norm()));
    return runner.engine().store().read<float>("loss_scale");
  };
  EXPECT_EQ(run(backends::cuda::make_cuda_backend(0, {})),
            run(backends::make_cpu_backend(backends::CpuKernels::reference, 2)));
}

/// bf16 has 8 bits of mantissa: 2 % over 20 steps, as on the processor.
TEST_P(CudaEngine, LossesFollowTheProcessorInBf16) {
  const Outcome reference = on_cpu(GetParam(), make(compile::EngineKind::eager, AttentionKind::batched));
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash}) {
      const compile::StepOptions options = make(engine, attention, core::DType::bf16);
      SCOPED_TRACE(describe(options));
      expect_close(on_gpu(GetParam(), options), reference, 2e-2);
    }
  }
}

TEST_P(CudaEngine, SplitsOfTheBatchAgree) {
  const Outcome whole = on_gpu(GetParam(), make(compile::EngineKind::fused, AttentionKind::flash));
  expect_close(on_gpu(GetParam(), make(compile::EngineKind::fused, AttentionKind::flash, core::DType::f32,
                                       Recompute::none, 2)),
               whole, 1e-4);
}

/// Rows of no multiple of 16 bytes: GELU is an op of its own, whether it is computed again or not.
TEST_P(CudaEngine, ReplaysRunsAndRecomputeKindsAreBitIdentical) {
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
    const Outcome replayed =
        on_gpu(GetParam(), make(compile::EngineKind::fused, AttentionKind::flash, dtype));
    Bystander bystander;
    const Outcome submitted =
        on_gpu(GetParam(), make(compile::EngineKind::fused, AttentionKind::flash, dtype), &bystander);
    EXPECT_EQ(replayed.losses, submitted.losses);
    EXPECT_EQ(replayed.last_weight, submitted.last_weight);
    for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const bool rebuild : {false, true}) {
        compile::StepOptions options = make(compile::EngineKind::fused, AttentionKind::flash, dtype, kind);
        options.rewrites.set(compile::Rewrite::rebuild, rebuild);
        SCOPED_TRACE(describe(options) + (rebuild ? ", rebuilt" : ""));
        const Outcome other = on_gpu(GetParam(), options);
        EXPECT_EQ(replayed.losses, other.losses);
        EXPECT_EQ(replayed.last_weight, other.last_weight);
      }
    }
  }
}

/// Rows of multiples of 16 bytes, which GELU as part of a matmul needs. There it is taken of sums that are
/// not rounded; where activations are computed again, of rounded ones. Tolerances are those of odd sizes.
TEST_P(CudaEngine, AlignedSizesFollowTheProcessorAndRepeat) {
  model::ModelConfig config = tests::small_config(GetParam());
  config.d_model = 48;
  config.d_ff = 96;
  config.head_dim = config.d_model / config.heads;
  const auto gpu = [&](core::DType dtype, Recompute kind, engines::Observer* observer = nullptr) {
    return train(config, make(compile::EngineKind::fused, AttentionKind::flash, dtype, kind),
                 backends::cuda::make_cuda_backend(0, {}), observer);
  };
  const Outcome reference = train(config, make(compile::EngineKind::eager, AttentionKind::batched),
                                  backends::make_cpu_backend(backends::CpuKernels::reference, 2));
  for (const auto& [dtype, tolerance] :
       {std::pair{core::DType::f32, 1e-4}, std::pair{core::DType::bf16, 2e-2},
        std::pair{core::DType::f16, 3e-3}}) {
    SCOPED_TRACE(core::name_of(dtype));
    const Outcome kept = gpu(dtype, Recompute::none);
    expect_close(kept, reference, tolerance);
    Bystander bystander;
    EXPECT_EQ(gpu(dtype, Recompute::none, &bystander).last_weight, kept.last_weight);
    const Outcome selective = gpu(dtype, Recompute::selective);
    expect_close(selective, reference, tolerance);
    EXPECT_EQ(gpu(dtype, Recompute::full).last_weight, selective.last_weight);
  }
}

/// Without clipping updates run beside the backward pass where a step is replayed, after it where an observer
/// looks on.
TEST_P(CudaEngine, UpdatesBesideTheBackwardPassAreBitIdentical) {
  model::ModelConfig config = tests::small_config(GetParam());
  config.layers = 6;  // of about two million parameters, so that updates begin in the middle
  config.d_model = 384;
  config.d_ff = 1536;
  config.head_dim = config.d_model / config.heads;
  compile::StepOptions options = make(compile::EngineKind::fused, AttentionKind::flash, core::DType::bf16);
  options.optimizer.clip_norm = 0;
  const auto last_weights = [&](engines::Observer* observer) {
    StepRunner runner(config, kBatch, kSeq, options, tests::initial_weights(config),
                      backends::cuda::make_cuda_backend(0, {}));
    for (int i = 0; i < kSteps; ++i) {
      runner.step(tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(i)), 3e-3,
                  observer);
    }
    std::vector<std::vector<double>> weights;
    for (const auto& parameter : model::parameters(config)) weights.push_back(runner.weight(parameter.name));
    return weights;
  };
  Bystander bystander;
  EXPECT_EQ(last_weights(nullptr), last_weights(&bystander));
}

/// Phases are the device's own time, the step is the host's: it also waits for the submission.
TEST_P(CudaEngine, PhasesAddUpToNoMoreThanTheStep) {
  const auto config = tests::small_config(GetParam());
  for (const compile::EngineKind engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
    const compile::StepOptions options = make(engine, compile::default_attention(engine));
    StepRunner runner(config, kBatch, kSeq, options, tests::initial_weights(config),
                      backends::cuda::make_cuda_backend(0, {}));
    runner.step(tests::random_batch(kBatch * kSeq, config.vocab, 1));
    const engines::StepTimes times = runner.engine().run();
    EXPECT_GT(times.forward_s, 0.0);
    EXPECT_GT(times.backward_s, 0.0);
    EXPECT_GT(times.optimizer_s, 0.0);
    EXPECT_LE(times.forward_s + times.backward_s + times.optimizer_s, times.step_s);
  }
}

INSTANTIATE_TEST_SUITE_P(BothKinds, CudaEngine, testing::Values(Arch::gpt2, Arch::llama),
                         [](const auto& kind) { return std::string(model::name_of(kind.param)); });

}  // namespace
}  // namespace rooflm
