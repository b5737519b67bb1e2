// What kept ceilings know of the code that measured them.
#include "lab/ceilings.h"

#include <gtest/gtest.h>

#include <cctype>

namespace rooflm::lab {
namespace {

TEST(MeasuringDigest, IsTwelveHexadecimalDigits) {
  const std::string_view digest = measuring_digest();
  ASSERT_EQ(digest.size(), 12U);
  for (const char c : digest) EXPECT_NE(std::isxdigit(static_cast<unsigned char>(c)), 0) << digest;
  EXPECT_EQ(digest, measuring_digest());
}

}  // namespace
}  // namespace rooflm::lab
