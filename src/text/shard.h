// Token shards: llm.c's .bin files, read at any place and written as a stream.
//
// A header of 256 int32, little endian: magic, version, number of tokens, zeros; then the tokens.
// GPT-2 kind: magic 20240520, version 1, uint16 tokens. Llama 3 kind: magic 20240801, version 7, uint32
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "core/file.h"

namespace rooflm::text {

inline constexpr std::size_t kShardHeaderBytes = 1024;
/// Most tokens of one shard: the header counts in int32.
inline constexpr std::uint64_t kMaxShardTokens = 2147483647;

/// Bytes of a token in a shard.
enum class TokenWidth : std::uint8_t { u16 = 2, u32 = 4 };

/// The width that holds ids 0 .. vocab_size - 1.
constexpr TokenWidth width_for(std::uint64_t vocab_size) {
  return vocab_size <= 65536 ? TokenWidth::u16 : TokenWidth::u32;
}

/// A shard, open for reading. Not mapped: a training run reads for weeks, and a file that becomes shorter
/// meanwhile must be an error, not a fault. Move-only; reading is thread-safe.
class Shard {
 public:
  /// Throws core::InputError that names the file, the place and the expectation when it is missing, no shard,
  /// of another version, or its length does not match its count of tokens.
  explicit Shard(const std::filesystem::path& path);

  /// Number of tokens.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] TokenWidth width() const { return width_; }
  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  /// Copies tokens [first, first + out.size()) to `out`. Throws core::InputError when they reach beyond the
  /// end, or the file ends before them by now.
  void read(std::uint64_t first, std::span<std::int32_t> out) const;
  /// Throws core::InputError naming the file, the position, the id and `vocab_size` when one of `tokens`,
  /// read from position `first` on, is not below `vocab_size`.
  void check_ids(std::uint64_t first, std::span<const std::int32_t> tokens, std::uint32_t vocab_size) const;

 private:
  core::RandomFile file_;
  std::uint64_t size_ = 0;
  TokenWidth width_ = TokenWidth::u16;
};

/// Writes a shard as a stream; it appears under its name, whole, when finish() returns, and never before. A
/// writer that is destroyed without finish() removes what it wrote.
class ShardWriter {
 public:
  /// Throws core::InputError when the directory cannot be written.
  ShardWriter(const std::filesystem::path& path, TokenWidth width);
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();

  /// Appends tokens. Throws core::InputError when the disk is full, an id does not fit the width, or the
  /// shard would exceed kMaxShardTokens.
  void append(std::span<const std::uint32_t> tokens);
  [[nodiscard]] std::uint64_t size() const;
  /// Writes the header, synchronises and renames into place. Throws core::InputError. Call once.
  void finish();

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace rooflm::text
