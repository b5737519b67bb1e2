// Text that a command reads: a file, or what comes through a pipe, a terminal or standard input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.h"

namespace rooflm::core {

/// What comes through a pipe is held in memory, up to this many bytes.
inline constexpr std::uint64_t kMostStreamBytes = std::uint64_t{2} << 30U;
/// Files that are written by hand, and settings: no reader of them needs more.
inline constexpr std::uint64_t kMostSettingsBytes = std::uint64_t{64} << 20U;

/// The whole of `path`, which may be a pipe, a terminal or /dev/null too; "-" is standard input. Throws
/// InputError when it is missing, unreadable, a directory or another device (which might have no end), when
/// it has more than `most` bytes, and when it is a named pipe that nobody opens for writing within 10
/// seconds.
std::string read_text(const std::filesystem::path& path, std::uint64_t most = kMostStreamBytes);

/// Whether `path` can be read once only: "-", a pipe, a terminal, a file of /proc. False when it is missing.
bool is_stream(const std::filesystem::path& path);

/// The text of `path`: mapped where it is a regular file, else as read_text has it.
class TextInput {
 public:
  explicit TextInput(const std::filesystem::path& path);
  [[nodiscard]] std::string_view text() const { return file_ ? file_->text() : std::string_view(read_); }

 private:
  std::optional<MappedFile> file_;
  std::string read_;
};

}  // namespace rooflm::core
