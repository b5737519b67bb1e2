// Other ways to the same loss: runs with other optimizers, narrow moments and adapters go on bit for bit, and
// adapters are files that go with their base.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"
#include "tests/case_names.h"
#include "train/adapter_files.h"
#include "train/checkpoint.h"
#include "train/session.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

using compile::EngineKind;

struct Method {
  const char* name;
  passes::OptimizerKind kind = passes::OptimizerKind::adamw;
  passes::StateKind states = passes::StateKind::fp32;
  const char* lora = "";
  core::DType dtype = core::DType::f32;
};
using passes::OptimizerKind;
using passes::StateKind;
constexpr Method kMethods[] = {{.name = "lion", .kind = OptimizerKind::lion},
                               {.name = "muon", .kind = OptimizerKind::muon, .states = StateKind::eight_bit},
                               {.name = "muon_bf16", .kind = OptimizerKind::muon, .dtype = core::DType::bf16},
                               {.name = "shampoo", .kind = OptimizerKind::shampoo},
                               {.name = "bf16_states", .states = StateKind::bf16},
                               {.name = "narrow", .states = StateKind::eight_bit, .dtype = core::DType::bf16},
                               {.name = "lora", .lora = "4,alpha=16,targets=all-linear"},
                               {.name = "lora_bf16", .lora = "2,targets=c_attn", .dtype = core::DType::bf16},
                               {.name = "dora", .lora = "4,dora,alpha=16,targets=all-linear"},
                               {.name = "dora_bf16", .lora = "2,dora,rslora", .dtype = core::DType::bf16}};

class Methods : public ::testing::TestWithParam<std::tuple<EngineKind, std::size_t>> {
 protected:
  static constexpr std::int64_t kSteps = 6;

  [[nodiscard]] static const Method& method() { return kMethods[std::get<1>(GetParam())]; }
  [[nodiscard]] static bool has_lora() { return *method().lora != 0; }

  TrainOptions options(const std::string& out) {
    TrainOptions o = testing::tiny_options(directory_ / out, kSteps);
    o.step.engine = std::get<0>(GetParam());
    o.step.attention = compile::default_attention(o.step.engine);
    o.step.dtype = method().dtype;
    o.step.optimizer.kind = method().kind;
    o.step.optimizer.states = method().states;
    o.step.lora = method().lora;
    o.eval_every = 3;
    return o;
  }

  /// A model to begin from, where adapters are trained.
  TrainStart start(const TrainingData& data) {
    if (!has_lora()) return {};
    TrainOptions o = testing::tiny_options(directory_ / "base", 2);
    testing::run_training(testing::tiny_model(), o, data);
    return {.weights = list_checkpoints(o.out).back(), .checkpoint = {}, .may_resume = false};
  }

  testing::ScratchDirectory directory_;
};

TEST_P(Methods, GoOnBitForBit) {
  const TrainingData data = testing::tiny_data(directory_);
  const TrainStart begin = start(data);
  const TrainOptions whole = options("whole");
  const TrainSummary summary = testing::run_training(testing::tiny_model(), whole, data, begin);
  TrainOptions parts = options("parts");
  parts.checkpoint_every = 3;
  testing::run_training(testing::tiny_model(), parts, data, begin);
  const auto checkpoints = list_checkpoints(parts.out);
  ASSERT_EQ(checkpoints.size(), 2U);
  std::filesystem::remove_all(checkpoints.back());
  const TrainSummary again =
      testing::run_training(testing::tiny_model(), options("parts"), data,
                            {.weights = {}, .checkpoint = checkpoints.front(), .may_resume = true});
  EXPECT_EQ(again.trained_steps, 3);
  EXPECT_EQ(again.loss, summary.loss);
  EXPECT_EQ(again.val_loss, summary.val_loss);
  for (const char* file : {has_lora() ? kAdapterWeights : "model.safetensors", "optimizer.safetensors"}) {
    const std::string bytes = testing::read_text(list_checkpoints(whole.out).back() / file);
    EXPECT_FALSE(bytes.empty()) << file;
    EXPECT_TRUE(bytes == testing::read_text(list_checkpoints(parts.out).back() / file)) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Methods,
                         ::testing::Combine(::testing::Values(EngineKind::eager, EngineKind::fused),
                                            ::testing::Range(std::size_t{0}, std::size(kMethods))),
                         [](const auto& method) {
                           return std::string(name_of(std::get<0>(method.param))) + "_" +
                                  kMethods[std::get<1>(method.param)].name;
                         });

/// Sessions that know nothing of adapters have the merged weights.
TEST(AdapterFiles, AreMergedAndCheckedWhereTheyAreRead) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  const model::ModelConfig config = testing::tiny_model();
  const TrainOptions base = testing::tiny_options(directory / "base", 2);
  testing::run_training(config, base, data);
  TrainOptions tuned = testing::tiny_options(directory / "tuned", 4);
  tuned.step.lora = "3,alpha=9,targets=c_fc,c_attn";
  testing::run_training(
      config, tuned, data,
      {.weights = list_checkpoints(base.out).back(), .checkpoint = {}, .may_resume = false});
  const std::filesystem::path found = list_checkpoints(tuned.out).back();
  EXPECT_FALSE(std::filesystem::exists(found / "model.safetensors"));
  const auto text = nlohmann::json::parse(testing::read_text(found / kAdapterConfig));
  EXPECT_EQ(text.at("r"), 3);
  EXPECT_EQ(text.at("lora_alpha"), 9.0);
  EXPECT_EQ(text.at("fan_in_fan_out"), true);
  EXPECT_EQ(text.at("target_modules"), (nlohmann::json{"c_attn", "c_fc"}));

  std::map<std::string, std::vector<float>> before, after, factors;
  const auto keep = [](auto& map) {
    return [&map](const std::string& name, std::span<const float> values) {
      map[name] = {values.begin(), values.end()};
    };
  };
  model::load_weights(list_checkpoints(base.out).back(), config, keep(before));
  load_merged(found, config, keep(after));
  load_adapters(found, passes::find_adapters(config, tuned.step.lora), keep(factors));
  const std::string module = "transformer.h.1.mlp.c_fc";
  const std::vector<float>& a = factors.at(module + ".lora_A.weight");
  const std::vector<float>& b = factors.at(module + ".lora_B.weight");
  const std::vector<float>& w = before.at("h.1.feed_forward.fc1.weight");
  for (std::size_t i = 0; i < w.size(); ++i) {
    double sum = 0;
    for (std::size_t r = 0; r < 3; ++r) sum += 3.0 * b[i / 16 * 3 + r] * a[r * 16 + i % 16];
    EXPECT_NEAR(after.at("h.1.feed_forward.fc1.weight")[i], w[i] + sum, 1e-6) << i;
  }
  EXPECT_NE(after.at("h.1.feed_forward.fc1.weight"), w);
  EXPECT_EQ(after.at("h.1.feed_forward.fc2.weight"), before.at("h.1.feed_forward.fc2.weight"));

  const auto refusal = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = testing::read_text(found / kAdapterConfig);
    changed.replace(changed.find(from), from.size(), to);
    const std::filesystem::path other = directory / "other";
    std::filesystem::create_directories(other);
    std::filesystem::copy(found / kAdapterWeights, other / kAdapterWeights,
                          std::filesystem::copy_options::overwrite_existing);
    testing::write_text(other / kAdapterConfig, changed);
    try {
      check_merged(other, config);
    } catch (const core::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("CAUSAL_LM", "CAUSAL_LM"), "");
  EXPECT_NE(refusal("\"r\": 3", "\"r\": 2").find("another model"), std::string::npos);
  EXPECT_NE(refusal("c_fc", "q_proj").find("c_fc.lora_A.weight is not of an adapter"), std::string::npos);
  EXPECT_NE(refusal("LORA", "IA3").find("peft_type"), std::string::npos);
  EXPECT_NE(refusal("\"none\"", "\"all\"").find("bias"), std::string::npos);
}

TEST(AdapterFiles, BeginBesideWeightsThatHaveFiles) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  TrainOptions options = testing::tiny_options(directory / "out", 2);
  options.step.lora = "2";
  EXPECT_THROW(testing::run_training(testing::tiny_model(), options, data), core::UsageError);
}

}  // namespace
}  // namespace rooflm::train
