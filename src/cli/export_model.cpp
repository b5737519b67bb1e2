// The weights of a checkpoint in the layout of Hugging Face transformers.
#include "cli/export_model.h"

#include <fmt/format.h>

#include <span>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "model/huggingface.h"
#include "train/checkpoint.h"
#include "train/checkpoint_parts.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& checkpoint, const train::PartFiles& parts, const fs::path& directory) {
  const model::ModelConfig config =
      train::read_checkpoint_config(checkpoint, train::read_checkpoint_state(checkpoint));
  model::save_model(directory, config,
                    [&](const std::string& name, std::span<float> values) { parts.read(name, values); });
  std::error_code ignored;
  if (fs::exists(checkpoint / "tokenizer.json", ignored)) {
    const core::MappedFile tokenizer(checkpoint / "tokenizer.json");
    core::write_file_atomically(directory / "tokenizer.json", tokenizer.text());
  }
  core::sync_directory(directory);
}

}  // namespace

void export_model(const fs::path& checkpoint, const fs::path& output) {
  std::error_code error;
  if (fs::exists(output, error)) throw core::UsageError(fmt::format("-o {} exists already", output.string()));
  const fs::path directory = train::resolve_model_directory(checkpoint);
  const auto parts = train::open_parts(directory);
  if (!parts && fs::exists(directory / "config.json", error)) {
    throw core::UsageError(
        fmt::format("{} has the layout of Hugging Face transformers already", directory.string()));
  }
  if (!parts) throw core::InputError(fmt::format("{} is not a checkpoint", checkpoint.string()));
  fs::path unfinished = output;
  unfinished += ".tmp";
  fs::remove_all(unfinished, error);
  if (!fs::create_directory(unfinished, error) || error)
    throw core::InputError(fmt::format("cannot make {}: {}", unfinished.string(), error.message()));
  try {
    train::verify_model(directory);
    write(directory, *parts, unfinished);
    fs::rename(unfinished, output);
  } catch (...) {
    fs::remove_all(unfinished, error);
    throw;
  }
  core::sync_directory(core::folder_of(output));
}

}  // namespace rooflm::cli
