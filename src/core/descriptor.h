// A file descriptor that closes itself, and calls on it that are repeated until all bytes went through.
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

/// Throws InputError: "cannot DOING PATH: what the system says of `error`".
[[noreturn]] void fail_on(std::string_view doing, const std::filesystem::path& path, int error);

/// Opens a regular file for reading; does not wait when `path` is a pipe. Throws InputError when it is
/// missing, unreadable, or anything else than a regular file, and says what it is.
Descriptor open_regular(const std::filesystem::path& path, std::uint64_t& size);

/// Writes all of `bytes` at the descriptor's position. Throws InputError that names `path`.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// Waits for the lock of an open file or folder and takes it; released when the descriptor is closed or the
/// process ends, however that happens. False where `wait` is false and another process holds it. File systems
/// without locks count as locked.
bool lock(int fd, bool wait);

/// Whether `path` still names the file that is open as `fd`.
[[nodiscard]] bool is_still_at(int fd, const std::filesystem::path& path);

}  // namespace rooflm::core
