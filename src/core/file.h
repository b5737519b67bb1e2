// Reading files by mapping them, writing them so that a crash never leaves half of one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace rooflm::core {

/// A read-only memory map of a whole file. Move-only; unmapped on destruction. Throws InputError that names
/// the file when it is missing, a directory or unreadable. An empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Receives bytes in order; throws InputError ("cannot write FILE: No space left on device") on failure.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Writes `path` atomically: `fill` writes to a temporary file in the same directory, which is then
/// synchronised and renamed over `path`. On any failure the temporary file is removed, `path` is left as it
/// was, and InputError says which file and why.
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(const ByteSink&)>& fill);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Synchronises a directory, so that renames in it survive a power cut.
void sync_directory(const std::filesystem::path& directory);

}  // namespace rooflm::core
