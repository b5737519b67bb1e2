// Groups of ranks, and parts of tensors.
#include "program/groups.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace rooflm::program {
namespace {

TEST(Mesh, CountsTensorRanksFirst) {
  const Mesh mesh{.tensor = 2, .data = 3, .pipeline = 2};
  EXPECT_EQ(mesh.size(), 12);
  for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.coordinates_of(rank)), rank);
  EXPECT_EQ(mesh.members(9, Group::tensor), (std::vector{8, 9}));
  EXPECT_EQ(mesh.members(9, Group::data), (std::vector{7, 9, 11}));
  EXPECT_EQ(mesh.members(9, Group::pipeline), (std::vector{3, 9}));
  EXPECT_EQ(mesh.members(9, Group::tied), (std::vector{3, 9}));
  EXPECT_TRUE((Mesh{.pipeline = 3}).members(1, Group::tied).empty());
}

TEST(Mesh, RanksOfOneSequenceAreNeighboursAmongTheDataParallelOnes) {
  const Mesh mesh{.tensor = 2, .data = 6, .context = 3};
  EXPECT_EQ(mesh.members(1, Group::context), (std::vector{1, 3, 5}));
  EXPECT_EQ(mesh.members(8, Group::context), (std::vector{6, 8, 10}));
  EXPECT_EQ(mesh.members(8, Group::data), (std::vector{0, 2, 4, 6, 8, 10}));
}

TEST(Parts, CoverAllElementsOnce) {
  for (const std::int64_t elements : {0, 1, 15, 16, 17, 100}) {
    std::int64_t end = 0;
    for (int index = 0; index < 3; ++index) {
      const Part part = part_of(elements, 3, index, kPartUnit);
      EXPECT_EQ(part.begin, end);
      EXPECT_TRUE(part.begin % kPartUnit == 0 || part.size() == 0);
      end = part.end;
    }
    EXPECT_EQ(end, elements);
  }
}

/// Rows of three packed blocks over two ranks, then elements over three.
TEST(Shards, OfShardsAreElementsOfTheWhole) {
  std::multiset<std::int64_t> all;
  for (int tensor = 0; tensor < 2; ++tensor) {
    for (int data = 0; data < 3; ++data) {
      const Shard rows{.group = Group::tensor,
                       .axis = 0,
                       .index = tensor,
                       .parts = 2,
                       .whole = {8, 5},
                       .packed = {4, 2, 2}};
      Tensor part{.shape = shape_of(rows), .shards = {rows}};
      EXPECT_EQ(part.shape, (core::Shape{4, 5}));
      if (tensor == 1 && data == 0) {
        const auto elements = elements_of(part);
        EXPECT_EQ(elements.front(), 10);    // the third row of the first block
        EXPECT_EQ(elements.at(10), 5 * 5);  // the second of the second one
        EXPECT_EQ(elements.back(), 8 * 5 - 1);
      }
      part.shards.push_back({.group = Group::data, .index = data, .parts = 3, .whole = part.shape});
      part.shape = shape_of(part.shards.back());
      EXPECT_EQ(whole_shape(part), (core::Shape{8, 5}));
      for (const std::int64_t element : elements_of(part)) all.insert(element);
    }
  }
  ASSERT_EQ(all.size(), 40U);
  std::int64_t expected = 0;
  for (const std::int64_t element : all) EXPECT_EQ(element, expected++);
}

}  // namespace
}  // namespace rooflm::program
