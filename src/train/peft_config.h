// adapter_config.json of Hugging Face's PEFT: which matrices have adapters, and which.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/passes/adapters.h"
#include "model/config.h"

namespace rooflm::train {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
/// In an adapter's directory: the directory of its base or a link to it, where the base that
/// adapter_config.json names is not here.
inline constexpr const char* kBaseLink = "base_model";

/// Modules as PEFT's configurations name them.
struct ModuleNames {
  bool is_all_linear = false;
  std::optional<std::string> pattern{};  ///< a regular expression of whole paths
  std::vector<std::string> names{};      ///< whole paths, or their ends after a dot
};

/// What adapter_config.json says.
struct PeftConfig {
  std::filesystem::path file{};
  std::int64_t rank = 0;
  double alpha = 0;
  bool is_rank_stabilised = false, is_dora = false;
  ModuleNames targets{}, excluded{};
  /// Other ranks and alphas, by regular expressions of ends of paths.
  std::vector<std::pair<std::string, double>> rank_pattern{}, alpha_pattern{};
  std::vector<std::int64_t> layers{};         ///< the only ones with adapters; empty: all
  std::vector<std::string> layers_pattern{};  ///< names of the list of layers; empty: any
  std::filesystem::path base{};               ///< directory of the base model
};

/// Throws core::InputError that names the file, the key and the expectation; for what is neither LoRA, rsLoRA
/// nor DoRA of matrices alone, too, and where the base is no directory.
PeftConfig read_peft_config(const std::filesystem::path& directory);

/// The adapters in the order of the model. Throws core::InputError that names the file and the key.
std::vector<passes::Adapter> adapters_of(const PeftConfig& config, const model::ModelConfig& model);

/// The text of adapter_config.json for adapters that all have the same rank and alpha.
std::string peft_config_text(const std::vector<passes::Adapter>& adapters, const std::filesystem::path& base);

}  // namespace rooflm::train
