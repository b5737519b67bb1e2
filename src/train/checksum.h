// A checksum that finds damage in files, at memory speed. Not against forgery.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/file.h"

namespace rooflm::train {

/// 64 bits that depend on every byte and its place: four interleaved lanes of 8-byte words, joined
/// in order, then the rest and the length. Little-endian machines only, as the files themselves.
/// `on_progress` is called after each piece of core::kProgressBytes.
inline std::uint64_t checksum(std::span<const std::byte> bytes, const core::OnProgress& on_progress = {}) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ULL;  // odd: multiplying loses nothing
  constexpr std::uint64_t kBasis = 14695981039346656037ULL;
  const auto mix = [](std::uint64_t hash, std::uint64_t word) {
    hash = (hash ^ word) * kFactor;
    return hash ^ (hash >> 32U);  // a product's lower bits do not see the upper ones
  };
  constexpr std::size_t kLanes = 4;
  std::array<std::uint64_t, kLanes> lanes = {kBasis, kBasis + 1, kBasis + 2, kBasis + 3};
  std::size_t at = 0;
  for (; at + kLanes * 8 <= bytes.size(); at += kLanes * 8) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), bytes.data() + at, sizeof(words));
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
    if (at % core::kProgressBytes == 0 && on_progress) on_progress();
  }
  std::uint64_t hash = kBasis;
  for (const std::uint64_t lane : lanes) hash = mix(hash, lane);
  for (; at < bytes.size(); ++at) hash = mix(hash, static_cast<std::uint64_t>(bytes[at]));
  return mix(hash, bytes.size());
}

}  // namespace rooflm::train
