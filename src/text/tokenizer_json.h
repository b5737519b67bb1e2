// Tokenizer files: Hugging Face's tokenizer.json, and GPT-2's vocabulary with a list of merges.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "text/bpe_model.h"

namespace rooflm::text {

/// Reads what Tokenizer::load accepts; the model is indexed. Throws core::InputError as it says.
std::shared_ptr<const BpeModel> read_tokenizer(const std::filesystem::path& path);

/// The text of a tokenizer.json.
std::string tokenizer_json(const BpeModel& model);

}  // namespace rooflm::text
