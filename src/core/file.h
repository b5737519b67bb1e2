// Reading files by mapping or at any offset, and writing them atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/system/descriptor.h"

namespace rooflm::core {

/// A read-only memory map of a whole regular file. Move-only; unmapped on destruction. Throws InputError that
/// names the file if it is missing, unreadable, or not a regular file. An empty file maps to an empty span.
/// If another program truncates the file while it is mapped, reading beyond the new end terminates the
/// process with a message and the exit code of InputError (core/system/process.h). Use RandomFile for files
/// that stay open for long.
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

/// A regular file that can be read at any offset by any number of threads. Move-only.
class RandomFile {
 public:
  /// Throws InputError as MappedFile does.
  explicit RandomFile(std::filesystem::path path);
  [[nodiscard]] std::uint64_t size() const { return size_; }  ///< bytes at the time it was opened
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Fills `out` from byte `offset` on. Throws InputError if the file ends before that (it may have been
  /// truncated since it was opened) or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_ = 0;  // before file_, whose initialisation sets it
  Descriptor file_;
};

/// Receives bytes in order. Throws InputError on failure ("cannot write FILE: No space left on device").
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// What a chain of symbolic links leads to, which need not be there; `path` itself if it is no link. Throws
/// InputError if the chain passes /proc (/dev/stdout, /dev/fd/1), or is a loop.
std::filesystem::path follow_links(const std::filesystem::path& path);
/// Gives a new file the permissions of the one that it will replace, if that is there; its owner may always
/// read and write it. Called before anything is written.
void take_permissions(int fd, const std::filesystem::path& replaced);

/// A new file, written as ".NAME.rooflm-tmp" in the folder of `path` and renamed to `path` by commit(). Links
/// are followed, and a file that is replaced hands on its permissions. If destroyed before, it removes what
/// it wrote. A temporary file left by a killed process is reused by the next writer of `path`; concurrent
/// writers take turns.
class NewFile {
 public:
  /// Throws InputError if the file cannot be created, or if `path` is a device, a pipe or a socket.
  explicit NewFile(const std::filesystem::path& path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Appends. Throws InputError that names `path`.
  void write(std::span<const std::byte> bytes) const;
  /// Overwrites bytes from `offset` on.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// Flushes everything written so far to disk. Throws InputError.
  void sync() const;
  /// Flushes the file and renames it to `path`. Throws InputError; `path` is then unchanged.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Descriptor file_;
  bool is_committed_ = false;
};

/// Progress callback of long operations; called every few seconds at least, so others that wait know it is
/// alive.
using OnProgress = std::function<void()>;
/// Bytes per piece.
inline constexpr std::size_t kProgressBytes = std::size_t{64} << 20U;

/// Writes `path` atomically: `fill` writes to a temporary file in the same directory, which is then flushed
/// and renamed to `path`. On any failure the temporary file is removed, `path` is unchanged, and InputError
/// says which file and why. With `on_progress` the file is flushed piece by piece, so the final flush is
/// short.
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(const ByteSink&)>& fill,
                           const OnProgress& on_progress = {});
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The name under which NewFile writes `path` before commit().
std::filesystem::path temporary_name(const std::filesystem::path& path);

/// The folder that holds `path`: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// Flushes a directory to disk, so renames in it survive a power cut.
void sync_directory(const std::filesystem::path& directory);

}  // namespace rooflm::core
