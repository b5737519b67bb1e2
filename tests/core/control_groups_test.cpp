// Limits of control groups, of both versions, in made-up trees.
#include "core/system/control_groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace rooflm::core {
namespace {

namespace fs = std::filesystem;

class ControlGroupsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] ControlGroups groups() const { return ControlGroups(root_ / "cgroup", root_ / "sys"); }

  fs::path root_;
};

TEST_F(ControlGroupsTest, WithoutGroupsNothingIsLimited) {
  EXPECT_TRUE(std::isinf(groups().processors()));
  EXPECT_TRUE(std::isinf(groups().memory().limit_bytes));
  EXPECT_TRUE(std::isinf(groups().memory().left_bytes));
}

TEST_F(ControlGroupsTest, TheNarrowestOfTheGroupsAroundCounts) {
  write("cgroup", "0::/pods/pod7/main\n");
  write("sys/cpu.max", "max 100000\n");
  write("sys/pods/cpu.max", "800000 100000\n");
  write("sys/pods/pod7/cpu.max", "150000 100000\n");
  write("sys/pods/pod7/main/cpu.max", "max 100000\n");
  write("sys/pods/pod7/memory.max", "4000\n");
  write("sys/pods/pod7/memory.current", "1000\n");
  write("sys/pods/pod7/memory.stat", "anon 700\ninactive_file 200\n");
  write("sys/pods/pod7/main/memory.max", "max\n");
  write("sys/pods/pod7/main/memory.current", "900\n");
  EXPECT_DOUBLE_EQ(groups().processors(), 1.5);
  EXPECT_DOUBLE_EQ(groups().memory().limit_bytes, 4000);
  EXPECT_DOUBLE_EQ(groups().memory().left_bytes, 4000 - 1000 + 200);
}

TEST_F(ControlGroupsTest, VersionOneNamesItsControllersInAnyOrder) {
  write("cgroup", "11:cpuset:/c\n4:cpuacct,cpu:/docker/x\n3:memory:/docker/y\n0::/\n");
  write("sys/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  write("sys/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  write("sys/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/memory/docker/y/memory.limit_in_bytes", "500\n");
  write("sys/memory/docker/y/memory.usage_in_bytes", "600\n");
  write("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/memory/memory.usage_in_bytes", "600\n");
  EXPECT_DOUBLE_EQ(groups().processors(), 2.5);
  EXPECT_DOUBLE_EQ(groups().memory().limit_bytes, 500);
  EXPECT_DOUBLE_EQ(groups().memory().left_bytes, 0);
}

TEST_F(ControlGroupsTest, AContainerSeesItsGroupAtTheMountPoint) {
  write("cgroup", "3:memory:/docker/not-here\n4:cpu,cpuacct:/docker/not-here\n");
  write("sys/cpu/cpu.cfs_quota_us", "50000\n");
  write("sys/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/memory/memory.limit_in_bytes", "1000\n");
  write("sys/memory/memory.usage_in_bytes", "400\n");
  EXPECT_DOUBLE_EQ(groups().processors(), 0.5);
  EXPECT_DOUBLE_EQ(groups().memory().left_bytes, 600);
}

TEST_F(ControlGroupsTest, LinesThatAreNoneAreLeftOut) {
  write("cgroup", "\nnothing\n1:cpu\n0::\n:::\n");
  write("sys/cpu.max", "garbage\n");
  EXPECT_TRUE(std::isinf(groups().processors()));
}

}  // namespace
}  // namespace rooflm::core
