// Writing token shards: the header last, then the rename.
#include <fmt/format.h>

#include <cstring>
#include <tuple>
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
  core::NewFile file;
  TokenWidth width;
  std::uint64_t count = 0;
  std::vector<std::byte> buffer = {};

  File(const std::filesystem::path& target, TokenWidth token_width) : file(target), width(token_width) {
    buffer.reserve(kBufferBytes + sizeof(std::uint32_t));
    buffer.resize(kShardHeaderBytes);  // zeros: no shard yet
  }

  void flush() {
    file.write(buffer);
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
        fmt::format("{}: a shard holds at most {} tokens", file_->file.path().string(), kMaxShardTokens));
  }
  for (const auto token : tokens) {
    if (file_->width == TokenWidth::u16 && token > 0xFFFF) {
      throw core::InputError(
          fmt::format("{}: token id {} does not fit into 16 bits", file_->file.path().string(), token));
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
  file.file.write_at(0, std::as_bytes(std::span(header)));
  file.file.commit();
}

}  // namespace rooflm::text
