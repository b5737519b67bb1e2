// Reading files by mapping or at any offset, and writing them atomically.
#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/error.h"
#include "core/map_registry.h"
#include "core/stop_signals.h"

namespace rooflm::core {
namespace {

/// A size of 0 must be true: some files of /proc report 0 and have contents.
void require_empty(int fd, const std::filesystem::path& path) {
  char byte = 0;
  if (::pread(fd, &byte, 1, 0) > 0) {
    throw InputError(fmt::format(
        "cannot read {}: it says that it has 0 bytes and has more; copy it to a file", path.string()));
  }
}

/// Opens the temporary file, truncated and locked. Another process may hold the lock and rename the file
/// while this one waits; then the name denotes another file or none, and opening is retried.
Descriptor open_temporary(const std::filesystem::path& temporary, const std::filesystem::path& path) {
  while (true) {
    Descriptor file(::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (file.get() < 0) fail_on("write", path, errno);
    lock(file.get(), true);
    if (!is_still_at(file.get(), temporary)) continue;
    if (::ftruncate(file.get(), 0) != 0) fail_on("write", path, errno);
    return file;
  }
}

/// Renaming over a device or a pipe would replace it by a file.
void require_replaceable(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  if (S_ISDIR(info.st_mode)) fail_on("write", path, EISDIR);
  throw InputError(fmt::format("cannot write {}: it is not a regular file", path.string()));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  std::uint64_t size = 0;
  const Descriptor file = open_regular(path, size);
  if (size == 0) {
    require_empty(file.get(), path);
    return;
  }
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (map == MAP_FAILED) fail_on("map", path, errno);
  data_ = static_cast<const std::byte*>(map);
  size_ = size;
  remember_map(bytes(), path.c_str());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_map(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

RandomFile::RandomFile(std::filesystem::path path)
    : path_(std::move(path)), file_(open_regular(path_, size_)) {}

void RandomFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_on("read", path_, errno);
    if (n == 0) {
      throw InputError(fmt::format("{}: it ends at byte {}, it had {} bytes when it was opened: truncated",
                                   path_.string(), offset, size_));
    }
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  std::filesystem::path name = ".";
  name += path.filename();
  name += ".rooflm-tmp";
  return path.parent_path() / name;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void sync_directory(const std::filesystem::path& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

std::filesystem::path follow_links(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as Linux
  fs::path at = path;
  for (int links = 0;; ++links) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(at, error))) return at;
    if (links == kMostLinks) fail_on("write", path, ELOOP);
    if (fs::canonical(folder_of(at), error).string().starts_with("/proc/")) {
      throw InputError(fmt::format(
          "cannot write {}: it is a link to a file that is open already; name a file", path.string()));
    }
    const fs::path next = fs::read_symlink(at, error);
    if (error) fail_on("write", path, error.value());
    at = next.is_absolute() ? next : folder_of(at) / next;
  }
}

void take_permissions(int fd, const std::filesystem::path& replaced) {
  struct stat info {};
  if (::stat(replaced.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  constexpr mode_t kPermissions = 0777;
  if (::fchmod(fd, (info.st_mode & kPermissions) | S_IRUSR | S_IWUSR) != 0) fail_on("write", replaced, errno);
}

NewFile::NewFile(const std::filesystem::path& path)
    : path_(follow_links(path)), temporary_(temporary_name(path_)) {
  require_replaceable(path_);
  hold_stop();
  try {
    file_ = open_temporary(temporary_, path_);
    take_permissions(file_.get(), path_);
  } catch (...) {
    release_stop();
    throw;
  }
}

NewFile::~NewFile() {
  if (!is_committed_) ::unlink(temporary_.c_str());
  release_stop();
}

void NewFile::write(std::span<const std::byte> bytes) const { write_all(file_.get(), bytes, path_); }

void NewFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_on("write", path_, errno);
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void NewFile::sync() const {
  while (::fsync(file_.get()) != 0) {
    if (errno != EINTR) fail_on("write", path_, errno);
  }
}

void NewFile::commit() {
  sync();
  // Renamed before it is closed: a process that waits for the lock must not find it under the temporary name.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_on("write", path_, errno);
  is_committed_ = true;
  sync_directory(folder_of(path_));
}

void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(const ByteSink&)>& fill, const OnProgress& on_progress) {
  NewFile file(path);
  std::size_t unsynced = 0;
  fill([&](std::span<const std::byte> bytes) {
    if (!on_progress) return file.write(bytes);
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kProgressBytes - unsynced));
      file.write(piece);
      bytes = bytes.subspan(piece.size());
      unsynced += piece.size();
      if (unsynced == kProgressBytes) {
        file.sync();
        unsynced = 0;
      }
      on_progress();
    }
  });
  file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, [&](const ByteSink& sink) { sink(std::as_bytes(std::span(text))); });
}

}  // namespace rooflm::core
