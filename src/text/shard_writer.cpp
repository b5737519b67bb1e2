// Writing token shards: a temporary file beside the target, the header last, then the rename.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/shard.h"
#include "text/shard_format.h"

namespace rooflm::text {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;

}  // namespace

struct ShardWriter::File {
  std::filesystem::path path;
  std::filesystem::path temporary;
  TokenWidth width;
  int descriptor = -1;
  std::uint64_t count = 0;
  std::vector<std::byte> buffer = {};

  File(std::filesystem::path target, TokenWidth token_width) : path(std::move(target)), width(token_width) {
    temporary = path;
    temporary += fmt::format(".tmp{}", ::getpid());
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) fail(errno);
    buffer.reserve(kBufferBytes + sizeof(std::uint32_t));
    buffer.resize(kShardHeaderBytes);  // zeros: no shard yet
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor < 0) return;
    ::close(descriptor);
    ::unlink(temporary.c_str());
  }

  [[noreturn]] void fail(int error) const {
    throw core::InputError(fmt::format("cannot write {}: {}", path.string(), std::strerror(error)));
  }

  void flush() {
    for (std::size_t done = 0; done < buffer.size();) {
      const ssize_t n = ::write(descriptor, buffer.data() + done, buffer.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(errno);
      done += static_cast<std::size_t>(n);
    }
    buffer.clear();
  }

  void add(std::uint32_t token) {
    const std::size_t bytes = static_cast<std::size_t>(width);
    const std::size_t at = buffer.size();
    buffer.resize(at + bytes);
    std::memcpy(buffer.data() + at, &token, bytes);  // little endian: the low bytes first
    if (buffer.size() >= kBufferBytes) flush();
  }
};

ShardWriter::ShardWriter(const std::filesystem::path& path, TokenWidth width)
    : file_(std::make_unique<File>(path, width)) {}
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

std::uint64_t ShardWriter::size() const { return file_->count; }

void ShardWriter::append(std::span<const std::uint32_t> tokens) {
  if (tokens.size() > kMaxShardTokens - file_->count) {
    throw core::InputError(
        fmt::format("{}: a shard holds at most {} tokens", file_->path.string(), kMaxShardTokens));
  }
  for (const auto token : tokens) {
    if (file_->width == TokenWidth::u16 && token > 0xFFFF) {
      throw core::InputError(
          fmt::format("{}: token id {} does not fit into 16 bits", file_->path.string(), token));
    }
    file_->add(token);
  }
  file_->count += tokens.size();
}

void ShardWriter::finish() {
  File& file = *file_;
  file.flush();
  std::int32_t header[3] = {0, 0, static_cast<std::int32_t>(file.count)};
  for (const auto& kind : kShardKinds) {
    if (kind.width == file.width) std::tie(header[0], header[1]) = std::pair{kind.magic, kind.version};
  }
  if (::pwrite(file.descriptor, header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    file.fail(errno);
  if (::fsync(file.descriptor) != 0) file.fail(errno);
  if (::rename(file.temporary.c_str(), file.path.c_str()) != 0) file.fail(errno);
  const int descriptor = std::exchange(file.descriptor, -1);
  if (::close(descriptor) != 0) file.fail(errno);
  core::sync_directory(file.path.has_parent_path() ? file.path.parent_path() : std::filesystem::path("."));
}

}  // namespace rooflm::text
