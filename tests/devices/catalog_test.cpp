// The catalog of devices: what an entry must say, and what an unknown device must not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "devices/device.h"

namespace rooflm::devices {
namespace {

bool wants(const Device& device, const std::string& rewrite) {
  return std::ranges::find(device.rewrites.names, rewrite) != device.rewrites.names.end();
}

TEST(Catalog, EntriesAreWholeAndSayWhereTheirNumbersAreFrom) {
  const auto all = catalog();
  ASSERT_GE(all.size(), 10U);
  for (const Device& device : all) {
    SCOPED_TRACE(device.key);
    EXPECT_EQ(find_device(device.key).name, device.name);
    EXPECT_GT(device.memory_bytes(), 1e9);
    EXPECT_GT(device.memory.back().byte_per_s, 1e11);
    EXPECT_FALSE(device.dtypes.empty());
    for (const char* what : {"peak_flop_per_s", "memory", "links"})
      EXPECT_FALSE(device.sources.at(what).empty());
    for (const std::string& dtype : device.dtypes) EXPECT_TRUE(device.peak(dtype).has_value()) << dtype;
    if (device.power_w) {
      EXPECT_FALSE(device.sources.at("power_w").empty());
    }
    // A dense fp8 rate is twice the dense 16-bit one; a sparse one would be four times.
    if (device.peak("fp8")) {
      EXPECT_LE(*device.peak("fp8"), 2.05 * *device.peak("fp16"));
    }
  }
}

TEST(Catalog, DevicesAreFoundByTheNameThatTheirDriverReports) {
  const Device h100 = device_reported_as("NVIDIA H100 80GB HBM3", Kind::gpu);
  EXPECT_EQ(h100.key, "h100-sxm");
  EXPECT_DOUBLE_EQ(h100.peak("bf16").value(), 989.4e12);
  EXPECT_TRUE(wants(h100, "compact_state"));
}

TEST(Catalog, NumbersArePositiveAndWhatDriversReportIsNearTheDataSheet) {
  for (const Device& device : catalog()) {
    SCOPED_TRACE(device.key);
    for (const auto& [dtype, rate] : device.peak_flop_per_s) EXPECT_GT(rate, 1e11) << dtype;
    for (const Link& link : device.links) EXPECT_GT(link.byte_per_s, 1e9) << link.name;
    EXPECT_GE(device.multiprocessors, 0);
    EXPECT_GE(device.usable_bytes(), device.memory_bytes());
    EXPECT_LT(device.usable_bytes(), 1.1 * device.memory_bytes());
  }
  EXPECT_DOUBLE_EQ(find_device("h100-sxm").usable_bytes(), 85.0e9);
}

TEST(Catalog, UnknownDevicesBorrowNoPeak) {
  const Device unknown = device_reported_as("NVIDIA H1000", Kind::gpu);
  EXPECT_EQ(unknown.name, "NVIDIA H1000");
  EXPECT_TRUE(unknown.key.empty());
  EXPECT_TRUE(unknown.peak_flop_per_s.empty());
  EXPECT_FALSE(unknown.peak("bf16").has_value());
  EXPECT_EQ(unknown.memory_bytes(), 0);
  EXPECT_TRUE(unknown.computes("tf32"));
  EXPECT_TRUE(wants(unknown, "gelu_in_epilogue"));
}

TEST(Catalog, DevicesHaveTheNamesThatPeopleUse) {
  for (const auto& [name, key] : {std::pair{"H100", "h100-sxm"}, std::pair{"a100-80gb", "a100-sxm"},
                                  std::pair{"A100 40GB", "a100-sxm-40gb"}, std::pair{"4090", "rtx-4090"},
                                  std::pair{"NVIDIA A100-SXM4-80GB", "a100-sxm"}})
    EXPECT_EQ(find_device(name).key, key) << name;
  for (const Device& device : catalog()) {
    EXPECT_EQ(device_called(device.key)->key, device.key);
    EXPECT_EQ(device_called(device.name)->key, device.key);
  }
  EXPECT_FALSE(device_called("").has_value());
}

TEST(Catalog, UnknownKeysGetASuggestion) {
  try {
    find_device("h100-smx");
    FAIL();
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'h100-sxm'"), std::string::npos) << error.what();
  }
}

TEST(Catalog, ProcessorsWantWhatTheirCachesLike) {
  const Device cpu = device_of_kind(Kind::cpu);
  EXPECT_EQ(cpu.rewrites.logits_bytes, std::int64_t{128} << 20U);
  EXPECT_TRUE(wants(cpu, "compact_state"));
  EXPECT_FALSE(cpu.computes("tf32"));
}

}  // namespace
}  // namespace rooflm::devices
