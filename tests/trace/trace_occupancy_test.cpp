// Occupancy and waves of launches, by hand for a Hopper GPU.
#include <gtest/gtest.h>

#include "trace/occupancy.h"

namespace rooflm::trace {
namespace {

constexpr DeviceLimits kHopper{.multiprocessors = 132,
                               .warps = 64,
                               .blocks = 32,
                               .registers = 65536,
                               .shared_bytes = 233472,
                               .major = 9};

KernelLaunch launch_of(std::int64_t blocks, std::int64_t threads, std::int64_t registers,
                       std::int64_t shared) {
  return {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .registers = registers, .shared_dynamic = shared};
}

TEST(Occupancy, IsLimitedByThreadsFirst) {
  const Occupancy found = occupancy_of(launch_of(2112, 256, 32, 0), kHopper);
  EXPECT_EQ(found.blocks, 8);
  EXPECT_DOUBLE_EQ(found.occupancy, 1.0);
  EXPECT_EQ(found.limit, "threads");
  EXPECT_DOUBLE_EQ(found.waves, 2.0);
}

TEST(Occupancy, RegistersAreGivenToPartsOfAMultiprocessor) {
  // 168 registers x 32 are 5376, of which 3 warps fit each of four parts with 16384.
  const Occupancy found = occupancy_of(launch_of(132, 384, 168, 0), kHopper);
  EXPECT_EQ(found.blocks, 1);
  EXPECT_DOUBLE_EQ(found.occupancy, 12.0 / 64);
  EXPECT_EQ(found.limit, "registers");
  EXPECT_DOUBLE_EQ(found.waves, 1.0);
}

TEST(Occupancy, SharedMemoryHasAPartOfTheSystems) {
  EXPECT_EQ(occupancy_of(launch_of(1, 128, 32, 115712), kHopper).blocks, 2);  // 2 x (113 + 1) KiB are all
  EXPECT_EQ(occupancy_of(launch_of(1, 128, 32, 115713), kHopper).blocks, 1);
  EXPECT_EQ(occupancy_of(launch_of(1, 128, 32, 115713), kHopper).limit, "shared");
  EXPECT_EQ(occupancy_of(launch_of(1, 32, 16, 0), kHopper).limit, "blocks");
}

TEST(Occupancy, IsNothingWhereTheDeviceIsNotKnownOrTheKernelDoesNotFit) {
  EXPECT_EQ(occupancy_of(launch_of(1, 128, 32, 0), {}).blocks, 0);
  EXPECT_EQ(occupancy_of(launch_of(1, 128, 32, 300000), kHopper).blocks, 0);
  EXPECT_EQ(occupancy_of(launch_of(1, 4096, 32, 0), kHopper).blocks, 0);
}

}  // namespace
}  // namespace rooflm::trace
