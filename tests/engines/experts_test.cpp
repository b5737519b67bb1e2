// Models with experts: all ways of running a step compute the same numbers, and a block is what its formula
// says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/decode_check.h"
#include "tests/engines/sharded_runner.h"
#include "tests/engines/step_runner.h"

namespace rooflm::tests {
namespace {

using compile::EngineKind;
using passes::Recompute;

/// A dense layer, then two with experts, and shared ones besides; odd sizes.
model::ModelConfig expert_model(double balance) {
  model::ModelConfig config = small_config(model::Arch::llama);
  config.layers = 3;
  config.experts = {.count = 5,
                    .active = 2,
                    .d_ff = 11,
                    .shared_d_ff = 6,
                    .in_layer = {false, true, true},
                    .balance_loss = balance,
                    .z_loss = 0.01};
  return config;
}

struct ExpertOutcome {
  std::vector<double> losses, weights;
};

constexpr std::int64_t kTexts = 4;
constexpr std::int64_t kTokensOfText = 13;

ExpertOutcome train_experts(const compile::StepOptions& options, double balance = 0.01, int steps = 20) {
  const model::ModelConfig config = expert_model(balance);
  StepRunner runner(config, kTexts / options.micro_batches, kTokensOfText, options, initial_weights(config));
  ExpertOutcome outcome;
  for (int i = 0; i < steps; ++i) {
    const auto batch = random_batch(kTexts * kTokensOfText, config.vocab, static_cast<std::uint64_t>(i % 3));
    outcome.losses.push_back(runner.step(batch, 3e-3));
  }
  for (const char* name : {"h.1.feed_forward.router.weight", "h.2.feed_forward.experts.fc1.weight",
                           "h.2.feed_forward.shared.fc2.weight"}) {
    const auto values = runner.weight(name);
    outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
  }
  return outcome;
}

compile::StepOptions options_of(EngineKind engine, core::DType dtype = core::DType::f32,
                                Recompute recompute = Recompute::none, int micro_batches = 1) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = dtype,
          .recompute = recompute,
          .micro_batches = micro_batches};
}

void expect_near(const ExpertOutcome& actual, const ExpertOutcome& expected, double relative) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(actual.losses[i], expected.losses[i], relative * expected.losses[i]) << "step " << i;
}

TEST(Experts, EnginesFollowDoublePrecision) {
  const ExpertOutcome fp64 = train_experts(options_of(EngineKind::eager, core::DType::f64));
  EXPECT_LT(fp64.losses.back(), fp64.losses.front() - 0.5) << "the model does not learn";
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused})
    expect_near(train_experts(options_of(engine)), fp64, 1e-4);
}

TEST(Experts, SixteenBitsStayNear) {
  const ExpertOutcome fp32 = train_experts(options_of(EngineKind::eager));
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      compile::StepOptions options = options_of(engine, dtype);
      options.rewrites.set(compile::Rewrite::compact_state, engine == EngineKind::fused);
      expect_near(train_experts(options), fp32, 2e-2);
    }
  }
}

TEST(Experts, RecomputeChangesNoBit) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const ExpertOutcome none = train_experts(options_of(engine));
    for (const Recompute kind : {Recompute::selective, Recompute::every_other, Recompute::full}) {
      SCOPED_TRACE(passes::name_of(kind));
      const ExpertOutcome other = train_experts(options_of(engine, core::DType::f32, kind));
      EXPECT_EQ(none.losses, other.losses);
      EXPECT_EQ(none.weights, other.weights);
    }
  }
}

/// The z-loss is a mean over tokens. The balance loss is not: each micro-batch balances its own.
TEST(Experts, SplitsOfTheBatchAgree) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const ExpertOutcome whole = train_experts(options_of(engine), 0);
    for (const int splits : {2, 4})
      expect_near(train_experts(options_of(engine, core::DType::f32, Recompute::none, splits), 0), whole,
                  1e-4);
  }
}

/// After a step each bias has lost or gained the rate, as the rows of both micro-batches say. No loss, no
/// optimizer touches a bias.
TEST(Experts, BiasesOfTheChoiceFollowLoads) {
  model::ModelConfig config = expert_model(0);
  config.experts.sigmoid_scores = config.experts.score_bias = true;
  config.experts.z_loss = 0;
  const char* const bias_name = "h.1.feed_forward.router.score_bias";
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    compile::StepOptions options = options_of(engine, core::DType::f32, Recompute::full, 2);
    for (const double rate : {0.0, 0.02}) {
      options.optimizer.expert_bias_rate = rate;
      StepRunner runner(config, kTexts / 2, kTokensOfText, options, initial_weights(config));
      for (int i = 0; i < 12; ++i) {
        const std::vector<double> before = runner.weight(bias_name);
        runner.step(random_batch(kTexts * kTokensOfText, config.vocab, static_cast<std::uint64_t>(i % 3)),
                    1e-4);
        std::vector<std::int64_t> rows(5);
        for (int part = 0; part < 2; ++part) {
          const auto offsets = runner.engine().io().read<std::int32_t>(
              compile::micro_batch_name("h.1.feed_forward.offsets", part));
          for (std::size_t e = 0; e < rows.size(); ++e) rows[e] += offsets[e + 1] - offsets[e];
        }
        const std::vector<double> after = runner.weight(bias_name);
        for (std::size_t e = 0; e < rows.size(); ++e) {
          const std::int64_t over = 5 * rows[e] - 2 * kTexts * kTokensOfText;
          const double expected = before[e] + (over > 0 ? -rate : over < 0 ? rate : 0);
          ASSERT_NEAR(after[e], expected, 1e-7) << "step " << i << " expert " << e;
        }
      }
    }
  }
}

/// Room for all drops nothing; less room costs as many rows as there is room for, and the model still learns.
TEST(Experts, CapacityDropsAndIsPriced) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const ExpertOutcome whole = train_experts(options_of(engine));
    compile::StepOptions options = options_of(engine);
    options.expert_capacity = 5;
    EXPECT_EQ(train_experts(options).losses, whole.losses);
    options.expert_capacity = 0.5;
    const ExpertOutcome half = train_experts(options);
    EXPECT_NE(half.losses, whole.losses);
    EXPECT_LT(half.losses.back(), half.losses.front() - 0.3);
    options.recompute = Recompute::full;
    EXPECT_EQ(train_experts(options).losses, half.losses);
  }
  const auto flop = [](double capacity) {
    compile::StepOptions options = options_of(EngineKind::fused);
    options.expert_capacity = capacity;
    const auto p = compile::training_step(model::forward(expert_model(0), 2, 5), options);
    std::int64_t sum = 0;
    for (const program::Op& op : p.ops) {
      if (op.is(program::ops::kGroupedMatmul) || op.is(program::ops::kGroupedMatmulWeight))
        sum += program::cost_of(p, op).matmul_flop;
    }
    return sum;
  };
  EXPECT_EQ(flop(1), flop(0));
  EXPECT_EQ(flop(0.5), flop(0) / 2);  // 10 of 20 rows
  model::ModelConfig dense = small_config(model::Arch::llama);
  compile::StepOptions options = options_of(EngineKind::fused);
  options.expert_capacity = 1;
  EXPECT_THROW(static_cast<void>(compile::training_step(model::forward(dense, 2, 5), options)),
               core::UsageError);
}

TEST(Experts, RatesOfBiasesNeedBiasesAndOneRank) {
  const auto step = [](bool has_bias, int ranks) {
    model::ModelConfig config = expert_model(0);
    config.experts.score_bias = has_bias;
    compile::StepOptions options = options_of(EngineKind::fused);
    options.optimizer.expert_bias_rate = 0.001;
    options.sharding.data = ranks;
    return compile::training_step(model::forward(config, 2, 5), options);
  };
  EXPECT_NO_THROW(static_cast<void>(step(true, 1)));
  EXPECT_THROW(static_cast<void>(step(false, 1)), core::UsageError);
  EXPECT_THROW(static_cast<void>(step(true, 2)), core::UsageError);
}

/// In fp64, where nothing is left of rounding.
TEST(Experts, DataParallelRanksGiveTheWeightsOfOne) {
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    SplitStep split{.config = expert_model(0), .batch = 2, .seq = 5};
    split.options = options_of(EngineKind::eager, core::DType::f64, Recompute::none, 2);
    split.options.optimizer.clip_norm = 0.5;
    split.options.sharding = {.data = 2, .zero = zero};
    const Training expected = train_whole(split, 3);
    const Training actual = train_split(split, 3);
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-12);
    for (const auto& [name, values] : expected.weights) {
      const auto& own = actual.weights.at(name);
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(own[i], values[i], 1e-9) << name;
    }
  }
}

/// Experts of a layer on several ranks, of which each has its own tokens. Odd loads: some ranks get few rows.
TEST(Experts, ExpertParallelRanksGiveTheWeightsOfOne) {
  struct Case {
    compile::Sharding sharding;
    EngineKind engine = EngineKind::eager;
  };
  for (const auto& [sharding, engine] :
       {Case{{.data = 2, .expert = 2}}, Case{{.data = 3, .expert = 3, .zero = 1}},
        Case{{.data = 4, .expert = 2, .zero = 2}}, Case{{.data = 4, .expert = 2, .zero = 3}},
        Case{{.data = 6, .expert = 6}}, Case{{.data = 2, .context = 2, .expert = 2}}, Case{{.tensor = 3}},
        Case{{.pipeline = 3}}, Case{{.data = 2, .expert = 2, .tensor = 3}},
        Case{{.data = 4, .expert = 2, .zero = 1, .tensor = 3}},
        Case{{.data = 2, .expert = 2, .zero = 1, .pipeline = 3}},
        Case{{.data = 2, .expert = 2, .zero = 3, .tensor = 3, .pipeline = 3}},
        Case{{.data = 2, .expert = 2}, EngineKind::fused},
        Case{{.data = 4, .expert = 2, .zero = 1}, EngineKind::fused},
        Case{{.data = 2, .expert = 2, .zero = 1, .tensor = 3, .pipeline = 3}, EngineKind::fused}}) {
    const core::DType dtype = engine == EngineKind::eager ? core::DType::f64 : core::DType::f32;
    const double relative = engine == EngineKind::eager ? 1e-9 : 1e-5;
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      SCOPED_TRACE(testing::Message()
                   << "dp " << sharding.data << " cp " << sharding.context << " ep " << sharding.expert
                   << " zero " << sharding.zero << " tp " << sharding.tensor << " pp " << sharding.pipeline);
      SplitStep split{.config = expert_model(0), .batch = 2, .seq = sharding.context == 1 ? 5 : 8};
      split.config.experts.count = 6;
      split.config.experts.d_ff = 12;
      split.config.experts.biases = split.config.experts.router_bias = sharding.tensor == 1;
      split.options = options_of(engine, dtype, recompute, 2);
      split.options.optimizer.clip_norm = 0.5;
      split.options.sharding = sharding;
      if (sharding.context > 1) split.options.attention = passes::AttentionKind::flash;
      const Training expected = train_whole(split, 3);
      const Training actual = train_split(split, 3);
      ASSERT_EQ(actual.losses.size(), expected.losses.size());
      for (std::size_t i = 0; i < expected.losses.size(); ++i) {
        EXPECT_NEAR(actual.losses[i], expected.losses[i], relative * expected.losses[i]);
        EXPECT_NEAR(actual.norms[i], expected.norms[i], 10 * relative * expected.norms[i]);
      }
      if (dtype != core::DType::f64) continue;  // Adam makes much of what is left of rounding
      for (const auto& [name, values] : expected.weights) {
        const auto& own = actual.weights.at(name);
        ASSERT_EQ(own.size(), values.size()) << name;
        for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(own[i], values[i], 1e-9) << name;
      }
    }
  }
}

/// Each rank drops of its own tokens, whoever has the experts, which have room for no more than that.
TEST(Experts, CapacityIsOfTheTokensOfARank) {
  const auto train = [](const compile::Sharding& sharding) {
    SplitStep split{.config = expert_model(0), .batch = 2, .seq = 5};
    split.config.experts.count = 6;
    split.config.experts.d_ff = 12;
    split.options = options_of(EngineKind::eager, core::DType::f64, Recompute::none, 2);
    split.options.expert_capacity = 0.8;
    split.options.sharding = sharding;
    return train_split(split, 3);
  };
  const Training copies = train({.data = 2});
  for (const compile::Sharding& sharding :
       {compile::Sharding{.data = 2, .expert = 2}, compile::Sharding{.data = 2, .expert = 2, .tensor = 3},
        compile::Sharding{.data = 2, .expert = 2, .pipeline = 3}}) {
    const Training split = train(sharding);
    for (std::size_t i = 0; i < copies.losses.size(); ++i)
      EXPECT_NEAR(split.losses[i], copies.losses[i], 1e-9 * copies.losses[i]);
  }
  const auto room = [](double capacity) {
    compile::StepOptions options = options_of(EngineKind::eager);
    options.expert_capacity = capacity;
    options.sharding = {.data = 2, .expert = 2};
    model::ModelConfig config = expert_model(0);
    config.experts.count = 6;
    const auto p = compile::training_step(model::forward(config, 2, 5), options);
    const auto exchange =
        std::ranges::find_if(p.ops, [](const program::Op& op) { return op.is(program::ops::kExchangeRows); });
    return p.shape(exchange->outputs[0])[0];
  };
  EXPECT_EQ(room(0), 40);    // 10 tokens take 2 experts, on each of two ranks
  EXPECT_EQ(room(1.2), 24);  // 4 of each of 6 experts
}

TEST(Experts, DecodingGivesTheLogitsOfTheWholeText) {
  model::ModelConfig config = decoding_model(model::Arch::llama);
  config.experts = {.count = 6, .active = 2, .d_ff = 24, .shared_d_ff = 16};
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const auto backend = backends::make_cpu_backend(
        engine == EngineKind::fused ? backends::CpuKernels::fast : backends::CpuKernels::reference, 2);
    check_decoding(*backend, config, options_of(engine), {1, 70, 33}, 5, 1e-4);
  }
}

/// A model whose blocks have one token to attend to, so that attention is its values: the rest is the formula
/// of Mixtral (Jiang et al., 2024), written out for one token after the other.
class OneToken {
 public:
  using Values = std::vector<double>;
  OneToken(const model::ModelConfig& config, StepRunner::Weights weights)
      : config_(config), weights_(std::move(weights)) {}

  Values logits(std::int32_t token) const {
    const auto& table = weights_.at("wte");
    Values x(table.begin() + token * config_.d_model, table.begin() + (token + 1) * config_.d_model);
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string h = "h." + std::to_string(layer) + ".";
      const auto qkv = multiply(weights_.at(h + "attention.qkv.weight"), 0, norm(x, h + "ln1"));
      const auto d = static_cast<std::size_t>(config_.head_dim);
      const auto values = static_cast<std::size_t>(config_.heads + config_.kv_heads) * d;
      const auto group = static_cast<std::size_t>(config_.heads / config_.kv_heads);
      Values attended;
      for (std::size_t head = 0; head < static_cast<std::size_t>(config_.heads); ++head)
        for (std::size_t i = 0; i < d; ++i) attended.push_back(qkv[values + head / group * d + i]);
      add(x, multiply(weights_.at(h + "attention.proj.weight"), 0, attended), 1);
      add_experts(x, norm(x, h + "ln2"), h + "feed_forward.");
    }
    return multiply(weights_.at("lm_head.weight"), 0, norm(x, "ln_f"));
  }

 private:
  void add_experts(Values& x, const Values& y, const std::string& name) const {
    Values p = multiply(weights_.at(name + "router.weight"), 0, y);
    double sum = 0;
    for (double& score : p) sum += score = std::exp(score);
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
    order.resize(static_cast<std::size_t>(config_.experts.active));
    double chosen = 0;
    for (const std::size_t e : order) chosen += p[e] / sum;
    const auto f = static_cast<std::size_t>(config_.experts.d_ff);
    for (const std::size_t e : order) {
      const Values h = multiply(weights_.at(name + "experts.fc1.weight"), e * 2 * f, y, 2 * f);
      Values act;
      for (std::size_t i = 0; i < f; ++i) act.push_back(h[i] / (1 + std::exp(-h[i])) * h[f + i]);
      const auto c = x.size();
      add(x, multiply(weights_.at(name + "experts.fc2.weight"), e * c, act, c), p[e] / sum / chosen);
    }
  }
  /// Rows [first, first + rows) of w times x; 0 rows: all.
  static Values multiply(const Values& w, std::size_t first, const Values& x, std::size_t rows = 0) {
    if (rows == 0) rows = w.size() / x.size();
    Values y(rows);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < x.size(); ++i) y[r] += w[(first + r) * x.size() + i] * x[i];
    return y;
  }
  Values norm(const Values& x, const std::string& name) const {
    double square = 0;
    for (const double v : x) square += v * v / static_cast<double>(x.size());
    Values y = x;
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] *= weights_.at(name + ".weight")[i] / std::sqrt(square + config_.norm_eps);
    return y;
  }
  static void add(Values& x, const Values& y, double scale) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += scale * y[i];
  }

  model::ModelConfig config_;
  StepRunner::Weights weights_;
};

TEST(Experts, AMixtralIsItsFormula) {
  model::ModelConfig config = small_config(model::Arch::llama);
  config.experts = {.count = 5, .active = 2, .d_ff = 11};
  auto weights = initial_weights(config);
  for (auto& [name, values] : weights)
    for (double& value : values) value *= name.ends_with("router.weight") ? 20 : 3;
  const OneToken expected(config, weights);
  constexpr std::int64_t kSingles = 17;
  for (const auto& [engine, dtype, tolerance] : {std::tuple{EngineKind::eager, core::DType::f64, 1e-12},
                                                 {EngineKind::eager, core::DType::f32, 1e-5},
                                                 {EngineKind::fused, core::DType::f32, 1e-5}}) {
    StepRunner runner(config, kSingles, 1, options_of(engine, dtype), weights);
    const Batch batch = random_batch(kSingles, config.vocab, 3);
    const double loss = runner.step(batch, 0);
    double sum = 0;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      const auto logits = expected.logits(batch.tokens[i]);
      double total = 0;
      for (std::int64_t v = 0; v < config.vocab; ++v) total += std::exp(logits[static_cast<std::size_t>(v)]);
      sum += std::log(total) - logits[static_cast<std::size_t>(batch.targets[i])];
    }
    EXPECT_NEAR(loss, sum / static_cast<double>(kSingles), tolerance * loss);
  }
}

}  // namespace
}  // namespace rooflm::tests
