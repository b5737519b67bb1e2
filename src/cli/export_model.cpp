// The weights of a checkpoint in the layout of Hugging Face transformers.
#include "cli/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/output_rule.h"
#include "core/error.h"
#include "core/file.h"
#include "model/huggingface.h"
#include "text/tokenizer.h"
#include "train/adapter_files.h"
#include "train/checkpoint.h"
#include "train/checkpoint_parts.h"

namespace rooflm::cli {
namespace fs = std::filesystem;

void refuse_existing(const fs::path& output) {
  std::error_code error;
  require_file({"-o", output});
  if (fs::exists(fs::symlink_status(output, error)))
    throw core::UsageError(fmt::format("-o {} exists already", output.string()));
}

model::TextEnds copy_tokenizer(const fs::path& from, const fs::path& to) {
  const fs::path tokenizer = train::directory_with("tokenizer.json", from) / "tokenizer.json";
  std::error_code ignored;
  if (!fs::exists(tokenizer, ignored)) return {};
  const core::MappedFile file(tokenizer);
  core::write_file_atomically(to / "tokenizer.json", file.text());
  return train::text_ends(text::Tokenizer::load(tokenizer));
}

namespace {

/// The weights of a checkpoint of adapters, all at once.
std::map<std::string, std::vector<float>> merged_weights(const fs::path& checkpoint,
                                                         const model::ModelConfig& config) {
  std::map<std::string, std::vector<float>> weights;
  train::load_merged(checkpoint, config, [&](const std::string& name, std::span<const float> values) {
    weights[name] = {values.begin(), values.end()};
  });
  return weights;
}

void write(const fs::path& checkpoint, const std::optional<train::PartFiles>& parts,
           const fs::path& directory) {
  const model::ModelConfig config = train::read_model_config(checkpoint);
  std::map<std::string, std::vector<float>> merged;
  if (!parts) merged = merged_weights(checkpoint, config);
  model::save_model(
      directory, config,
      [&](const std::string& name, std::span<float> values) {
        if (parts) return parts->read(name, values);
        std::ranges::copy(merged.at(name), values.begin());
      },
      core::DType::f32, model::kMaxShardBytes, {}, copy_tokenizer(checkpoint, directory));
}

/// "model" of "model/": names beside it can be made.
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

/// A new folder beside `output`. Whatever is there already belongs to somebody else.
fs::path make_unfinished(const fs::path& output) {
  constexpr int kMostTries = 1000;
  std::error_code error;
  for (int i = 0; i < kMostTries; ++i) {
    fs::path folder = core::temporary_name(output);
    if (i > 0) folder += fmt::format("-{}", i);
    if (fs::create_directory(folder, error)) return folder;
    if (error && error != std::errc::file_exists)
      throw core::InputError(fmt::format("cannot make {}: {}", folder.string(), error.message()));
  }
  throw core::InputError(fmt::format("cannot write {}: remove the unfinished folders {}*", output.string(),
                                     core::temporary_name(output).string()));
}

struct Source {
  fs::path directory;
  std::optional<train::PartFiles> parts;  ///< absent: adapters, which are added to their base
};

/// Throws where `checkpoint` cannot be exported to `output`.
Source checked(const fs::path& checkpoint, const fs::path& output) {
  std::error_code error;
  refuse_existing(output);
  fs::path directory = train::resolve_model_directory(checkpoint);
  auto parts = train::open_parts(directory);
  if (!parts && train::has_adapter(directory)) return {std::move(directory), std::nullopt};
  if (!parts && fs::exists(directory / "config.json", error)) {
    throw core::UsageError(
        fmt::format("{} has the layout of Hugging Face transformers already", directory.string()));
  }
  if (!parts) throw core::InputError(fmt::format("{} is not a checkpoint", checkpoint.string()));
  return {std::move(directory), std::move(parts)};
}

}  // namespace

void check_model_export(const fs::path& checkpoint, const fs::path& output) {
  static_cast<void>(checked(checkpoint, without_slash(output)));
}

void write_directory(const fs::path& output, const std::function<void(const fs::path&)>& write) {
  const fs::path target = without_slash(output);
  const fs::path unfinished = make_unfinished(target);
  std::error_code error;
  try {
    write(unfinished);
    core::sync_directory(unfinished);
    fs::rename(unfinished, target);
  } catch (...) {
    fs::remove_all(unfinished, error);
    throw;
  }
  core::sync_directory(core::folder_of(target));
}

void export_model(const fs::path& checkpoint, const fs::path& output) {
  const Source source = checked(checkpoint, without_slash(output));
  write_directory(output, [&](const fs::path& directory) {
    train::verify_model(source.directory);
    write(source.directory, source.parts, directory);
  });
}

}  // namespace rooflm::cli
