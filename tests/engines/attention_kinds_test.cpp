// Attention of all kinds, in layers that are not alike: both engines and all ways of computing it agree, and
// decoding computes what reading the text whole does.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "core/error.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/decode_check.h"
#include "tests/engines/step_runner.h"

namespace rooflm {
namespace {

using backends::CpuKernels;
using compile::EngineKind;
using model::Arch;
using model::ModelConfig;
using passes::AttentionKind;
using passes::Recompute;

struct Kind {
  std::string name;
  std::function<void(ModelConfig&)> set;
};

/// As Gemma, gpt-oss, SmolLM3, BLOOM and GPT-NeoX have it; texts of 13 tokens are longer than most windows.
std::vector<Kind> kinds() {
  return {{"mixed",
           [](ModelConfig& c) {
             c.window = 4;
             c.windowed = {true, false};
             c.window_theta = 100;
           }},
          {"without_rotary",
           [](ModelConfig& c) {
             c.window = 5;
             c.windowed = c.rotary.in_layer = {false, true};
           }},
          {"window_of_one", [](ModelConfig& c) { c.window = 1; }},
          {"window_of_more", [](ModelConfig& c) { c.window = 1000; }},
          {"capped",
           [](ModelConfig& c) {
             c.window = 6;
             c.score_cap = 0.05;
             c.query_scale = 0.7;
           }},
          {"sinks",
           [](ModelConfig& c) {
             c.sinks = true;
             c.window = 3;
             c.windowed = {true, false};
           }},
          {"alibi", [](ModelConfig& c) { c.arch.positions = model::Positions::alibi; }},
          {"scaled_alibi",
           [](ModelConfig& c) {
             c.arch.positions = model::Positions::alibi;
             c.alibi_slopes = 0.3;
           }},
          {"chunks",
           [](ModelConfig& c) {
             c.window = 5;
             c.chunked = true;
             c.windowed = {true, false};
           }},
          {"temperature",
           [](ModelConfig& c) {
             c.rotary.in_layer = {true, false};
             c.temperature = 0.4;
             c.temperature_floor = 3;
           }},
          {"part_of_a_head", [](ModelConfig& c) { c.rotary.dims = 2; }}};
}

ModelConfig latent_config() {
  ModelConfig config = tests::small_config(Arch::llama);
  config.kv_heads = config.heads;
  config.latent = {.q_rank = 10, .kv_rank = 6, .plain_dim = 5, .rotary_dim = 4, .v_dim = 7};
  config.head_dim = 9;
  return config;
}

std::vector<double> losses(const ModelConfig& config, const compile::StepOptions& options) {
  constexpr std::int64_t kBatch = 4;
  constexpr std::int64_t kSeq = 13;
  tests::StepRunner runner(config, kBatch / options.micro_batches, kSeq, options,
                           tests::initial_weights(config));
  std::vector<double> all;
  for (std::uint64_t i = 0; i < 12; ++i)
    all.push_back(runner.step(tests::random_batch(kBatch * kSeq, config.vocab, i % 3), 3e-3));
  return all;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], relative * std::abs(expected[i])) << "step " << i;
}

/// Losses over 12 steps: fp32 sums in another order, as in equivalence_test.cpp.
void expect_engines_agree(const ModelConfig& config) {
  const auto reference = losses(
      config, {.engine = EngineKind::eager, .attention = AttentionKind::batched, .dtype = core::DType::f64});
  EXPECT_LT(reference.back(), reference.front() - 0.2) << "the model does not learn";
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    for (const AttentionKind attention :
         {AttentionKind::looped, AttentionKind::batched, AttentionKind::flash}) {
      SCOPED_TRACE(std::string(compile::name_of(engine)) + " " + std::string(passes::name_of(attention)));
      expect_close(losses(config, {.engine = engine, .attention = attention, .micro_batches = 2}), reference,
                   1e-4);
    }
  }
  for (const AttentionKind attention : {AttentionKind::batched, AttentionKind::flash}) {
    const compile::StepOptions options{.engine = EngineKind::fused, .attention = attention};
    compile::StepOptions again = options;
    again.recompute = Recompute::full;
    EXPECT_EQ(losses(config, options), losses(config, again)) << "recompute";
    again = options;
    again.dtype = core::DType::bf16;
    expect_close(losses(config, again), reference, 2e-2);
  }
}

class AttentionKinds : public testing::TestWithParam<Kind> {};

TEST_P(AttentionKinds, EnginesAndFormsAgree) {
  ModelConfig config = tests::small_config(Arch::llama);
  GetParam().set(config);
  EXPECT_EQ(model::uncomputed(config), "");
  expect_engines_agree(config);
}

TEST_P(AttentionKinds, DecodingIsReadingWhole) {
  ModelConfig config = tests::decoding_model(Arch::llama);
  GetParam().set(config);
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const auto backend =
        backends::make_cpu_backend(engine == EngineKind::fused ? CpuKernels::fast : CpuKernels::reference, 2);
    tests::check_decoding(*backend, config,
                          {.engine = engine, .attention = compile::default_attention(engine)}, {1, 70, 33}, 5,
                          2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionKinds, testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

TEST(LatentAttention, EnginesAgree) {
  EXPECT_EQ(model::uncomputed(latent_config()), "");
  expect_engines_agree(latent_config());
  ModelConfig direct = latent_config();
  direct.latent.q_rank = 0;
  direct.query_scale = 0.4;
  expect_engines_agree(direct);
}

/// From the cache of compressed keys, whatever makes the queries.
TEST(LatentAttention, DecodingIsReadingWhole) {
  for (const std::int64_t q_rank : {0, 10}) {
    ModelConfig config = tests::decoding_model(Arch::llama);
    config.kv_heads = config.heads = 11;  // more than a thread computes together
    config.latent = latent_config().latent;
    config.latent.q_rank = q_rank;
    config.head_dim = 9;
    if (q_rank > 0) config.query_scale = 0.5;
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      const auto backend = backends::make_cpu_backend(
          engine == EngineKind::fused ? CpuKernels::fast : CpuKernels::reference, 2);
      tests::check_decoding(*backend, config,
                            {.engine = engine, .attention = compile::default_attention(engine)}, {1, 70, 33},
                            5, 2e-5);
    }
  }
}

/// A token keeps R + Dr numbers, not 2 H D. An indexer's choice of keys has no cache.
TEST(LatentAttention, CachesAreCompressed) {
  ModelConfig config = latent_config();
  const auto p = model::decode(config, {.batch = 3, .positions = 8}, 8);
  std::int64_t elements = 0;
  for (const program::Tensor& tensor : p.tensors)
    if (tensor.role == program::Role::cache) elements += tensor.shape.numel();
  EXPECT_EQ(elements, config.layers * 3 * 8 * (6 + 4));
  config.latent.index_heads = config.latent.index_dim = 2;
  EXPECT_THROW(model::decode(config, {.batch = 1, .positions = 8}, 8), core::Unavailable);
}

/// A cache that is longer than the window costs what the window does.
TEST(DecodeCost, IsThatOfTheWindow) {
  ModelConfig config = tests::decoding_model(Arch::llama);
  const auto read = [&](std::int64_t window) {
    config.window = window;
    std::int64_t bytes = 0;
    const auto p = model::decode(config, {.batch = 3, .positions = 64}, 50);
    for (const auto& op : p.ops) {
      if (op.is(program::ops::kDecodeAttention)) bytes += program::cost_of(p, op).bytes_read;
    }
    return bytes;
  };
  EXPECT_EQ(read(0) - read(20), 2 * 30 * 2 * 3 * config.kv_heads * config.head_dim * 4);
  EXPECT_EQ(read(0), read(50));
}

}  // namespace
}  // namespace rooflm
