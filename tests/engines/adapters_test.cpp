// Adapters beside frozen weights: their gradients are those of the loss, nothing else moves or is computed,
// and the model with merged weights is the same.
#include <gtest/gtest.h>

#include <cmath>

#include "compile/recipe.h"
#include "core/error.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::adapters {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using passes::Adapter;
using tests::StepRunner;

constexpr std::int64_t kTexts = 2, kTokens = 13;

StepOptions lora_options(const model::ModelConfig& config, EngineKind engine, core::DType dtype,
                         const std::string& lora) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = dtype,
          .optimizer = {.kind = passes::OptimizerKind::sgd, .weight_decay = 0, .clip_norm = 0},
          .lora = lora,
          .adapters = passes::find_adapters(config, lora)};
}

/// Weights of the model and of adapters, of which both factors move.
StepRunner::Weights weights_with(const model::ModelConfig& config, const std::vector<Adapter>& adapters) {
  StepRunner::Weights weights = tests::initial_weights(config);
  const auto fill = [&](const std::string& name, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      weights[name].push_back(0.1 *
                              std::sin(static_cast<double>(i + static_cast<std::int64_t>(name.size()))));
  };
  for (const Adapter& adapter : adapters) {
    fill(adapter.a(), adapter.rank * adapter.in);
    fill(adapter.b(), adapter.out * adapter.rank);
    if (!adapter.is_dora) continue;
    fill(adapter.magnitude(), adapter.out);
    for (double& m : weights[adapter.magnitude()]) m = 0.3 + m;
  }
  return weights;
}

/// W + f B A, and of DoRA as long as magnitudes say
/// `norms`: lengths of rows by module, where they are constants; `lengths`: those that were.
StepRunner::Weights merged(StepRunner::Weights weights, const std::vector<Adapter>& adapters,
                           const StepRunner::Weights& norms, StepRunner::Weights& lengths) {
  for (const Adapter& x : adapters) {
    const auto at = [](const std::vector<double>& values, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    const std::vector<double> a = weights.at(x.a()), b = weights.at(x.b());
    for (std::int64_t o = 0; o < x.out; ++o)
      for (std::int64_t i = 0; i < x.in; ++i)
        for (std::int64_t r = 0; r < x.rank; ++r)
          weights.at(x.weight)[static_cast<std::size_t>((x.first + o) * x.in + i)] +=
              x.factor() * at(b, o * x.rank + r) * at(a, r * x.in + i);
    for (std::int64_t o = 0; x.is_dora && o < x.out; ++o) {
      double* row = &weights.at(x.weight)[static_cast<std::size_t>((x.first + o) * x.in)];
      double square = 0;
      for (std::int64_t i = 0; i < x.in; ++i) square += row[i] * row[i];
      const double norm = norms.contains(x.module) ? at(norms.at(x.module), o) : std::sqrt(square);
      for (std::int64_t i = 0; i < x.in; ++i) row[i] *= at(weights.at(x.magnitude()), o) / norm;
      lengths[x.module].push_back(norm);
    }
  }
  for (const Adapter& x : adapters) {
    for (const std::string& name : {x.a(), x.b(), x.magnitude()}) weights.erase(name);
  }
  return weights;
}

constexpr const char* kKinds[] = {"4",
                                  "3,alpha=7",
                                  "2,targets=all-linear",
                                  "4,rslora,alpha=3",
                                  "3,dora",
                                  "2,dora,rslora,targets=all-linear"};

TEST(Adapters, GradientsAreThoseOfTheLoss) {
  for (const model::Arch& arch : {model::Arch::gpt2, model::Arch::llama}) {
    for (const char* lora : kKinds) {
      const model::ModelConfig config = tests::small_config(arch);
      StepOptions options = lora_options(config, EngineKind::eager, core::DType::f64, lora);
      const StepRunner::Weights weights = weights_with(config, options.adapters);
      const tests::Batch batch = tests::random_batch(kTexts * kTokens, config.vocab, 1);
      StepOptions plain = options;
      plain.lora.clear();
      plain.adapters.clear();
      /// By the model whose weights are merged. Lengths are constants to the gradient.
      StepRunner::Weights norms, ignored;
      static_cast<void>(merged(weights, options.adapters, {}, norms));
      const auto loss = [&](const StepRunner::Weights& at) {
        const StepRunner::Weights whole = merged(at, options.adapters, norms, ignored);
        return StepRunner(config, kTexts, kTokens, plain, whole, 1).step(batch, 0);
      };
      StepRunner moved(config, kTexts, kTokens, options, weights, 1);
      constexpr double kRate = 1e-3;
      EXPECT_NEAR(moved.step(batch, kRate), loss(weights), 1e-10) << lora;
      for (const model::Parameter& p : model::parameters(config))
        EXPECT_EQ(moved.weight(p.name), weights.at(p.name)) << p.name << " is frozen";
      const Adapter& first = options.adapters.front();
      const Adapter& last = options.adapters.back();
      std::vector<std::string> names = {first.a(), first.b(), last.a(), last.b()};
      if (first.is_dora) names.insert(names.end(), {first.magnitude(), last.magnitude()});
      for (const std::string& name : names) {
        const std::vector<double> after = moved.weight(name);
        for (const std::size_t i : {std::size_t{1}, after.size() - 1}) {
          constexpr double kShift = 1e-5;
          StepRunner::Weights more = weights;
          StepRunner::Weights less = weights;
          more[name][i] += kShift;
          less[name][i] -= kShift;
          const double gradient = (weights.at(name)[i] - after[i]) / kRate;
          EXPECT_NEAR(gradient, (loss(more) - loss(less)) / (2 * kShift), 1e-8 + 1e-5 * std::abs(gradient))
              << name << " " << i << " of " << lora;
        }
      }
    }
  }
}

class AdapterEngines : public ::testing::TestWithParam<const char*> {};

TEST_P(AdapterEngines, Agree) {
  for (const model::Arch& arch : {model::Arch::gpt2, model::Arch::llama}) {
    const model::ModelConfig config = tests::even_config(arch);
    const auto losses = [&](EngineKind engine, core::DType dtype, passes::Recompute recompute) {
      StepOptions options = lora_options(config, engine, dtype, GetParam());
      options.optimizer = {.clip_norm = 1};
      options.micro_batches = 2;
      options.recompute = recompute;
      StepRunner runner(config, kTexts, kTokens, options, weights_with(config, options.adapters), 1);
      const tests::Batch batch = tests::random_batch(2 * kTexts * kTokens, config.vocab, 1);
      std::vector<double> all;
      for (int step = 0; step < 6; ++step) all.push_back(runner.step(batch, 0.005));
      return all;
    };
    using enum passes::Recompute;
    const std::vector<double> exact = losses(EngineKind::eager, core::DType::f64, none);
    EXPECT_LT(exact.back(), exact.front() - 0.02) << "the adapters do not learn";
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      for (const passes::Recompute recompute : {none, selective, full}) {
        const std::vector<double> single = losses(engine, core::DType::f32, recompute);
        const std::vector<double> half = losses(engine, core::DType::bf16, recompute);
        for (std::size_t i = 0; i < exact.size(); ++i) {
          EXPECT_NEAR(single[i], exact[i], 1e-4 * exact[i]) << name_of(engine) << " step " << i;
          EXPECT_NEAR(half[i], exact[i], 2e-2 * exact[i]) << name_of(engine) << " step " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdapterEngines,
                         ::testing::Values("4,alpha=64,targets=all-linear",
                                           "4,dora,alpha=8,targets=all-linear"),
                         [](const auto& kind) {
                           return std::string(kind.param).find("dora") == std::string::npos ? "lora" : "dora";
                         });

/// Forward and backward passes of frozen weights are 2 N FLOP per token each; gradients and states are those
/// of adapters alone, and in 16 bits frozen matrices have no master.
TEST(Adapters, CostWhatTheyShould) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const model::ModelConfig config = tests::small_config(model::Arch::llama);
    StepOptions options = lora_options(config, engine, core::DType::bf16, "2,targets=all-linear");
    options.optimizer.kind = passes::OptimizerKind::adamw;
    const program::Program step = tests::small_step(model::Arch::llama, options);
    std::int64_t all = 0, adapters = 0, matmul_parameters = 0;
    for (const model::Parameter& p : model::parameters(config)) {
      all += p.shape.numel();
      if (p.shape.rank() == 2 && p.name != "wte") matmul_parameters += p.shape.numel();
    }
    for (const Adapter& x : options.adapters) adapters += x.rank * (x.in + x.out);
    std::int64_t states = 0, gradients = 0, weights = 0, flop = 0;
    for (const program::Tensor& tensor : step.tensors) {
      if (tensor.role == program::Role::optimizer_state) states += tensor.shape.numel();
      if (tensor.role == program::Role::gradient) gradients += tensor.shape.numel();
      if (tensor.role == program::Role::weight) weights += tensor.own_bytes();
    }
    for (const program::Op& op : step.ops)
      if (op.is(program::ops::kMatmul) && op.inputs.size() == 2) {
        bool is_of_layers = true;
        for (const program::TensorId id : op.inputs) is_of_layers &= id != program::kNone;
        flop += is_of_layers && op.attrs.integer("batch") == 1 ? program::cost_of(step, op).matmul_flop : 0;
      }
    EXPECT_EQ(states, 2 * adapters) << name_of(engine);
    EXPECT_EQ(gradients, adapters) << name_of(engine);
    EXPECT_LT(weights, 2 * all + 8 * adapters + 4 * config.padded_vocab * config.d_model + 4096);
    // Adapters: forward, and gradients of both operands. Nobody asks for the gradient of what the first layer
    // reads.
    const std::int64_t tokens = kTexts * kTokens;
    EXPECT_LE(flop, tokens * (4 * matmul_parameters + 6 * adapters)) << name_of(engine);
    EXPECT_GE(flop, tokens * (4 * matmul_parameters + 4 * adapters) * 9 / 10) << name_of(engine);
  }
}

/// DoRA's norms are computed once a step, whatever the micro-batches and whatever is recomputed; adapters
/// alone have gradients and states, magnitudes among them; frozen matrices have no master.
TEST(Adapters, MagnitudesCostWhatTheyShould) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    for (const passes::Recompute recompute : {passes::Recompute::none, passes::Recompute::full}) {
      const model::ModelConfig config = tests::small_config(model::Arch::llama);
      const auto step_of = [&](const char* lora) {
        StepOptions options = lora_options(config, engine, core::DType::bf16, lora);
        options.optimizer.kind = passes::OptimizerKind::adamw;
        options.micro_batches = 3;
        options.recompute = recompute;
        return tests::small_step(model::Arch::llama, options);
      };
      const program::Program plain = step_of("2,targets=all-linear");
      const program::Program dora = step_of("2,dora,targets=all-linear");
      const std::vector<Adapter> adapters = passes::find_adapters(config, "2,dora,targets=all-linear");
      std::int64_t magnitudes = 0;
      for (const Adapter& adapter : adapters) magnitudes += adapter.out;
      const auto bytes_of = [](const program::Program& step, program::Role role) {
        std::int64_t bytes = 0;
        for (const program::Tensor& tensor : step.tensors)
          if (tensor.role == role) bytes += tensor.own_bytes();
        return bytes;
      };
      const auto more = [&](program::Role role) { return bytes_of(dora, role) - bytes_of(plain, role); };
      EXPECT_EQ(more(program::Role::gradient), 4 * magnitudes);
      EXPECT_EQ(more(program::Role::optimizer_state), 8 * magnitudes);
      EXPECT_EQ(more(program::Role::weight), 8 * magnitudes) << "magnitudes, and squares of rows";
      std::size_t norms = 0, squares = 0;
      for (const program::Op& op : dora.ops) {
        norms += op.is(program::ops::kInverseNorms) ? 1 : 0;
        squares += op.is(program::ops::kRowSquares) ? 1 : 0;
        if (op.is(program::ops::kRowSquares)) {
          EXPECT_EQ(op.phase, program::Phase::setup);
        }
      }
      EXPECT_EQ(norms, adapters.size());
      EXPECT_EQ(squares, adapters.size());
    }
  }
}

std::string refusal(const model::ModelConfig& config, const std::string& lora) {
  try {
    static_cast<void>(passes::find_adapters(config, lora));
  } catch (const core::UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Adapters, WhatCannotBeIsNamed) {
  const model::ModelConfig config = tests::small_config(model::Arch::llama);
  EXPECT_NE(refusal(config, "25,targets=o").find("rank is above"), std::string::npos);
  EXPECT_NE(refusal(config, "4,targets=q_prj").find("q_proj"), std::string::npos) << "did you mean";
  for (const char* text :
       {"0", "-1", "x", "4,beta=2", "4,alpha=0", "4,alpha", "4,q", "4,alpha=nan", "4,dora=1"})
    EXPECT_NE(refusal(config, text).find("--lora"), std::string::npos) << text;
  EXPECT_EQ(refusal(config, "4,targets=q,k,v,alpha=8"), "");
  EXPECT_EQ(refusal(config, "4,targets=q,v,dora,rslora"), "");
  EXPECT_EQ(passes::find_adapters(config, "4,alpha=6,rslora")[0].factor(), 3.0);
  EXPECT_EQ(passes::find_adapters(config, "4,alpha=6")[0].factor(), 1.5);
  EXPECT_EQ(passes::find_adapters(config, "4,targets=q_proj,up").size(), 4U);
  EXPECT_EQ(passes::find_adapters(config, "4")[1].module, "model.layers.0.self_attn.v_proj");
  const std::vector<Adapter> of_gpt2 = passes::find_adapters(tests::small_config(model::Arch::gpt2), "4");
  EXPECT_EQ(of_gpt2.at(0).module, "transformer.h.0.attn.c_attn");
  EXPECT_EQ(of_gpt2.at(0).out, 72);
  EXPECT_TRUE(of_gpt2.at(0).transposed);
}

}  // namespace
}  // namespace rooflm::adapters
