// What families have between matmuls: all ways of running a step compute the same numbers, and gradients are
// those of the loss.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "tests/compile/passes/recipes.h"
#include "tests/engines/decode_check.h"
#include "tests/engines/step_runner.h"

namespace rooflm::tests {
namespace {

using compile::EngineKind;
using model::Activation;
using model::Arch;
using model::ModelConfig;
using model::Norm;
using model::NormPlace;
using model::QkNorm;
using model::Residual;
using passes::Recompute;

/// A change that makes a small Llama or GPT-2 one of that family.
struct Kind {
  std::string name;
  void (*change)(ModelConfig&);
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

void make_layer(ModelConfig& c, bool has_weight) {
  c.arch.norm = Norm::layer;
  c.arch.norm_weight = has_weight;
}

const Kind kKinds[] = {
    {"gemma2",
     [](ModelConfig& c) {
       c.arch.activation = Activation::gelu_tanh;
       c.arch.norm_place = NormPlace::both;
       c.embedding_scale = 2;
       c.logit_cap = 3;
     }},
    {"bloom", [](ModelConfig& c) { c.arch.embedding_norm = true; }},
    {"neox",
     [](ModelConfig& c) {
       make_layer(c, true);
       c.arch.norm_bias = c.mlp_bias = true;
       c.arch.gated = false;
       c.arch.activation = Activation::gelu;
       c.arch.residual = Residual::parallel;
     }},
    {"mpt", [](ModelConfig& c) { make_layer(c, true); }},
    {"olmo", [](ModelConfig& c) { make_layer(c, false); }},
    {"olmo2",
     [](ModelConfig& c) {
       c.arch.norm_place = NormPlace::after;
       c.qk_norm = QkNorm::whole;
     }},
    {"qwen3", [](ModelConfig& c) { c.qk_norm = QkNorm::head; }},
    {"cohere",
     [](ModelConfig& c) {
       make_layer(c, true);
       c.qk_norm = QkNorm::heads;
       c.arch.residual = Residual::parallel_one_norm;
       c.logit_scale = 0.5;
     }},
    {"llama4",
     [](ModelConfig& c) {
       c.qk_norm = QkNorm::unweighted;
       c.rotary.in_layer = {true, false};
     }},
    {"granite",
     [](ModelConfig& c) {
       c.embedding_scale = 3;
       c.residual_scale = 0.4;
       c.logit_scale = 0.7;
     }},
    {"phi", [](ModelConfig& c) { c.head_bias = true; }},
    {"opt",
     [](ModelConfig& c) {
       c.arch.gated = false;
       c.arch.activation = Activation::relu;
     }},
    {"nemotron",
     [](ModelConfig& c) {
       c.arch.gated = false;
       c.arch.activation = Activation::relu2;
     }},
    {"apertus",
     [](ModelConfig& c) {
       c.arch.gated = false;
       c.arch.activation = Activation::xielu;
     }},
    {"gpt_oss",
     [](ModelConfig& c) {
       c.arch.activation = Activation::clipped_swiglu;
       c.experts = {.count = 5, .active = 2, .d_ff = 11, .router_bias = true, .biases = true};
     }},
    {"qwen2_moe",
     [](ModelConfig& c) {
       c.experts = {.count = 5, .active = 2, .d_ff = 11, .shared_d_ff = 6, .shared_gate = true};
     }},
    {"balanced_by_bias",
     [](ModelConfig& c) {
       c.experts = {.count = 5, .active = 2, .d_ff = 11, .sigmoid_scores = true, .score_bias = true};
     }},
};

class Families : public testing::TestWithParam<Kind> {
 protected:
  static constexpr std::int64_t kTexts = 3;
  static constexpr std::int64_t kTokens = 11;

  [[nodiscard]] static ModelConfig config() {
    ModelConfig config = small_config(Arch::llama);
    GetParam().change(config);
    return config;
  }
  [[nodiscard]] static compile::StepOptions options_of(EngineKind engine, core::DType dtype,
                                                       Recompute recompute = Recompute::none) {
    return {.engine = engine,
            .attention = compile::default_attention(engine),
            .dtype = dtype,
            .recompute = recompute};
  }
  /// Weights as they begin, but biases and the like that are not all 0 or 1.
  [[nodiscard]] static StepRunner::Weights weights_of(const ModelConfig& config) {
    StepRunner::Weights weights = initial_weights(config);
    for (auto& [name, values] : weights) {
      // Scores of experts that are far apart: which are chosen must not hang on rounding.
      for (double& value : values) value *= name.ends_with("router.weight") ? 20 : 1;
      const bool is_even =
          std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
      for (std::size_t i = 0; is_even && i < values.size(); ++i)
        values[i] += 0.2 * std::sin(static_cast<double>(i + name.size()));
    }
    return weights;
  }
  [[nodiscard]] static std::vector<double> losses(const compile::StepOptions& options) {
    StepRunner runner(config(), kTexts, kTokens, options, weights_of(config()));
    std::vector<double> losses;
    for (int i = 0; i < 12; ++i)
      losses.push_back(runner.step(
          random_batch(kTexts * kTokens, config().vocab, static_cast<std::uint64_t>(i % 2)), 5e-3));
    return losses;
  }
  static void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                          double relative) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(actual[i], expected[i], relative * expected[i]) << "step " << i;
  }
};

TEST_P(Families, CanRun) { EXPECT_EQ(model::uncomputed(config()), ""); }

TEST_P(Families, EnginesFollowDoublePrecision) {
  const auto fp64 = losses(options_of(EngineKind::eager, core::DType::f64));
  EXPECT_LT(fp64.back(), fp64.front() - 0.2) << "the model does not learn";
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const auto fp32 = losses(options_of(engine, core::DType::f32));
    expect_near(fp32, fp64, 1e-4);
    EXPECT_EQ(losses(options_of(engine, core::DType::f32, Recompute::full)), fp32);
    expect_near(losses(options_of(engine, core::DType::bf16)), fp64, 3e-2);
  }
}

/// Along a direction that moves every weight. An SGD step moves a weight by the rate times its gradient.
TEST_P(Families, GradientsAreThoseOfTheLoss) {
  const ModelConfig config = Families::config();
  compile::StepOptions options = options_of(EngineKind::eager, core::DType::f64);
  options.optimizer = {.kind = passes::OptimizerKind::sgd, .weight_decay = 0, .clip_norm = 0};
  const StepRunner::Weights weights = weights_of(config);
  const Batch batch = random_batch(kTexts * kTokens, config.vocab, 1);
  StepRunner moved(config, kTexts, kTokens, options, weights, 1);
  constexpr double kRate = 1e-3;
  constexpr double kShift = 1e-7;  // with more, a token may change its experts, where the loss jumps
  static_cast<void>(moved.step(batch, kRate));
  double expected = 0;
  std::uint64_t number = 0;
  StepRunner::Weights more = weights;
  StepRunner::Weights less = weights;
  for (const auto& [name, values] : weights) {
    const std::vector<double> after = moved.weight(name);
    const bool is_chosen_with =
        name.ends_with("score_bias");  // no gradient, and a jump where the choice changes
    double greatest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double gradient = (values[i] - after[i]) / kRate;
      const double direction = is_chosen_with ? 0 : std::sin(static_cast<double>(++number));
      greatest = std::max(greatest, std::abs(gradient));
      expected += gradient * direction;
      more[name][i] += kShift * direction;
      less[name][i] -= kShift * direction;
    }
    EXPECT_EQ(greatest > 0, !is_chosen_with) << name;
  }
  const auto loss = [&](const StepRunner::Weights& at) {
    return StepRunner(config, kTexts, kTokens, options, at, 1).step(batch, 0);
  };
  EXPECT_NEAR(expected, (loss(more) - loss(less)) / (2 * kShift), 1e-6 + 1e-5 * std::abs(expected));
}

TEST_P(Families, DecodingGivesTheLogitsOfTheWholeText) {
  ModelConfig config = decoding_model(Arch::llama);
  GetParam().change(config);
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const auto backend = backends::make_cpu_backend(
        engine == EngineKind::fused ? backends::CpuKernels::fast : backends::CpuKernels::reference, 2);
    check_decoding(*backend, config, options_of(engine, core::DType::f32), {1, 70, 33}, 3, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Families, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace rooflm::tests
