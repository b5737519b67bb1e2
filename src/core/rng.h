// Counter-based random numbers: the same stream on every thread count and backend.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace rooflm::core {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words
/// that depend only on key and counter, so element i of a tensor does not depend on the thread that computes
/// it.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t stream,
                                              std::uint64_t counter) {
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32U),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32U) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32U) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// A uniform number in [0, 1) with 24 random bits.
constexpr float uniform(std::uint32_t word) { return static_cast<float>(word >> 8U) * 0x1p-24F; }

/// Standard normal numbers 4 block .. 4 block + 3 of the stream (Box-Muller on one Philox block).
inline std::array<float, 4> four_normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  const auto words = philox(seed, stream, block);
  std::array<float, 4> normals{};
  for (std::size_t i = 0; i < 4; i += 2) {
    const double u = (static_cast<double>(words.at(i)) + 1.0) * 0x1p-32;
    const double angle = 2 * std::numbers::pi * static_cast<double>(words.at(i + 1)) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    normals.at(i) = static_cast<float>(radius * std::cos(angle));
    normals.at(i + 1) = static_cast<float>(radius * std::sin(angle));
  }
  return normals;
}

/// Standard normal number `index` of the stream.
inline float normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return four_normals(seed, stream, index / 4).at(index % 4);
}

}  // namespace rooflm::core
