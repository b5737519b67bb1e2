// Extents of tensors.
#include "core/shape.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace rooflm::core {
namespace {

TEST(Shape, CountsAndPrints) {
  const Shape shape = {4, 64, 768};
  EXPECT_EQ(shape.rank(), 3U);
  EXPECT_EQ(shape.numel(), 4 * 64 * 768);
  EXPECT_EQ(shape.str(), "[4, 64, 768]");
  EXPECT_EQ(shape[0], 4);
  EXPECT_EQ(shape[-1], 768);
  EXPECT_EQ(shape, (Shape{4, 64, 768}));
  EXPECT_NE(shape, (Shape{4, 64}));
}

TEST(Shape, AScalarHasOneElement) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().str(), "[]");
}

TEST(Shape, DimensionsBeyondTheRankThrow) {
  const Shape shape = {4, 64};
  EXPECT_THROW((void)shape[2], std::out_of_range);
  EXPECT_THROW((void)shape[-3], std::out_of_range);
}

}  // namespace
}  // namespace rooflm::core
