// A run that was interrupted and continued computes what an uninterrupted one computes, bit for bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "tests/case_names.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

using compile::EngineKind;

/// What a log says about the numbers, without times.
std::vector<std::string> numbers_of(const std::filesystem::path& log) {
  std::vector<std::string> lines;
  std::istringstream text(testing::read_text(log));
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    nlohmann::json kept;
    for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens", "val_loss"}) kept[key] = json[key];
    lines.push_back(kept.dump());
  }
  return lines;
}

class Resume : public ::testing::TestWithParam<std::tuple<EngineKind, core::DType, int, model::Arch>> {
 protected:
  static constexpr std::int64_t kSteps = 9;

  TrainOptions options(const std::string& out) {
    TrainOptions o = testing::tiny_options(directory_ / out, kSteps);
    o.step.engine = std::get<0>(GetParam());
    o.step.attention = compile::default_attention(o.step.engine);
    o.step.fp8 = core::is_fp8(std::get<1>(GetParam()));
    o.step.dtype = o.step.fp8 ? core::DType::bf16 : std::get<1>(GetParam());
    o.step.micro_batches = std::get<2>(GetParam());
    o.eval_every = 3;
    return o;
  }
  [[nodiscard]] static model::ModelConfig config() { return testing::tiny_model(std::get<3>(GetParam())); }

  /// Both kinds of runs are among the cases.
  [[nodiscard]] static int threads() {
    return std::get<1>(GetParam()) == core::DType::f32 && std::get<2>(GetParam()) == 1 ? 2 : 1;
  }

  /// Trains until a checkpoint at `stop`, as if a signal had come then.
  void train_until(const TrainOptions& o, const TrainingData& data, std::int64_t stop) {
    TrainOptions part = o;
    part.checkpoint_every = stop;
    part.keep = kSteps;
    testing::run_training(config(), part, data, {}, threads());
    for (const auto& checkpoint : list_checkpoints(o.out)) {
      if (read_checkpoint_state(checkpoint).step > stop) std::filesystem::remove_all(checkpoint);
    }
  }

  testing::ScratchDirectory directory_;
};

TEST_P(Resume, IsBitForBit) {
  const TrainingData data = testing::tiny_data(directory_);
  const TrainOptions whole = options("whole");
  testing::run_training(config(), whole, data, {}, threads());
  const TrainOptions parts = options("parts");
  train_until(parts, data, 4);
  const TrainSummary summary = testing::run_training(
      config(), parts, data,
      {.weights = {}, .checkpoint = list_checkpoints(parts.out).back(), .may_resume = true}, threads());
  EXPECT_EQ(summary.step, kSteps);
  EXPECT_EQ(numbers_of(whole.out / "log.jsonl"), numbers_of(parts.out / "log.jsonl"));
  EXPECT_EQ(numbers_of(whole.out / "log.jsonl").size(), static_cast<std::size_t>(kSteps));
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const auto name = std::filesystem::path("checkpoint-000009") / file;
    if (std::string(file) == "state.json") {
      const CheckpointState a = read_checkpoint_state(whole.out / "checkpoint-000009");
      const CheckpointState b = read_checkpoint_state(parts.out / "checkpoint-000009");
      EXPECT_EQ(a.loader, b.loader);
      EXPECT_EQ(a.best_val_loss, b.best_val_loss);
      continue;
    }
    EXPECT_TRUE(testing::read_text(whole.out / name) == testing::read_text(parts.out / name)) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, Resume,
                         ::testing::Combine(::testing::Values(EngineKind::eager, EngineKind::fused),
                                            ::testing::Values(core::DType::f32, core::DType::bf16,
                                                              core::DType::f16, core::DType::f8),
                                            ::testing::Values(1, 3),
                                            ::testing::Values(model::Arch::gpt2, model::Arch::llama)),
                         tests::TupleName());

}  // namespace
}  // namespace rooflm::train
