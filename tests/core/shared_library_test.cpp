// Libraries that are opened when the program runs: what is there, and what is said of what is not.
#include "core/system/shared_library.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rooflm::core {
namespace {

TEST(SharedLibrary, TheFirstFileThatOpensIsTaken) {
  const SharedLibrary math("mathematics", {"librooflm-has-none.so.9", "libm.so.6"});
  double (*cosine)(double) = nullptr;
  math.need("cos", cosine);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(math.find<int (*)()>("rooflm_has_none"), nullptr);
}

TEST(SharedLibrary, WhatIsMissingIsNamed) {
  const auto message_of = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Unavailable& error) {
      return error.what();
    }
    return "";
  };
  const std::string no_library = message_of([] {
    SharedLibrary("cuTEST", {"librooflm-has-none.so.9", "/no"});
  });
  EXPECT_TRUE(no_library.starts_with("cuTEST is not here: librooflm-has-none.so.9")) << no_library;
  const SharedLibrary math("mathematics", {"libm.so.6"});
  int (*function)() = nullptr;
  EXPECT_EQ(message_of([&] { math.need("rooflm_has_none", function); }),
            "mathematics has no rooflm_has_none: it is too old");
}

}  // namespace
}  // namespace rooflm::core
