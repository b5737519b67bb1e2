// Visits 0 .. n - 1 in a random order without a table.
#pragma once

#include <cstdint>

namespace rooflm::core {

/// Element `i` of a permutation of 0 .. n - 1 that depends only on (seed, epoch): a Feistel network of Philox
/// rounds on the next power of four, iterated until the value is below n (cycle walking; Black and Rogaway,
/// "Ciphers with arbitrary finite domains", CT-RSA 2002). Any n up to 2^62.
std::uint64_t shuffled(std::uint64_t i, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);

}  // namespace rooflm::core
