// What tests of decoders that texts share have in common: a small model, and texts that are read alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/decoder.h"
#include "training_testing.h"

namespace rooflm::train::testing {

using TokenList = std::vector<std::int32_t>;

struct BatchCase {
  compile::EngineKind engine;
  model::Arch arch;
};

inline std::string name_of_case(const ::testing::TestParamInfo<BatchCase>& test) {
  return std::string(compile::name_of(test.param.engine)) + "_" +
         std::string(model::name_of(test.param.arch));
}

inline std::int32_t most_likely(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

inline const std::vector<TokenList> kPrompts = {
    {5, 9, 200, 31, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, {250}};

class BatchTest : public ::testing::TestWithParam<BatchCase> {
 protected:
  BatchTest() : backend_(backend_for(GetParam().engine)) {
    model::ModelConfig config = tiny_model(GetParam().arch);
    config.vocab = 257;
    config.padded_vocab = 320;
    const compile::StepOptions step{.engine = GetParam().engine,
                                    .attention = compile::default_attention(GetParam().engine)};
    session_ = std::make_unique<Session>(*backend_, config, step);
    session_->initialise(3);
  }

  /// `count` tokens after the prompt, the most likely one each time, read alone.
  TokenList alone(const TokenList& prompt, std::size_t count) {
    Decoder decoder(*session_, {.batch = 1, .positions = 32});
    const std::span<const std::int32_t> seen(prompt);
    TokenList text = {most_likely(decoder.prefill({&seen, 1}).at(0))};
    while (text.size() < count) text.push_back(most_likely(decoder.decode({&text.back(), 1}).at(0)));
    return text;
  }

  std::unique_ptr<backends::Backend> backend_;
  std::unique_ptr<Session> session_;
};

}  // namespace rooflm::train::testing
