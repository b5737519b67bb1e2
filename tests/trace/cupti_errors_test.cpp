// What CUPTI refuses is one line that says what to do.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "trace/cupti/cupti_library.h"
#include "trace/cupti/profiler_library.h"

namespace rooflm::trace {
namespace {

CUptiResult CUPTIAPI name_result(CUptiResult result, const char** words) {
  *words =
      result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}

template <class Library>
std::string refusal(CUptiResult result) {
  Library library;
  library.result_string = name_result;
  try {
    library.check(result, "attaching");
  } catch (const core::Unavailable& error) {
    return error.what();
  }
  return {};
}

TEST(CuptiErrors, EachSaysWhatToDo) {
  const std::vector<std::pair<CUptiResult, std::string>> cases = {
      {CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another profiler is attached"},
      {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "NVreg_RestrictProfilingToAdminUsers=0"},
      {CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED, "the GPU is virtual"},
      {CUPTI_ERROR_HARDWARE_BUSY, "something else profiles this GPU"}};
  for (const auto& [result, words] : cases) {
    for (const std::string& text : {refusal<CuptiLibrary>(result), refusal<ProfilerLibrary>(result)}) {
      EXPECT_TRUE(text.starts_with("CUPTI: attaching: CUPTI_ERROR")) << text;
      EXPECT_NE(text.find(words), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
  EXPECT_EQ(refusal<CuptiLibrary>(CUPTI_SUCCESS), "");
}

TEST(CuptiErrors, AnotherVersionIsRefusedByItsNumber) {
  EXPECT_EQ(why_not_version(CUPTI_API_VERSION), "");
  EXPECT_NE(why_not_version(120805).find("CUPTI 12.8.5 is here"), std::string::npos)
      << why_not_version(120805);
}

}  // namespace
}  // namespace rooflm::trace
