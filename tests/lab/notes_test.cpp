// Lines on standard error while something goes on.
#include "lab/notes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace rooflm::lab {
namespace {

using namespace std::chrono_literals;

TEST(Notes, WorkThatGoesOnIsSaidUntilItsEnd) {
  testing::internal::CaptureStderr();
  {
    const StillAt still("counting", 20ms);
    std::this_thread::sleep_for(200ms);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("counting, 0.0 s so far\ncounting, 0.0 s so far\n"), 0) << said;
}

TEST(Notes, WorkThatEndsSoonSaysNothingAndWaitsForNothing) {
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  { const StillAt still("counting", 1h); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace rooflm::lab
