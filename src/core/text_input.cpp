// Reads input that may not be a regular file, without blocking or reading forever.
#include "core/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "core/stop_signals.h"
#include "core/system/descriptor.h"

namespace rooflm::core {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20U;
constexpr std::chrono::seconds kWriterPatience{10};
constexpr std::chrono::milliseconds kNap{20};

/// Whether reading ends: the null device is empty, a terminal ends; any other device may be endless.
bool has_an_end(int fd, const struct stat& info) {
  if (!S_ISCHR(info.st_mode)) return !S_ISBLK(info.st_mode);
  constexpr unsigned kMemoryDevices = 1;
  constexpr unsigned kNull = 3;
  return ::isatty(fd) != 0 || (major(info.st_rdev) == kMemoryDevices && minor(info.st_rdev) == kNull);
}

/// Bytes to ask for at a time: the whole of a small file and its end, so that it takes no pages for more. A
/// size of 0 says nothing: files of /proc have it.
std::size_t block_of(const struct stat& info) {
  constexpr std::size_t kLeast = 4096;
  if (!S_ISREG(info.st_mode)) return kReadBytes;
  return std::clamp(static_cast<std::size_t>(info.st_size) + 1, kLeast, kReadBytes);
}

/// Appends what is available, at most `block` bytes, to `text`; returns 0 at the end. EINTR is retried; other
/// errors are -1.
ssize_t read_more(int fd, std::string& text, std::size_t block = kReadBytes) {
  const std::size_t before = text.size();
  text.resize(before + block);
  ssize_t n = 0;
  do {
    n = ::read(fd, text.data() + before, block);
  } while (n < 0 && errno == EINTR && StopSignals::received() == 0);
  text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  StopSignals::check();
  return n;
}

[[noreturn]] void fail_on_silence(const std::filesystem::path& path) {
  throw InputError(fmt::format("cannot read {}: it is a pipe, and nobody has written to it for {} seconds",
                               path.string(), kWriterPatience.count()));
}

/// Waits for the writer of a named pipe that was opened without blocking. Until one has opened it, read
/// returns 0; while a writer has written nothing, EAGAIN. After a writer has closed it, poll reports POLLHUP.
void wait_for_writer(int fd, const std::filesystem::path& path, std::string& text) {
  const auto end = std::chrono::steady_clock::now() + kWriterPatience;
  while (true) {
    const ssize_t n = read_more(fd, text);
    if (n > 0 || (n < 0 && errno == EAGAIN)) break;
    if (n < 0) fail_on("read", path, errno);
    pollfd state{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&state, 1, 0) > 0) break;
    if (std::chrono::steady_clock::now() >= end) fail_on_silence(path);
    std::this_thread::sleep_for(kNap);
  }
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/// Something to read, or the end, before the patience is at its end. A signal that asks to stop ends the
/// wait.
void require_news(int fd, const std::filesystem::path& path) {
  const auto end = std::chrono::steady_clock::now() + kWriterPatience;
  pollfd state{.fd = fd, .events = POLLIN, .revents = 0};
  while (::poll(&state, 1, static_cast<int>(kNap.count())) <= 0) {
    StopSignals::check();
    if (std::chrono::steady_clock::now() >= end) fail_on_silence(path);
  }
}

std::string read_descriptor(int fd, const std::filesystem::path& path, std::uint64_t most,
                            bool is_opened_here) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_on("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail_on("read", path, EISDIR);
  if (!has_an_end(fd, info)) {
    throw InputError(fmt::format("cannot read {}: it is a device, expected a file or a pipe", path.string()));
  }
  const auto require_room = [&](std::uint64_t bytes) {
    if (bytes <= most) return;
    throw InputError(
        fmt::format("cannot read {}: it has more than {} MiB{}", path.string(), most >> 20U,
                    S_ISREG(info.st_mode) ? "" : "; save it to a file, which is not held in memory"));
  };
  std::string text;
  if (S_ISREG(info.st_mode)) require_room(static_cast<std::uint64_t>(info.st_size));
  if (S_ISFIFO(info.st_mode) && is_opened_here) wait_for_writer(fd, path, text);
  const bool is_settings = S_ISFIFO(info.st_mode) && is_opened_here && most <= kMostSettingsBytes;
  while (true) {
    if (is_settings) require_news(fd, path);
    const ssize_t n = read_more(fd, text, block_of(info));
    if (n < 0) fail_on("read", path, errno);
    require_room(text.size());
    if (n == 0) break;
  }
  refuse_lfs_pointer(text, path);
  return text;
}

}  // namespace

std::string read_text(const std::filesystem::path& path, std::uint64_t most) {
  if (path == "-") return read_descriptor(STDIN_FILENO, "standard input", most, false);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) fail_on("open", path, errno);
  if (::isatty(file.get()) != 0) ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
  return read_descriptor(file.get(), path, most, true);
}

bool is_stream(const std::filesystem::path& path) {
  if (path == "-") return true;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return false;
  return !S_ISREG(info.st_mode) || info.st_size == 0;
}

TextInput::TextInput(const std::filesystem::path& path) {
  if (is_stream(path)) {
    read_ = read_text(path);
  } else {
    file_.emplace(path);
  }
}

}  // namespace rooflm::core
