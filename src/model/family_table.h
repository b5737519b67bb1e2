// The families of Hugging Face models: what each calls the keys of its config.json, and what they mean.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::model {

/// The text of data/families.json, embedded in the binary.
std::string_view families_text();
/// Likewise of data/presets.json.
std::string_view presets_text();

/// A row of data/families.json. Its strings live as long as the program.
struct Family {
  std::vector<std::string> types;          ///< model_type
  std::vector<std::string> architectures;  ///< in `architectures`
  nlohmann::json keys;                     ///< key of ours: the family's name of it, or a list of names
  nlohmann::json defaults;                 ///< key of ours: what its absence means
  nlohmann::json fixed;                    ///< key of ours: its value, whatever the file says
  std::vector<std::string> off;            ///< keys of features that no program describes
  /// Module of ours: what the family calls its tensors and how it packs them (model/huggingface_layout.cpp).
  nlohmann::json tensors;
  nlohmann::json nested;    ///< what a text model inside of another says only if it differs
  nlohmann::json written;   ///< keys that are written besides, with their values
  bool of_presets = false;  ///< models that no file described may be written as this family
};

const std::vector<Family>& families();
/// nullptr for a family without a row.
const Family* find_family(std::string_view type);
/// The family that has one of these `architectures`, of a file without a type; nullptr for others.
const Family* find_family_of(const nlohmann::json& architectures);
/// Whether it has one of them, by the name of the whole model or of its part without a head.
bool has_architecture(const Family& family, const nlohmann::json& architectures);
/// "llama, qwen3, ... and 58 others (docs/models.md)": what a model_type should have been.
std::string known_families();
/// What models of that type have and no program describes, in words; empty for others.
std::string not_described(std::string_view type, const nlohmann::json& config);
/// The same of models that `architectures` says to be no causal language model
/// ("LlamaForSequenceClassification").
std::string not_described_head(const nlohmann::json& architectures);
/// The name under which a config.json of the family is written.
std::string written_name(const Family& family, const std::string& key);
/// The names under which a config.json of the family may have the key, the family's own first.
std::vector<std::string> names_of(const Family& family, const std::string& key);

}  // namespace rooflm::model
