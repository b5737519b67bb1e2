// A copy of a variant that runs out of memory throws, and leaves what was there as it was.
#include "core/variant.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rooflm::core {
namespace {

bool g_memory_is_there = true;

template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  explicit(false) Allocator(const Allocator<U>& /*other*/) noexcept {}

  T* allocate(std::size_t n) {
    if (!g_memory_is_there) throw std::bad_alloc();
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* pointer, std::size_t n) noexcept { std::allocator<T>().deallocate(pointer, n); }
  friend bool operator==(const Allocator& /*a*/, const Allocator& /*b*/) { return true; }
};
using Text = std::basic_string<char, std::char_traits<char>, Allocator<char>>;
using Value = Variant<std::monostate, std::int64_t, Text>;

const Text kLong(100, 'a');

/// Runs `action` without memory, which must throw.
template <class Action>
void expect_out_of_memory(const Action& action) {
  g_memory_is_there = false;
  EXPECT_THROW(action(), std::bad_alloc);
  g_memory_is_there = true;
}

TEST(Variant, CopiesThatFailThrow) {
  const Value value = kLong;
  expect_out_of_memory([&] { Value copy(value); });
  const std::vector<std::pair<int, Value>> values{{1, value}, {2, Value(std::int64_t{7})}, {3, value}};
  expect_out_of_memory([&] { auto copies = values; });
  EXPECT_EQ(std::get<Text>(value), kLong);
}

TEST(Variant, AssignmentsThatFailChangeNothing) {
  const Value value = kLong;
  Value number = std::int64_t{7};
  expect_out_of_memory([&] { number = value; });
  EXPECT_EQ(std::get<std::int64_t>(number), 7);
  expect_out_of_memory([&] { number = kLong; });
  EXPECT_EQ(std::get<std::int64_t>(number), 7);
}

TEST(Variant, CopiesAndMovesAsAVariant) {
  Value value = kLong;
  Value copy = value;
  EXPECT_EQ(copy, value);
  const Value moved = std::move(copy);
  EXPECT_EQ(moved, value);
  value = std::int64_t{7};
  EXPECT_EQ(value.index(), 1U);
  value = moved;
  EXPECT_EQ(std::get<Text>(value), kLong);
  EXPECT_EQ(Value().index(), 0U);
}

}  // namespace
}  // namespace rooflm::core
