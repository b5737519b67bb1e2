// Texts that are read on with kept keys and values against the same texts read whole, on any backend.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "compile/recipe.h"
#include "core/rng.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "model/parameters.h"

namespace rooflm::tests {

/// gpt2, or llama with four query heads for each key/value head and 12 positions in each head's rotation.
inline model::ModelConfig decoding_model(model::Arch arch) {
  const bool is_llama = arch == model::Arch::llama;
  return {.name = "test",
          .arch = arch,
          .layers = 2,
          .heads = 8,
          .kv_heads = is_llama ? 2 : 8,
          .d_model = 96,
          .d_ff = 64,
          .head_dim = 12,
          .vocab = 100,
          .padded_vocab = 128,
          .max_seq = is_llama ? 0 : 80,
          .tied_head = !is_llama};
}

/// Reads texts of `lengths` tokens, then `steps` more tokens of each, one by one; each time the logits are
/// held to those of one program that reads the text whole on one rank. `tolerance`: of the largest logit.
/// `options` may be those of one of several ranks, whose collectives the backend has.
inline void check_decoding(backends::Backend& backend, const model::ModelConfig& config,
                           const compile::StepOptions& options, const std::vector<std::int32_t>& lengths,
                           int steps, double tolerance) {
  constexpr std::int64_t kPositions = 80;
  const auto batch = static_cast<std::int64_t>(lengths.size());
  compile::StepOptions of_one = options;
  of_one.sharding = {};
  of_one.rank = {};
  engines::TensorStore whole_store(backend);
  engines::TensorStore store(backend);
  engines::TensorStore caches(backend);
  const auto make = [&](program::Program program) {
    return engines::Engine(compile::inference_step(std::move(program), options), options.engine, store, 0,
                           &caches);
  };
  const model::CacheSize size{.batch = batch, .positions = kPositions};
  engines::Engine whole(
      compile::inference_step(model::forward(config, batch, kPositions, model::Head::logits), of_one),
      options.engine, whole_store);
  const std::int64_t longest = *std::ranges::max_element(lengths);
  engines::Engine prefill = make(model::prefill(config, size, longest));
  engines::Engine decode = make(model::decode(config, size, kPositions));
  for (const model::Parameter& p : model::parameters(config)) {
    std::vector<float> values = model::initial_values(p, config, 5);
    for (float& x : values) x *= 2;  // so that attention is not uniform
    whole_store.write<float>(p.name, values);
    store.write_part(p.name, values);
  }
  for (engines::Engine* engine : {&whole, &prefill, &decode}) engine->setup();

  std::vector<std::int32_t> all(static_cast<std::size_t>(batch * kPositions));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::int32_t>(core::philox(3, 1, i)[0] % static_cast<std::uint32_t>(config.vocab));
  const auto token = [&](std::int64_t text, std::int64_t t) {
    return all[static_cast<std::size_t>(text * kPositions + t)];
  };
  whole.io().write<std::int32_t>("tokens", all);
  whole.run();
  const std::vector<float> expected = whole.io().read<float>("logits");

  const auto compare = [&](engines::Engine& engine, const std::vector<std::int32_t>& read) {
    const std::vector<float> actual = engine.io().read<float>("logits");
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t row = b * kPositions + read[static_cast<std::size_t>(b)] - 1;
      double largest = 0;
      double furthest = 0;
      for (std::int64_t v = 0; v < config.vocab; ++v) {
        const auto wanted =
            static_cast<double>(expected[static_cast<std::size_t>(row * config.padded_vocab + v)]);
        const auto found = static_cast<double>(actual[static_cast<std::size_t>(b * config.padded_vocab + v)]);
        largest = std::max(largest, std::abs(wanted));
        furthest = std::max(furthest, std::abs(found - wanted));
        ASSERT_TRUE(std::isfinite(found));
      }
      ASSERT_LE(furthest, tolerance * largest)
          << "text " << b << " after " << read[static_cast<std::size_t>(b)];
    }
  };
  std::vector<std::int32_t> padded;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < longest; ++t)  // what lies behind a text must not matter
      padded.push_back(t < lengths[static_cast<std::size_t>(b)] ? token(b, t) : 7);
  }
  prefill.io().write<std::int32_t>("tokens", padded);
  prefill.io().write<std::int32_t>("lengths", lengths);
  prefill.run();
  compare(prefill, lengths);
  std::vector<std::int32_t> read = lengths;
  for (int i = 0; i < steps; ++i) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t b = 0; b < batch; ++b) tokens.push_back(token(b, read[static_cast<std::size_t>(b)]));
    decode.io().write<std::int32_t>("tokens", tokens);
    decode.io().write<std::int32_t>("first", read);
    decode.run();
    for (std::int32_t& length : read) ++length;
    compare(decode, read);
  }
}

}  // namespace rooflm::tests
