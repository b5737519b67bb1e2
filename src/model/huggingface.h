// Hugging Face directories: config.json and safetensors of GPT2LMHeadModel and LlamaForCausalLM.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "core/dtype.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace rooflm::model {

/// Reads DIRECTORY/config.json; `name` becomes the directory's name. GPT-2's vocabulary of 50257 is padded as
/// in the preset gpt2, others are not padded. Throws core::InputError that names the file, the key and the
/// expectation when a key is missing or out of range, for other architectures, and for what rooflm does not
/// compute (rope_scaling, biases in llama, other activations).
ModelConfig read_config(const std::filesystem::path& directory);

/// As read_config, for plans: also of Mistral, Qwen2 and Qwen3, whose products are those of a llama, and with
/// scaled positions. `left_out` says what the program then has not; a window of attention is the longest
/// sequence. Throws core::InputError that names the kind for all others (experts are not planned yet).
ModelConfig read_planned_config(const std::filesystem::path& directory);

/// The text of the config.json that describes `config`, with weights stored as `dtype`. Throws
/// core::UsageError for a gpt2 kind whose heads do not fill d_model, which that format cannot say.
std::string config_json(const ModelConfig& config, core::DType dtype);

/// Receives the values of one parameter (model/parameters.h): fp32, row-major, valid during the call.
using WeightSink = std::function<void(const std::string& name, std::span<const float> values)>;
/// Fills in the values of one parameter.
using WeightSource = std::function<void(const std::string& name, std::span<float> values)>;

/// Reads the weights of a directory and hands every parameter of `config` to `sink`, once, in the order of
/// parameters(config). F32, BF16, F16 and F64 files are converted to fp32; GPT-2's Conv1D is transposed; q,
/// k, v and llama's gate, up are packed; padding rows are zero. Names without the "transformer." or "model."
/// prefix are accepted; attention masks and rotary tables are ignored, and so is the head's copy when it is
/// tied. Before the first call everything is checked: core::InputError names the file, the tensor and both
/// shapes when one is missing, left over or has another shape or dtype. A value that is not finite is refused
/// when it is met.
void load_weights(const std::filesystem::path& directory, const ModelConfig& config, const WeightSink& sink);

/// Writes config.json alone. Throws core::InputError.
void save_config(const std::filesystem::path& directory, const ModelConfig& config,
                 core::DType dtype = core::DType::f32);

/// Writes config.json and the weights as `dtype` (f32, bf16, f16) in the layout of Hugging Face transformers,
/// without padding rows. `source` is called once per parameter in the order of parameters(config). Each file
/// appears atomically, config.json last. Throws core::InputError when the directory cannot be written.
/// `on_progress`: as core::write_file_atomically.
void save_model(const std::filesystem::path& directory, const ModelConfig& config, const WeightSource& source,
                core::DType dtype = core::DType::f32, std::uint64_t max_shard_bytes = kMaxShardBytes,
                const core::OnProgress& on_progress = {});

}  // namespace rooflm::model
