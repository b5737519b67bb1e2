// When a session asks a device for its activities. The device is made up: this program's own source takes the
// place of the library's.
#include "inject/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "inject/device_source.h"
#include "inject/stream_format.h"

namespace rooflm::inject {
namespace {

/// What the source was asked for: s(tart), e(nd), l(eave).
std::string
    asked;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): the library makes the source

class MadeUpSource final : public DeviceSource {
 public:
  bool start(std::string& /*why*/) override {
    asked += 's';
    return true;
  }
  void stop() override { asked += 'e'; }
  void leave() override { asked += 'l'; }
  void choose(const std::string& /*what*/) override {}
  void collect(bool /*all*/) override {}
};

}  // namespace

std::unique_ptr<DeviceSource> open_device_source(StreamWriter& /*writer*/, const std::string& /*calls*/,
                                                 std::string& /*why*/) {
  return std::make_unique<MadeUpSource>();
}

namespace {

// One process has one session.
TEST(Session, TracesTheFirstStepsAndTwoOfEachHundred) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("rooflm-session-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  ASSERT_EQ(::setenv(kFolderVariable, folder.c_str(), 1), 0);
  ASSERT_EQ(::setenv(kTraceEveryVariable, "100", 1), 0);
  Session* session = Session::begin();
  ASSERT_NE(session, nullptr);
  // Without a device there is nothing that could be left out.
  EXPECT_TRUE(session->is_traced());
  session->start_device();
  EXPECT_EQ(asked, "s");
  std::vector<int> traced;
  for (int step = 0; step < 250; ++step) {
    if (session->is_traced()) traced.push_back(step);
    const bool is_next_traced = session->end_step();
    EXPECT_EQ(is_next_traced, session->is_traced());
    EXPECT_TRUE(session->is_on());  // ranges and samples are kept in all
  }
  const std::vector<int> expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 100, 101, 200, 201};
  EXPECT_EQ(traced, expected);
  EXPECT_EQ(asked, "slslsl");
  session->end();
  EXPECT_EQ(asked, "slslsle");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace rooflm::inject
