// One rule for every path that a command writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rooflm::cli {

/// As a path: output goes to standard output, and tables are not printed.
inline constexpr const char* kStandardOutput = "-";

/// A file that a command is to write, and the option that named it: {"--html", "page.html"}. An empty path is
/// not written.
struct OutputPath {
  const char* option;
  std::filesystem::path path;
};

/// The files that a command reads when it is given `inputs`: of a directory those that models and prepared
/// data consist of (*.json, *.safetensors, *.bin, *.txt, and those of its newest checkpoint), of "-" what
/// standard input is, of a record also SQLite's files beside it.
std::vector<std::filesystem::path> files_of(const std::vector<std::string>& inputs);
/// The same of what --model says: names, separated by commas; presets are no files.
std::vector<std::filesystem::path> files_of_models(const std::string& models);

/// For what cannot go to standard output. Throws core::UsageError.
void require_file(const OutputPath& output);
/// Writes the bytes of a file to standard output.
void copy_to_output(const std::filesystem::path& path);

/// Throws core::UsageError when an output is one of the inputs, whatever names, links and folders lead there.
void refuse_inputs(const std::vector<OutputPath>& outputs, const std::vector<std::filesystem::path>& inputs);

/// Throws core::UsageError when two outputs are one file.
void refuse_equal(const std::vector<OutputPath>& outputs);

/// The rule: no output is an input of the same command or another of its outputs (core::UsageError); a file
/// that exists is replaced only with `overwrite`, and something else than a regular file never; the folder is
/// there and may be written (core::InputError). Standard output is not looked at. To be called before
/// anything is measured or read at length.
void check_outputs(const std::vector<OutputPath>& outputs, const std::vector<std::filesystem::path>& inputs,
                   bool overwrite);

}  // namespace rooflm::cli
