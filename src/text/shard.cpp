// Reading token shards.
#include "text/shard.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "text/shard_format.h"

namespace rooflm::text {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little endian and mapped as they are");

const ShardKind& kind_of(std::span<const std::int32_t> header, const std::string& name) {
  for (const auto& kind : kShardKinds) {
    if (header[0] != kind.magic) continue;
    if (header[1] != kind.version) {
      throw core::InputError(fmt::format("{}: header word 1: version {}, expected {} with magic {}", name,
                                         header[1], kind.version, kind.magic));
    }
    return kind;
  }
  throw core::InputError(
      fmt::format("{}: header word 0: magic {}, expected {} (uint16 tokens) or {} (uint32 tokens); "
                  "no token shard",
                  name, header[0], kShardKinds[0].magic, kShardKinds[1].magic));
}

}  // namespace

Shard::Shard(const std::filesystem::path& path) : file_(path) {
  const auto bytes = file_.bytes();
  const std::string name = path.string();
  if (bytes.size() < kShardHeaderBytes) {
    throw core::InputError(fmt::format("{}: {} bytes, expected a token shard with a header of {}", name,
                                       bytes.size(), kShardHeaderBytes));
  }
  std::array<std::int32_t, kShardHeaderBytes / sizeof(std::int32_t)> header;
  std::memcpy(header.data(), bytes.data(), kShardHeaderBytes);
  const ShardKind& kind = kind_of(header, name);
  if (header[2] < 0) throw core::InputError(fmt::format("{}: header word 2: {} tokens", name, header[2]));
  width_ = kind.width;
  size_ = static_cast<std::uint64_t>(header[2]);
  const std::uint64_t expected = kShardHeaderBytes + size_ * static_cast<std::uint64_t>(width_);
  if (bytes.size() != expected) {
    throw core::InputError(fmt::format("{}: header word 2 says {} tokens, so {} bytes; the file has {}{}",
                                       name, size_, expected, bytes.size(),
                                       bytes.size() < expected ? ": truncated" : ""));
  }
}

void Shard::read(std::uint64_t first, std::span<std::int32_t> out) const {
  if (first > size_ || out.size() > size_ - first) {
    throw core::InputError(fmt::format("{}: tokens {} to {} asked for, it has {}", path().string(), first,
                                       first + out.size(), size_));
  }
  const std::byte* data = file_.bytes().data() + kShardHeaderBytes;
  if (width_ == TokenWidth::u32) {
    std::memcpy(out.data(), data + first * sizeof(std::uint32_t), out.size_bytes());
    return;
  }
  const auto* tokens = reinterpret_cast<const std::uint16_t*>(data) + first;  // a mapping is aligned to pages
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tokens[i];
}

void Shard::check_ids(std::uint64_t first, std::span<const std::int32_t> tokens,
                      std::uint32_t vocab_size) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(tokens[i]);
    if (id >= vocab_size) {
      throw core::InputError(fmt::format("{}: token {} has id {}, expected below the vocabulary size {}",
                                         path().string(), first + i, id, vocab_size));
    }
  }
}

}  // namespace rooflm::text
