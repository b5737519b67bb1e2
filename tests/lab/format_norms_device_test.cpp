// Norms by a device's kernels: their error is that of their format, and what overflows is said.
#include "lab/micro/format_norms_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "lab/devices.h"

namespace rooflm::lab {
namespace {

class DeviceNorms : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] DeviceNormError error(core::DType dtype, double deviation, double offset = 0) const {
    const auto backend = make_backend("cpu", compile::EngineKind::fused);
    return device_norm_error(
        *backend,
        {.is_rms = GetParam(), .dtype = dtype, .rows = 4, .deviation = deviation, .offset = offset});
  }
};

TEST_P(DeviceNorms, AreOffByTheRoundingOfTheirFormat) {
  const auto single = error(core::DType::f32, 1);
  EXPECT_NE(single.kernel.find("norm"), std::string::npos) << single.kernel;
  EXPECT_EQ(single.outputs, 4 * 768);
  EXPECT_EQ(single.not_finite + single.inputs_lost, 0);
  EXPECT_LT(single.largest, 1e-5);
  // y is about 1, and rounded to 8 bits of mantissa at the most; sums are fp32.
  const auto brain = error(core::DType::bf16, 256);
  EXPECT_LT(brain.rms, std::ldexp(1.0, -8));
  EXPECT_GT(brain.rms, std::ldexp(1.0, -12));
  EXPECT_GE(brain.largest, brain.rms);
}

TEST_P(DeviceNorms, LargeOffsetsCostDigits) {
  // In fp32 an offset of 2^14 leaves 10 bits of a deviation of 1.
  const double off = error(core::DType::f32, 1, 16384).rms;
  EXPECT_LT(off, 0.01);
  if (!GetParam()) {
    EXPECT_GT(off, error(core::DType::f32, 1).rms);
  }
}

TEST_P(DeviceNorms, InputsBeyondTheFormatAreCountedApart) {
  // Of 3072 normal numbers times 65536 a third is beyond the largest number of fp16, in every row.
  const auto half = error(core::DType::f16, 65536);
  EXPECT_NEAR(static_cast<double>(half.inputs_lost), 3072 * 0.318, 100);
  EXPECT_EQ(half.outputs, 0);
  EXPECT_EQ(error(core::DType::bf16, 65536).inputs_lost, 0);
}

INSTANTIATE_TEST_SUITE_P(Norms, DeviceNorms, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "rms" : "layer"; });

TEST(DeviceNormCells, HaveEachNormInEachFormat) {
  std::map<std::string, std::set<std::string>> formats;
  std::string norm;
  for (const record::Cell& cell : device_norm_cells("cpu")) {
    EXPECT_EQ(cell.series, "norms_device");
    if (cell.col == "norm") norm = cell.text;
    if (cell.col == "format") formats[norm].insert(cell.text);
  }
  EXPECT_EQ(formats.size(), 2U);
  for (const auto& [name, of] : formats)
    EXPECT_EQ(of, (std::set<std::string>{"bf16", "fp16", "fp32"})) << name;
}

}  // namespace
}  // namespace rooflm::lab
