// Comparing outputs with inputs as files, not as names.
#include "cli/output_rule.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>

#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/file.h"
#include "core/system/descriptor.h"
#include "model/config.h"
#include "train/checkpoint.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

/// Files that both exist are compared by device and inode, so hard and symbolic links are seen through;
/// others by their path without links.
bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  // Of "page" and "./page" the first has no part that is there, so it would stay as it is.
  const fs::path canonical_a = fs::weakly_canonical(fs::absolute(a, error), error);
  if (error) return a == b;
  const fs::path canonical_b = fs::weakly_canonical(fs::absolute(b, error), error);
  return error ? a == b : canonical_a == canonical_b;
}

void add_directory(std::vector<fs::path>& files, const fs::path& directory) {
  constexpr std::array<std::string_view, 4> kExtensions = {".json", ".safetensors", ".bin", ".txt"};
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string extension = entry->path().extension().string();
    if (std::ranges::find(kExtensions, extension) != kExtensions.end()) files.push_back(entry->path());
  }
}

void add_input(std::vector<fs::path>& files, const fs::path& input) {
  if (input.empty()) return;
  if (input == "-") {
    files.emplace_back("/dev/stdin");
    return;
  }
  std::error_code ignored;
  if (!fs::is_directory(input, ignored)) {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
      fs::path& file = files.emplace_back(input);
      file += suffix;
    }
    return;
  }
  add_directory(files, input);
  if (const fs::path model = train::resolve_model_directory(input); model != input)
    add_directory(files, model);
}

void require_folder(const fs::path& path) {
  const fs::path folder = core::folder_of(path);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw core::InputError(
        fmt::format("cannot write {}: there is no folder {}", path.string(), folder.string()));
  }
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  const int error = errno;
  if (error != EACCES) core::fail_on("write", path, error);
  throw core::InputError(fmt::format("cannot write {}: no permission to write to the folder {}",
                                     path.string(), folder.string()));
}

void check_target(const fs::path& path, bool overwrite) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return require_folder(path);
  const fs::path target = core::follow_links(path);
  const fs::file_status status = fs::status(target, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw core::InputError(fmt::format("cannot write {}: it is {}, not a regular file", path.string(),
                                       fs::is_directory(status) ? "a directory" : "a device or a pipe"));
  }
  if (!overwrite) {
    throw core::InputError(
        fmt::format("cannot write {}: it exists (--overwrite replaces it)", path.string()));
  }
  require_folder(target);
}

}  // namespace

std::vector<fs::path> files_of(const std::vector<std::string>& inputs) {
  std::vector<fs::path> files;
  for (const std::string& input : inputs) add_input(files, input);
  return files;
}

std::vector<fs::path> files_of_models(const std::string& models) {
  std::vector<fs::path> files;
  const auto& presets = model::preset_names();
  for (const std::string& name : parse_names("--model", models)) {
    if (std::ranges::find(presets, name) == presets.end()) add_input(files, name);
  }
  return files;
}

void refuse_inputs(const std::vector<OutputPath>& outputs, const std::vector<fs::path>& inputs) {
  for (const OutputPath& output : outputs) {
    if (output.path.empty()) continue;
    const auto is_it = [&](const fs::path& input) { return is_same_file(output.path, input); };
    if (std::ranges::none_of(inputs, is_it)) continue;
    throw core::UsageError(fmt::format("{} {}: this command reads that file; give another name",
                                       output.option, output.path.string()));
  }
}

void require_file(const OutputPath& output) {
  if (output.path != kStandardOutput) return;
  throw core::UsageError(fmt::format("{} -: this cannot go to standard output; name a file", output.option));
}

void copy_to_output(const std::filesystem::path& path) {
  constexpr std::size_t kBytes = 1 << 16;
  std::ifstream file(path, std::ios::binary);
  std::string buffer(kBytes, '\0');
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) {
    write_out(std::string_view(buffer).substr(0, static_cast<std::size_t>(file.gcount())));
  }
}

void refuse_equal(const std::vector<OutputPath>& outputs) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (auto other = outputs.begin(); other != output; ++other) {
      if (output->path.empty() || other->path.empty() || !is_same_file(output->path, other->path)) continue;
      throw core::UsageError(fmt::format("{} {} and {} {} are the same file", other->option,
                                         other->path.string(), output->option, output->path.string()));
    }
  }
}

void check_outputs(const std::vector<OutputPath>& outputs, const std::vector<fs::path>& inputs,
                   bool overwrite) {
  refuse_inputs(outputs, inputs);
  refuse_equal(outputs);
  for (const OutputPath& output : outputs) {
    if (!output.path.empty() && output.path != kStandardOutput) check_target(output.path, overwrite);
  }
}

}  // namespace rooflm::cli
