// Text input of commands: a file, a pipe, a terminal or standard input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.h"

namespace rooflm::core {

/// Most bytes read from a pipe, which are held in memory.
inline constexpr std::uint64_t kMostStreamBytes = std::uint64_t{2} << 30U;
/// Most bytes of settings and files written by hand.
inline constexpr std::uint64_t kMostSettingsBytes = std::uint64_t{64} << 20U;

/// The contents of `path`, which may also be a pipe, a terminal or /dev/null; "-" is standard input. Throws
/// InputError if it is missing, unreadable, a directory or another device (which might be endless), if it
/// exceeds `most` bytes, or if it is a pipe silent for 10 seconds before its first byte, or in settings at
/// all.
std::string read_text(const std::filesystem::path& path, std::uint64_t most = kMostStreamBytes);

/// Whether `path` can be read only once: "-", a pipe, a terminal, a file of /proc. False if it is missing.
bool is_stream(const std::filesystem::path& path);

/// The text of `path`: mapped if it is a regular file, otherwise read by read_text.
class TextInput {
 public:
  explicit TextInput(const std::filesystem::path& path);
  [[nodiscard]] std::string_view text() const { return file_ ? file_->text() : std::string_view(read_); }

 private:
  std::optional<MappedFile> file_;
  std::string read_;
};

}  // namespace rooflm::core
