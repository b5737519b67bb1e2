// Stretches of time: what several cover together, and what of them lies outside of others.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace rooflm::core {

/// [begin, end) in nanoseconds.
using Stretch = std::pair<std::int64_t, std::int64_t>;

/// What they cover, in order and apart; empty ones are left out.
std::vector<Stretch> covered(std::vector<Stretch> all);

/// The parts of `all` that lie outside of `others`; both as `covered` makes them.
std::vector<Stretch> outside(const std::vector<Stretch>& all, const std::vector<Stretch>& others);

/// How much of them lies within `bounds`; of stretches that are apart.
std::int64_t length_within(const std::vector<Stretch>& all, const Stretch& bounds);

/// How long they are together; of stretches that are apart.
std::int64_t length_of(const std::vector<Stretch>& all);

}  // namespace rooflm::core
