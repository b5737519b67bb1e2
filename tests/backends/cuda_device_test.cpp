// The GPUs of this machine, or a reason why there are none.
#include <gtest/gtest.h>

#include "backends/cuda/device.h"

namespace rooflm::backends::cuda {
namespace {

TEST(CudaDevice, AbsenceHasAReason) {
  const CudaStatus status = query_cuda();
  if (status.devices.empty()) {
    EXPECT_FALSE(status.reason.empty());
    EXPECT_EQ(status.reason.find('\n'), std::string::npos) << status.reason;
  }
}

TEST(CudaDevice, EveryDeviceRunsOurCode) {
  const CudaStatus status = query_cuda();
  if (status.devices.empty()) GTEST_SKIP() << status.reason;
  EXPECT_EQ(status.reason, "");
  for (const CudaDevice& device : status.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.sm_count, 0);
    EXPECT_GE(device.compute_major, 7);
    EXPECT_GT(device.free_bytes, 0);
    EXPECT_GE(device.total_bytes, device.free_bytes);
    EXPECT_GE(device.driver_version, device.runtime_version / 1000 * 1000);
  }
}

}  // namespace
}  // namespace rooflm::backends::cuda
