// A permutation of 0 .. n - 1 as a function.
#include "core/shuffle.h"

#include <bit>

#include "core/rng.h"

namespace rooflm::core {
namespace {

constexpr std::uint64_t kShuffleStream =
    0x73687566666c65;  // distinct from the streams of initialisation and sampling
constexpr int kFeistelRounds = 6;

}  // namespace

std::uint64_t shuffled(std::uint64_t i, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const auto half_bits = static_cast<unsigned>(std::bit_width(n - 1) + 1) / 2;
  if (half_bits == 0) return i;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t value = i;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const auto words =
          philox(seed, kShuffleStream ^ (epoch << 8U) ^ static_cast<std::uint64_t>(round), right);
      const std::uint64_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= n);
  return value;
}

}  // namespace rooflm::core
