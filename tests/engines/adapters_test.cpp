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
  }
  return weights;
}

/// W + alpha / rank B A
StepRunner::Weights merged(StepRunner::Weights weights, const std::vector<Adapter>& adapters) {
  for (const Adapter& x : adapters) {
    const auto at = [](const std::vector<double>& values, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    const std::vector<double> a = weights.at(x.a()), b = weights.at(x.b());
    for (std::int64_t o = 0; o < x.out; ++o)
      for (std::int64_t i = 0; i < x.in; ++i)
        for (std::int64_t r = 0; r < x.rank; ++r)
          weights.at(x.weight)[static_cast<std::size_t>((x.first + o) * x.in + i)] +=
              x.factor * at(b, o * x.rank + r) * at(a, r * x.in + i);
  }
  for (const Adapter& x : adapters) {
    weights.erase(x.a());
    weights.erase(x.b());
  }
  return weights;
}

constexpr const char* kKinds[] = {"4", "3,alpha=7", "2,targets=all-linear"};

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
      /// By the model whose weights are merged.
      const auto loss = [&](const StepRunner::Weights& at) {
        return StepRunner(config, kTexts, kTokens, plain, merged(at, options.adapters), 1).step(batch, 0);
      };
      StepRunner moved(config, kTexts, kTokens, options, weights, 1);
      constexpr double kRate = 1e-3;
      EXPECT_NEAR(moved.step(batch, kRate), loss(weights), 1e-10) << lora;
      for (const model::Parameter& p : model::parameters(config))
        EXPECT_EQ(moved.weight(p.name), weights.at(p.name)) << p.name << " is frozen";
      const Adapter& first = options.adapters.front();
      const Adapter& last = options.adapters.back();
      for (const std::string& name : {first.a(), first.b(), last.a(), last.b()}) {
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

TEST(Adapters, EnginesAgree) {
  for (const model::Arch& arch : {model::Arch::gpt2, model::Arch::llama}) {
    const model::ModelConfig config = tests::even_config(arch);
    const auto losses = [&](EngineKind engine, core::DType dtype, passes::Recompute recompute) {
      StepOptions options = lora_options(config, engine, dtype, "4,alpha=64,targets=all-linear");
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
  for (const char* text : {"", "0", "-1", "x", "4,beta=2", "4,alpha=0", "4,alpha", "4,q", "4,alpha=nan"})
    if (*text != 0) EXPECT_NE(refusal(config, text).find("--lora"), std::string::npos) << text;
  EXPECT_EQ(refusal(config, "4,targets=q,k,v,alpha=8"), "");
  EXPECT_EQ(passes::find_adapters(config, "4,targets=q_proj,up").size(), 4U);
  EXPECT_EQ(passes::find_adapters(config, "4")[1].module, "model.layers.0.self_attn.v_proj");
  const std::vector<Adapter> of_gpt2 = passes::find_adapters(tests::small_config(model::Arch::gpt2), "4");
  EXPECT_EQ(of_gpt2.at(0).module, "transformer.h.0.attn.c_attn");
  EXPECT_EQ(of_gpt2.at(0).out, 72);
  EXPECT_TRUE(of_gpt2.at(0).transposed);
}

}  // namespace
}  // namespace rooflm::adapters
