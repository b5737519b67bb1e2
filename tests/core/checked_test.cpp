// Counts: exact where they fit, an error that names the values where they do not.
#include "core/checked.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/error.h"
#include "core/shape.h"

namespace rooflm::core {
namespace {

constexpr std::int64_t kLargestCount = std::numeric_limits<std::int64_t>::max();

std::string refused_count(auto&& compute) {
  try {
    static_cast<void>(compute());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Count, IsANumberWhereItFits) {
  static_assert(2 * Count(3) * 4 + 5 == 29);
  EXPECT_EQ(Count(kLargestCount) + 0, kLargestCount);
  EXPECT_EQ(Count(-2) * 3, -6);
  Count sum;
  sum += Count(7) * std::size_t{6};
  EXPECT_EQ(sum, 42);
}

TEST(Count, NamesBothValuesWhereItDoesNot) {
  EXPECT_NE(refused_count([] { return Count(kLargestCount) + 1; }).find("9223372036854775807 plus 1"),
            std::string::npos);
  EXPECT_NE(refused_count([] {
              return 4096 * Count(std::int64_t{1} << 60);
            }).find("4096 times 1152921504606846976"),
            std::string::npos);
}

TEST(CheckedShape, NamesAShapeOfTooManyElements) {
  EXPECT_EQ(Shape({std::int64_t{1} << 25, std::int64_t{1} << 25}).numel(), std::int64_t{1} << 50);
  const Shape large{72057594037927936, 1024, 1024};
  EXPECT_NE(refused_count([&] { return large.numel(); }).find("[72057594037927936, 1024, 1024]"),
            std::string::npos);
  EXPECT_NE(refused_count([] { return Shape({(std::int64_t{1} << 50) + 1}).numel(); }), "no error");
  EXPECT_EQ(Shape({kLargestCount, kLargestCount, 0}).numel(), 0);
}

}  // namespace
}  // namespace rooflm::core
