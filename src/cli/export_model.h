// The weights of a checkpoint in the layout of Hugging Face transformers.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "model/huggingface.h"

namespace rooflm::cli {

/// The name of that format, beside those of report::export_formats.
inline constexpr const char* kHuggingFace = "huggingface";

/// Writes config.json, model.safetensors (fp32) and tokenizer.json of `checkpoint`, one of parts or the
/// output of a training run whose newest is, to the directory `output`, which appears whole. Throws
/// core::UsageError when `output` exists or is standard output, or the checkpoint has that layout already,
/// core::InputError for what is no checkpoint, or damaged.
void export_model(const std::filesystem::path& checkpoint, const std::filesystem::path& output);
/// Throws as export_model does, as far as that is known before weights are read.
void check_model_export(const std::filesystem::path& checkpoint, const std::filesystem::path& output);

/// Throws core::UsageError where `output` exists or is standard output.
void refuse_existing(const std::filesystem::path& output);
/// Makes a directory that appears whole: `write` fills another one beside it.
void write_directory(const std::filesystem::path& output,
                     const std::function<void(const std::filesystem::path&)>& write);
/// Copies tokenizer.json, where there is one, and says where its texts begin and end.
model::TextEnds copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace rooflm::cli
