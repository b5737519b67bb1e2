// Hugging Face directories: config.json and safetensors of the families of data/families.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace rooflm::model {

/// Reads DIRECTORY/config.json of the families of data/families.json; `name` becomes the directory's name.
/// GPT-2's vocabulary of 50257 is padded as in the preset gpt2; others are not padded. Not all that it reads
/// has kernels: see `uncomputed`. Throws core::InputError, naming file, key and expectation, if a key is
/// missing or out of range, and for features that no program describes (other activations);
/// core::Unavailable for other families.
ModelConfig read_config(const std::filesystem::path& directory);

/// The same of the text of a config.json; messages call it `path`.
ModelConfig parse_config(std::string_view text, const std::string& path, const std::string& name);

/// The tokens at which texts begin and end, where they are known. Without them transformers assumes those of
/// GPT-2 or Llama, which the vocabulary may not have.
struct TextEnds {
  std::optional<std::uint32_t> begin{}, end{};
};

/// The config.json text of `config`, with weights stored as `dtype`, under the keys of its family. Throws
/// core::Unavailable if such a file cannot say all of the model.
std::string config_json(const ModelConfig& config, core::DType dtype, const TextEnds& ends = {});

/// Receives the values of one parameter (model/parameters.h): fp32, row-major, valid during the call.
using WeightSink = std::function<void(const std::string& name, std::span<const float> values)>;
/// Fills in the values of one parameter.
using WeightSource = std::function<void(const std::string& name, std::span<float> values)>;

/// Reads the weights of a directory and passes every parameter of `config` to `sink`, once, in the order of
/// parameters(config). Converts F32, BF16, F16 and F64 to fp32, packs and permutes as data/families.json
/// says, and zeroes padding rows. Names may lack the prefix "transformer." or "model."; attention masks,
/// rotary tables, a tied head's copy and the other parts of the file's model are ignored. Everything is
/// checked before the first call: core::InputError names the file, the tensor and both shapes if one is
/// missing, unexpected or has another shape or dtype. Values are checked for finiteness when they are read.
/// Matrices that files have quantised (model/quantized_files.h) go to `packed`, if there is one, as they are.
using PackedSink = std::function<void(const std::string& name, std::span<const std::byte> codes)>;
void load_weights(const std::filesystem::path& directory, const ModelConfig& config, const WeightSink& sink,
                  const PackedSink& packed = {});

/// The same one parameter at a time, in any order: the files stay open, and nothing is kept in memory.
WeightSource open_weights(const std::filesystem::path& directory, const ModelConfig& config);

/// The widest of the floating-point dtypes that the directory's tensors are stored as; fp32 for fp64.
core::DType stored_dtype(const std::filesystem::path& directory);

/// Throws what load_weights would throw before its first call of `sink`. Reads headers alone.
void check_weights(const std::filesystem::path& directory, const ModelConfig& config);

/// Writes only config.json, with `ends`. Throws core::InputError.
void save_config(const std::filesystem::path& directory, const ModelConfig& config,
                 core::DType dtype = core::DType::f32, const TextEnds& ends = {});

/// Writes config.json and the weights as `dtype` (f32, bf16, f16) in the layout of Hugging Face transformers,
/// without padding rows. `source` is called once per parameter in the order of parameters(config). Each file
/// appears atomically, config.json last, with `ends`. Throws core::InputError if the directory cannot be
/// written. `on_progress`: as in core::write_file_atomically.
void save_model(const std::filesystem::path& directory, const ModelConfig& config, const WeightSource& source,
                core::DType dtype = core::DType::f32, std::uint64_t max_shard_bytes = kMaxShardBytes,
                const core::OnProgress& on_progress = {}, const TextEnds& ends = {});

}  // namespace rooflm::model
