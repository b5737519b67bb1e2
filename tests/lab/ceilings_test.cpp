// What kept ceilings know of the code that measured them, and what is said of one.
#include "lab/ceilings/ceilings.h"

#include <gtest/gtest.h>

#include <cctype>

#include "lab/ceilings/ceiling_book.h"

namespace rooflm::lab {
namespace {

TEST(MeasuringDigest, IsTwelveHexadecimalDigits) {
  const std::string_view digest = measuring_digest();
  ASSERT_EQ(digest.size(), 12U);
  for (const char c : digest) EXPECT_NE(std::isxdigit(static_cast<unsigned char>(c)), 0) << digest;
  EXPECT_EQ(digest, measuring_digest());
}

TEST(DescribePeak, SaysThatItWasMeasuredUnderLoad) {
  record::Ceiling peak{.what = "matmul", .dtype = "fp32", .threads = 2, .value = 189e9};
  EXPECT_EQ(describe_peak(peak).find("load"), std::string::npos) << describe_peak(peak);
  peak.source = "measured under load: other programs used 48.0 % of the processors";
  EXPECT_TRUE(describe_peak(peak).ends_with("; " + peak.source + ")")) << describe_peak(peak);
}

}  // namespace
}  // namespace rooflm::lab
