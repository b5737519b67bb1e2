// Lists in large pages are lists like any other, at every size.
#include "core/system/large_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

namespace rooflm::core {
namespace {

TEST(LargePages, KeepWhatIsInTheListAndReserveAtLeastTheCount) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{3'000'000}}) {
    std::vector<std::int64_t> list(5);
    std::iota(list.begin(), list.end(), 0);
    reserve_in_large_pages(list, count);
    EXPECT_GE(list.capacity(), count);
    const std::int64_t* const place = list.data();
    while (list.size() < count) list.push_back(static_cast<std::int64_t>(list.size()));
    if (count > 5) {
      EXPECT_EQ(list.data(), place);
    }
    for (std::size_t i = 0; i < list.size(); ++i) ASSERT_EQ(list[i], static_cast<std::int64_t>(i));
  }
}

TEST(LargePages, NeverTouchWhatLiesBesideTheMemory) {
  // Ends and begins within pages: a hint that went too far would fail or change others' memory.
  std::vector<char> memory(std::size_t{20} << 20U, 'x');
  prefer_large_pages(memory.data() + 12345, memory.size() - 54321);
  for (std::size_t i = 0; i < memory.size(); i += 4096) ASSERT_EQ(memory[i], 'x');
}

}  // namespace
}  // namespace rooflm::core
