// Adapters in the files of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compile/passes/adapters.h"
#include "model/huggingface.h"

namespace rooflm::train {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

/// Whether the directory holds an adapter beside a base model that lies elsewhere.
bool has_adapter(const std::filesystem::path& directory);

/// What adapter_config.json says.
struct AdapterConfig {
  std::string lora;            ///< as --lora has it
  std::filesystem::path base;  ///< directory of the base model
};
/// Throws core::InputError that names the file and the key; for what is no plain LoRA (DoRA, rank-stabilised,
/// ranks by module, trained biases), too.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);

/// Passes the values of each adapter's two weights to `sink`, by the names that programs have. Throws
/// core::InputError if the file's tensors are not those of adapters of this model.
void load_adapters(const std::filesystem::path& directory, const std::vector<passes::Adapter>& adapters,
                   const model::WeightSink& sink);

/// Writes both files, weights in fp32.
void save_adapters(const std::filesystem::path& directory, const std::vector<passes::Adapter>& adapters,
                   const std::filesystem::path& base, const model::WeightSource& source);

/// Initial values: A is normal with the variance of PEFT's uniform one, 1 / (3 in); B is 0.
void initialise_adapters(const std::vector<passes::Adapter>& adapters, const model::ModelConfig& config,
                         std::uint64_t seed, const model::WeightSink& sink);

/// As model::load_weights, of the base model with the adapters of `directory`, if it has some, added to its
/// matrices: W += alpha / rank B A. `packed`: of a model without adapters.
void load_merged(const std::filesystem::path& directory, const model::ModelConfig& config,
                 const model::WeightSink& sink, const model::PackedSink& packed = {});

/// Throws what load_merged would throw because of files that are missing or do not fit. Reads headers of
/// weights alone.
void check_merged(const std::filesystem::path& directory, const model::ModelConfig& config);

}  // namespace rooflm::train
