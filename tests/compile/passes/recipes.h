// Small models and whole steps for the tests of passes, engines and models.
#pragma once

#include "compile/recipe.h"
#include "model/config.h"
#include "model/forward.h"

namespace rooflm::tests {

/// A model of odd sizes: 2 layers, 3 heads (llama: 6 query heads on 3 key/value heads), vocabulary 67 padded
/// to 71.
inline model::ModelConfig small_config(model::Arch arch) {
  model::ModelConfig config{.name = "small-test",
                            .arch = arch,
                            .layers = 2,
                            .heads = arch == model::Arch::llama ? 6 : 3,
                            .kv_heads = 3,
                            .d_model = 24,
                            .d_ff = 45,
                            .vocab = 67,
                            .padded_vocab = 71,
                            .max_seq = 16,
                            .tied_head = arch == model::Arch::gpt2};
  config.head_dim = config.d_model / config.heads;
  return config;
}

/// All extents of its layers' matmuls are multiples of 16, as fp8 wants them.
inline model::ModelConfig even_config(model::Arch arch) {
  model::ModelConfig config = small_config(arch);
  config.heads = 4;
  config.kv_heads = arch == model::Arch::llama ? 2 : 4;
  config.d_model = 32;
  config.head_dim = 8;
  config.d_ff = 48;
  return config;
}

inline program::Program small_step(model::Arch arch, const compile::StepOptions& options,
                                   std::string_view stop_after = {}) {
  return compile::training_step(model::forward(small_config(arch), 2, 13), options, stop_after);
}

}  // namespace rooflm::tests
