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
#include "train/peft_config.h"

namespace rooflm::train {

inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

/// Whether the directory holds an adapter beside a base model that lies elsewhere.
bool has_adapter(const std::filesystem::path& directory);

/// The directory that says of an adapter's model what the adapter's does not: its config.json or its
/// tokenizer, of which PEFT writes the one never and the other seldom. `directory` itself where it has
/// `file`, or is no adapter's. Throws core::InputError as read_peft_config.
std::filesystem::path directory_with(const char* file, const std::filesystem::path& directory);

/// Passes the values of each adapter's weights to `sink`, by the names that programs have. Throws
/// core::InputError if the file's tensors are not those of adapters of this model.
void load_adapters(const std::filesystem::path& directory, const std::vector<passes::Adapter>& adapters,
                   const model::WeightSink& sink);

/// Writes both files, weights in fp32.
void save_adapters(const std::filesystem::path& directory, const std::vector<passes::Adapter>& adapters,
                   const std::filesystem::path& base, const model::WeightSource& source);

/// Initial values: A is normal with the variance of PEFT's uniform one, 1 / (3 in); B is 0; magnitudes are
/// the lengths of the rows of W, whose squares `source` knows (Adapter::row_squares).
void initialise_adapters(const std::vector<passes::Adapter>& adapters, const model::ModelConfig& config,
                         std::uint64_t seed, const model::WeightSource& source,
                         const model::WeightSink& sink);

/// As model::load_weights, of the base model with the adapters of `directory`, if it has some, merged into
/// its matrices: W + factor B A; of DoRA m (W + factor B A) / |W + factor B A| by row. `packed`: of a model
/// without adapters.
void load_merged(const std::filesystem::path& directory, const model::ModelConfig& config,
                 const model::WeightSink& sink, const model::PackedSink& packed = {});

/// Throws what load_merged would throw because of files that are missing or do not fit. Reads headers of
/// weights alone.
void check_merged(const std::filesystem::path& directory, const model::ModelConfig& config);

}  // namespace rooflm::train
