// Lists, ranges and amounts of memory as they are typed.
#include "cli/values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rooflm::cli {
namespace {

using Integers = std::vector<std::int64_t>;

TEST(Values, ListsAndRanges) {
  EXPECT_EQ(parse_integers("--seq", "128"), (Integers{128}));
  EXPECT_EQ(parse_integers("--seq", "128,256"), (Integers{128, 256}));
  EXPECT_EQ(parse_integers("--seq", "64:256:64"), (Integers{64, 128, 192, 256}));
  EXPECT_EQ(parse_integers("--seq", "64:200:64"), (Integers{64, 128, 192}));
  EXPECT_EQ(parse_integers("--batch", "1:4"), (Integers{1, 2, 3, 4}));
  EXPECT_EQ(parse_integers("--seq", "1,64:128:64"), (Integers{1, 64, 128}));
  EXPECT_TRUE(parse_integers("--seq", "").empty());
  EXPECT_EQ(parse_names("--dtype", "fp32,bf16"), (std::vector<std::string>{"fp32", "bf16"}));
}

TEST(Values, BadNumbersNameTheOption) {
  for (const char* text : {"x", "12x", "1,,2", "1,", "1.5", "64:", ":64", "64:32:8", "1:9:0", "1:2:3:4", "0",
                           "-1", "99999999999999999999", "1:9999999999"}) {
    try {
      parse_integers("--seq", text);
      ADD_FAILURE() << text << " was taken";
    } catch (const core::UsageError& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.find("--seq") != std::string::npos || message.find("sweep") != std::string::npos)
          << message;
    }
  }
  EXPECT_THROW(parse_integer("--steps", "1,2"), core::UsageError);
  EXPECT_THROW(parse_names("--dtype", "fp32,,bf16"), core::UsageError);
  EXPECT_THROW(parse_number("--seconds", "nan"), core::UsageError);
  EXPECT_THROW(parse_number("--seconds", "-1"), core::UsageError);
}

TEST(Values, Percent) {
  EXPECT_DOUBLE_EQ(parse_percent("--precision", "1"), 0.01);
  EXPECT_DOUBLE_EQ(parse_percent("--precision", "0.5%"), 0.005);
  EXPECT_DOUBLE_EQ(parse_percent("--precision", "0"), 0);
  EXPECT_THROW(parse_percent("--precision", "0", 0.001), core::UsageError);
  EXPECT_THROW(parse_percent("--precision", "a"), core::UsageError);
}

TEST(Values, Shares) {
  EXPECT_DOUBLE_EQ(parse_share("--same", "3%"), 0.03);
  EXPECT_DOUBLE_EQ(parse_share("--same", "0.5%"), 0.005);
  EXPECT_DOUBLE_EQ(parse_share("--same", "150%"), 1.5);
  EXPECT_DOUBLE_EQ(parse_share("--same", "0.03"), 0.03);
  EXPECT_EQ(parse_share("--same", "0"), 0);
  for (const char* text : {"", "%", "3", "1", "-1%", "three", "3 %%", "nan"}) {
    EXPECT_THROW(parse_share("--same", text), core::UsageError) << text;
  }
}

TEST(Values, AmountsOfMemory) {
  EXPECT_EQ(parse_bytes("--memory-limit", "8GB"), 8e9);
  EXPECT_EQ(parse_bytes("--memory-limit", "8GiB"), 8 * 0x1p30);
  EXPECT_EQ(parse_bytes("--memory-limit", "1.5gb"), 1.5e9);
  EXPECT_EQ(parse_bytes("--memory-limit", "512MB"), 512e6);
  EXPECT_EQ(parse_bytes("--memory-limit", "1000"), 1000);
  for (const char* text : {"", "8GX", "-8GB", "0", "GB", "infGB"}) {
    EXPECT_THROW(parse_bytes("--memory-limit", text), core::UsageError) << text;
  }
}

TEST(Values, ListsMultiply) {
  std::vector<std::string> items = {"a", "b"};
  multiply(items, Integers{}, [](std::string&, std::int64_t) {});
  EXPECT_EQ(items, (std::vector<std::string>{"a", "b"}));
  multiply(items, Integers{1, 2},
           [](std::string& item, std::int64_t value) { item += std::to_string(value); });
  EXPECT_EQ(items, (std::vector<std::string>{"a1", "a2", "b1", "b2"}));
  std::vector<int> many(1000);
  EXPECT_THROW(multiply(many, Integers(1000), [](int&, std::int64_t) {}), core::UsageError);
}

}  // namespace
}  // namespace rooflm::cli
