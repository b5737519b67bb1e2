// Visiting 0 .. n - 1 in a random order without a table.
#pragma once

#include <cstdint>

namespace rooflm::core {

/// Place `i` of a permutation of 0 .. n - 1 that depends on (seed, epoch) only: a Feistel network of Philox
/// rounds on the next power of four, walked until it falls below n (Black and Rogaway, "Ciphers with
/// arbitrary finite domains", CT-RSA 2002). No table, any n up to 2^62.
std::uint64_t shuffled(std::uint64_t i, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);

}  // namespace rooflm::core
