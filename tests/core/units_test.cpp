// Numbers as people read them.
#include "core/units.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.5e9), "1.50 GB");
}

TEST(Units, Seconds) {
  EXPECT_EQ(format_seconds(412e-6), "412 us");
  EXPECT_EQ(format_seconds(1.05), "1.05 s");
  EXPECT_EQ(format_clock(0.2), "0:01");
  EXPECT_EQ(format_clock(245), "4:05");
  EXPECT_EQ(format_clock(3723), "1:02:03");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_si(190e9), "190 G");
  EXPECT_EQ(format_si(3.5e21), "3.50 Z");
  EXPECT_EQ(format_si(1e24) + format_si(1e27) + format_si(1e30), "1.00 Y1.00 R1.00 Q");
  EXPECT_EQ(format_si(2.1e-6), "2.10 u");
  EXPECT_EQ(format_si(890e-9), "890 n");
  EXPECT_EQ(format_si(0), "0");
}

TEST(Units, CountsAgreeWithTheirNouns) {
  EXPECT_EQ(format_count(0, "step"), "0 steps");
  EXPECT_EQ(format_count(1, "step"), "1 step");
  EXPECT_EQ(format_count(3U, "micro-batch"), "3 micro-batches");
}

}  // namespace
}  // namespace rooflm::core
