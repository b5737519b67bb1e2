// Opens, writes and locks descriptors.
#include "core/system/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace rooflm::core {
namespace {

/// The first line of every pointer (Git LFS, docs/spec.md); a pointer has less than 1024 bytes.
constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/v1\n";
constexpr std::uint64_t kLfsPointerBytes = 1024;

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void fail_on(std::string_view doing, const std::filesystem::path& path, int error) {
  if (error == ENOMEM) throw std::bad_alloc();
  throw InputError(
      fmt::format("cannot {} {}: {}", doing, path.string(), std::generic_category().message(error)));
}

Descriptor open_regular(const std::filesystem::path& path, std::uint64_t& size) {
  // Without O_NONBLOCK, opening a pipe blocks until it has a writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) fail_on("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_on("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail_on("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    throw InputError(fmt::format("cannot read {}: it is {}, expected a regular file", path.string(),
                                 kind_of(info.st_mode)));
  }
  size = static_cast<std::uint64_t>(info.st_size);
  if (size >= kLfsPointer.size() && size < kLfsPointerBytes) {
    std::array<char, kLfsPointer.size()> begin{};
    const ssize_t n = ::pread(file.get(), begin.data(), begin.size(), 0);
    refuse_lfs_pointer({begin.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))}, path);
  }
  return file;
}

void refuse_lfs_pointer(std::string_view text, const std::filesystem::path& path) {
  if (!text.starts_with(kLfsPointer)) return;
  throw InputError(fmt::format("{}: a pointer of Git LFS, not the file: run git lfs pull", path.string()));
}

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_on("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

bool lock(int fd, bool wait) {
  while (::flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return errno != EWOULDBLOCK;
  }
  return true;
}

bool is_still_at(int fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace rooflm::core
