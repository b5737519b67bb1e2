// The checksum of checkpoints.
#include "train/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace rooflm::train {
namespace {

TEST(Checksum, DependsOnEveryBitPlaceAndLength) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 31U, 32U, 33U, 100U}) {
    std::vector<std::byte> bytes(size, std::byte{0x5a});
    std::set<std::uint64_t> seen = {checksum(bytes)};
    for (std::size_t i = 0; i < size; ++i) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        bytes[i] ^= std::byte{1} << bit;
        EXPECT_TRUE(seen.insert(checksum(bytes)).second) << size << " " << i << " " << bit;
        bytes[i] ^= std::byte{1} << bit;
      }
    }
    bytes.push_back(std::byte{0});
    EXPECT_TRUE(seen.insert(checksum(bytes)).second);
  }
}

TEST(Checksum, SeesBlocksThatChangePlaces) {
  std::vector<std::byte> bytes(128, std::byte{0});
  bytes[3] = std::byte{1};
  const auto before = checksum(bytes);
  for (const std::size_t to : {11U, 35U, 67U}) {
    auto moved = bytes;
    std::swap(moved[3], moved[to]);
    EXPECT_NE(checksum(moved), before) << to;
  }
}

}  // namespace
}  // namespace rooflm::train
