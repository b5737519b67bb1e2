// The order in which documents and windows are visited.
#include "core/shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace rooflm::core {
namespace {

TEST(Shuffle, IsAPermutation) {
  for (const std::uint64_t n : {1ULL, 2ULL, 3ULL, 4ULL, 5ULL, 16ULL, 17ULL, 1000ULL, 4097ULL}) {
    std::vector<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < n; ++i) seen.push_back(shuffled(i, n, 42, 3));
    std::sort(seen.begin(), seen.end());
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(seen[i], i) << n;
  }
  int same = 0;
  int in_place = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same += shuffled(i, 1000, 42, 0) == shuffled(i, 1000, 42, 1);
    in_place += shuffled(i, 1000, 42, 0) == i;
  }
  EXPECT_LT(same, 10);  // one is expected of two random orders
  EXPECT_LT(in_place, 10);
  EXPECT_LT(shuffled(0, std::uint64_t{1} << 61U, 1, 1), std::uint64_t{1} << 61U);
}

}  // namespace
}  // namespace rooflm::core
