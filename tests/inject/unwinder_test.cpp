// From a copy of a stack to its frames, and tables that lie.
#include "inject/unwinder.h"

#include <execinfo.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "inject/frame_bytes.h"
#include "inject/frame_expression.h"
#include "inject/frame_rules.h"
#include "inject/frame_search.h"

namespace rooflm::inject {
namespace {

struct TwoViews {
  std::vector<std::uintptr_t> ours;
  std::vector<void*> libcs;
};

/// The stack as libc's own unwinder sees it, and as ours does of a copy.
__attribute__((noinline)) TwoViews look() {
  TwoViews views;
  std::array<void*, 64> seen{};
  const int count = ::backtrace(seen.data(), static_cast<int>(seen.size()));
  views.libcs.assign(seen.begin(), seen.begin() + count);
  auto stack = std::make_unique<CapturedStack>();
  ucontext_t context{};
  ::getcontext(&context);
  capture_native(&context, *stack);
  views.ours = Unwinder().addresses_of(*stack);
  return views;
}

/// Its frames have different tables: with an array of any size there is a frame pointer.
__attribute__((noinline)) TwoViews look_from(int depth) {
  volatile char* room = static_cast<char*>(__builtin_alloca(static_cast<std::size_t>(depth) * 100 + 16));
  room[0] = 1;
  TwoViews views = depth == 0 ? look() : look_from(depth - 1);
  return room[0] == 1 ? views : TwoViews();
}

TEST(Unwinder, SeesWhatLibcSees) {
  const TwoViews views = look_from(5);
  if (views.ours.size() < 2) GTEST_SKIP() << "this system forbids looking at one's own memory";
  ASSERT_GE(views.libcs.size(), 8U);
  ASSERT_EQ(views.ours.size(), views.libcs.size());
  for (std::size_t i = 1; i < views.ours.size(); ++i) {  // both looked from different places of the first
    EXPECT_EQ(views.ours[i], reinterpret_cast<std::uintptr_t>(views.libcs[i])) << i;
  }
}

struct FoundFrame {
  std::uintptr_t found = 0, right = 0;
};
FoundFrame find_own_frame(int words);
std::uintptr_t returns_from_another();
FoundFrame (*volatile finds_own_frame)(int) = find_own_frame;

/// Its stack begins with what may be left of other calls: return addresses of them.
__attribute__((noinline)) FoundFrame find_own_frame(int words) {
  auto* stale = static_cast<volatile std::uintptr_t*>(
      __builtin_alloca(static_cast<std::size_t>(words) * sizeof(std::uintptr_t)));
  for (int i = 0; i < words; ++i)
    stale[i] = i % 2 == 0 ? returns_from_another() : reinterpret_cast<std::uintptr_t>(&stale[i]);
  const auto begin = reinterpret_cast<std::uintptr_t>(finds_own_frame);
  const auto read_word = [](std::uintptr_t address) -> std::optional<std::uintptr_t> {
    std::uintptr_t word = 0;
    return peek(address, &word, sizeof(word)) ? std::optional(word) : std::nullopt;
  };
  const auto found = find_frame_pointer(reinterpret_cast<std::uintptr_t>(stale), {begin, begin + 1},
                                        read_word, [](std::uintptr_t address) { return address > 4096; });
  return {.found = found.value_or(0), .right = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))};
}

__attribute__((noinline)) std::uintptr_t returns_from_another() {
  return reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
}

TEST(FrameSearch, FindsAFrameByTheCallThatMadeIt) {
  std::uintptr_t word = 0;
  if (!peek(reinterpret_cast<std::uintptr_t>(&word), &word, sizeof(word)))
    GTEST_SKIP() << "this system forbids looking at one's own memory";
  const FoundFrame frame = find_own_frame(40);
  EXPECT_EQ(frame.found, frame.right);
  EXPECT_EQ(finds_own_frame(40).found, 0U) << "a call by a pointer does not say whom it calls";
}

TEST(FrameSearch, WordsThatAreNonsenseAreNoFrame) {
  std::mt19937_64 random(3);
  const auto begin = reinterpret_cast<std::uintptr_t>(&find_own_frame);
  for (int i = 0; i < 300; ++i) {
    const auto found = find_frame_pointer(
        random(), {begin, begin + 1},
        [&](std::uintptr_t /*address*/) { return std::optional(begin + random() % 4096); },
        [](std::uintptr_t /*address*/) { return true; });
    if (found) {
      EXPECT_NE(*found, 0U);
    }
  }
}

TEST(Unwinder, StacksThatAreNonsenseLeadNowhere) {
  auto stack = std::make_unique<CapturedStack>();
  ucontext_t context{};
  ::getcontext(&context);
  capture_native(&context, *stack);
  Unwinder unwinder;
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    auto changed = std::make_unique<CapturedStack>(*stack);
    for (int i = 0; i < 40; ++i) changed->bytes.at(random() % 2048) = static_cast<std::byte>(random());
    if (round % 3 == 0) changed->registers.at(random() % kRegisters) = random();
    if (round % 5 == 0) changed->registers.at(kStackPointer) += random() % 4096;
    if (round % 7 == 0) changed->bytes_count = static_cast<std::uint32_t>(random() % 4096);
    EXPECT_GE(unwinder.addresses_of(*changed).size(), 1U);
  }
}

TEST(FrameRules, TablesThatLieAreUnknown) {
  std::mt19937_64 random(5);
  const ReadWord read_word = [](std::uintptr_t address) {
    return std::optional<std::uintptr_t>(address ^ 0x55);
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes(200);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random() % (round % 2 == 0 ? 256 : 32));
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    // A header that is right, with one function whose entry is not.
    const std::array<std::uint8_t, 4> kinds = {1, 0x1b, 0x03, 0x3b};
    const std::array<std::int32_t, 4> table = {0, 1, 0, 32};
    std::ranges::transform(kinds, bytes.begin(),
                           [](std::uint8_t one) { return static_cast<std::byte>(one); });
    std::memcpy(bytes.data() + 4, table.data(), sizeof(table));
    Registers registers{};
    const Registers before = registers;
    const std::optional<Rules> rules = rules_at({.bytes = bytes, .header = begin}, begin + 10);
    const Step step = rules ? step_out(*rules, read_word, registers) : Step::unknown;
    EXPECT_TRUE(step != Step::unknown || registers == before);
  }
  EXPECT_FALSE(rules_at({}, 10));
}

TEST(FrameExpression, ComputesWhatLinkersWrite) {
  Registers registers{};
  registers.at(kStackPointer) = 1000;
  registers.at(kReturnAddress) = 0x1b;
  const ReadWord read_word = [](std::uintptr_t address) {
    return std::optional<std::uintptr_t>(address + 1);
  };
  const auto value = [&](std::vector<std::uint8_t> code) {
    return evaluate(std::as_bytes(std::span(code)), read_word, registers, std::nullopt);
  };
  // Of a stub that jumps to another library: sp + 8 + (((ip & 15) >= 11) << 3).
  EXPECT_EQ(value({0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}), 1016U);
  EXPECT_EQ(value({0x77, 0x78, 0x06}), 993U);  // what is at sp - 8
  EXPECT_EQ(value({0x09, 0xff, 0x23, 3}), 2U);
  for (const std::vector<std::uint8_t>& wrong :
       std::vector<std::vector<std::uint8_t>>{{}, {0x22}, {0x30, 0x22}, {0xff}, {0x08}, {0x77}}) {
    EXPECT_THROW(value(wrong), FrameProblem);
  }
}

}  // namespace
}  // namespace rooflm::inject
