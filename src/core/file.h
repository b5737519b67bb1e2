// Reading files by mapping them or at any place, writing them so that a crash never leaves half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace rooflm::core {

/// A read-only memory map of a whole regular file. Move-only; unmapped on destruction. Throws InputError that
/// names the file when it is missing, unreadable, or no regular file. An empty file maps to an empty span. A
/// file that another program makes shorter while it is mapped ends the process with a message and the exit
/// code of InputError when what is gone is read (core/process.h): what is read for long is better read with
/// RandomFile.
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

/// A regular file that is read in parts, at any place, by any number of threads. Move-only.
class RandomFile {
 public:
  /// Throws InputError as MappedFile does.
  explicit RandomFile(std::filesystem::path path);
  [[nodiscard]] std::uint64_t size() const { return size_; }  ///< bytes, when it was opened
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Fills `out` from byte `offset` on. Throws InputError when the file ends before, as one does that became
  /// shorter since it was opened, or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_ = 0;  // before file_, whose initialisation sets it
  Descriptor file_;
};

/// Receives bytes in order; throws InputError ("cannot write FILE: No space left on device") on failure.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// A file in the making: it is written as ".NAME.rooflm-tmp" in the folder of `path` and gets its name,
/// whole, from commit(). Destroyed before that it removes what it wrote. What a process that was killed left
/// under the temporary name is reused by the next that writes `path`; two that write it at once take turns.
class NewFile {
 public:
  /// Throws InputError when the file cannot be made, or `path` is a device, a pipe or a socket.
  explicit NewFile(std::filesystem::path path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Appends. Throws InputError that names `path`.
  void write(std::span<const std::byte> bytes) const;
  /// Writes over what is at byte `offset`.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// Has what was written so far on the disk. Throws InputError.
  void sync() const;
  /// Synchronises the file and renames it over `path`. Throws InputError; `path` is then as it was.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Descriptor file_;
  bool is_committed_ = false;
};

/// Is called after each piece of work that takes seconds at most, by whom others wait for.
using OnProgress = std::function<void()>;
/// Bytes of one piece.
inline constexpr std::size_t kProgressBytes = std::size_t{64} << 20U;

/// Writes `path` atomically: `fill` writes to a temporary file in the same directory, which is then
/// synchronised and renamed over `path`. On any failure the temporary file is removed, `path` is left as it
/// was, and InputError says which file and why. With `on_progress` the file is synchronised piece by piece,
/// so that the end does not wait for all of it.
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(const ByteSink&)>& fill,
                           const OnProgress& on_progress = {});
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The name under which NewFile writes `path` before commit().
std::filesystem::path temporary_name(const std::filesystem::path& path);

/// The folder that holds `path`: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// Synchronises a directory, so that renames in it survive a power cut.
void sync_directory(const std::filesystem::path& directory);

}  // namespace rooflm::core
