// Finding a model by what `--model` says.
#pragma once

#include <cstdint>
#include <string>

#include "model/config.h"

namespace rooflm::lab {

/// A preset by its name; a Hugging Face directory (config.json) or the output of `train`; a config.json
/// itself; or a JSON file with the keys of model::ModelConfig: arch, layers, heads, d_model, d_ff and vocab
/// are needed; kv_heads, head_dim, padded_vocab, max_seq, norm_eps, rope_theta, tied_head and name may be
/// left out. A preset wins over a directory of the same name: write ./gpt2 for the directory. Throws
/// core::UsageError with a suggestion for an unknown name, core::InputError naming the file and the key for a
/// bad file.
model::ModelConfig find_model(const std::string& model);

/// Whether `model` is a directory (and may hold weights) rather than a preset or a file of sizes.
bool is_model_directory(const std::string& model);

/// Whether `model` is a preset and a directory of that name is there, too: the preset wins.
bool has_namesake(const std::string& model);

}  // namespace rooflm::lab
