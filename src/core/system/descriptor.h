// A file descriptor that closes itself, and complete reads and writes on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace rooflm::core {

/// Owns a descriptor. Move-only.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// Throws InputError "cannot DOING PATH: the system's message for `error`".
[[noreturn]] void fail_on(std::string_view doing, const std::filesystem::path& path, int error);

/// Opens a regular file for reading; does not block if `path` is a pipe. Throws InputError, saying what
/// `path` is, if it is missing, unreadable, not a regular file, or a pointer of Git LFS.
Descriptor open_regular(const std::filesystem::path& path, std::uint64_t& size);

/// Throws InputError if a file that begins with `text` is a pointer of Git LFS: the contents of every file
/// that is read pass this once.
void refuse_lfs_pointer(std::string_view text, const std::filesystem::path& path);

/// Writes all of `bytes` at the descriptor's position. Throws InputError that names `path`.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// Takes the lock of an open file or folder, waiting for it if `wait`. It is released when the descriptor is
/// closed or the process ends in any way. Returns false if `wait` is false and another process holds it. On
/// file systems without locks it always succeeds.
bool lock(int fd, bool wait);

/// Whether `path` still names the file that is open as `fd`.
[[nodiscard]] bool is_still_at(int fd, const std::filesystem::path& path);

}  // namespace rooflm::core
