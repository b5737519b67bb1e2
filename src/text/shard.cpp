// Reading token shards.
#include "text/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.h"
#include "text/shard_format.h"

namespace rooflm::text {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little endian and read as they are");

/// Tokens of 16 bits that are read before they are widened.
constexpr std::size_t kWideningTokens = 8192;

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
  const std::uint64_t bytes = file_.size();
  const std::string name = path.string();
  if (bytes < kShardHeaderBytes) {
    throw core::InputError(fmt::format("{}: {} bytes, expected a token shard with a header of {}", name,
                                       bytes, kShardHeaderBytes));
  }
  std::array<std::int32_t, kShardHeaderBytes / sizeof(std::int32_t)> header;
  file_.read(0, std::as_writable_bytes(std::span(header)));
  const ShardKind& kind = kind_of(header, name);
  if (header[2] < 0) throw core::InputError(fmt::format("{}: header word 2: {} tokens", name, header[2]));
  width_ = kind.width;
  size_ = static_cast<std::uint64_t>(header[2]);
  const std::uint64_t expected = kShardHeaderBytes + size_ * static_cast<std::uint64_t>(width_);
  if (bytes != expected) {
    throw core::InputError(fmt::format("{}: header word 2 says {} tokens, so {} bytes; the file has {}{}",
                                       name, size_, expected, bytes, bytes < expected ? ": truncated" : ""));
  }
}

void Shard::read(std::uint64_t first, std::span<std::int32_t> out) const {
  if (first > size_ || out.size() > size_ - first) {
    throw core::InputError(fmt::format("{}: tokens {} to {} asked for, it has {}", path().string(), first,
                                       first + out.size(), size_));
  }
  if (width_ == TokenWidth::u32) {
    file_.read(kShardHeaderBytes + first * sizeof(std::uint32_t), std::as_writable_bytes(out));
    return;
  }
  std::array<std::uint16_t, kWideningTokens> narrow;
  while (!out.empty()) {
    const auto tokens = std::span(narrow).first(std::min(narrow.size(), out.size()));
    file_.read(kShardHeaderBytes + first * sizeof(std::uint16_t), std::as_writable_bytes(tokens));
    std::ranges::copy(tokens, out.begin());
    first += tokens.size();
    out = out.subspan(tokens.size());
  }
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
