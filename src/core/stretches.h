// Unions and differences of time intervals.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace rooflm::core {

/// [begin, end) in nanoseconds.
using Stretch = std::pair<std::int64_t, std::int64_t>;

/// Their union, sorted and disjoint; empty intervals are dropped.
std::vector<Stretch> covered(std::vector<Stretch> all);

/// The parts of `all` outside of `others`; both must be sorted and disjoint, as `covered` returns them.
std::vector<Stretch> outside(const std::vector<Stretch>& all, const std::vector<Stretch>& others);

/// Total length of disjoint intervals within `bounds`.
std::int64_t length_within(const std::vector<Stretch>& all, const Stretch& bounds);

/// From the first begin to the last end; there is at least one.
Stretch hull(const std::vector<Stretch>& all);

/// Total length of disjoint intervals.
std::int64_t length_of(const std::vector<Stretch>& all);

}  // namespace rooflm::core
