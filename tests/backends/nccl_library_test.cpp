// What is asked of an NCCL by its version. No GPU is needed.
#include "backends/cuda/collectives/nccl_library.h"

#include <gtest/gtest.h>

namespace rooflm::backends::cuda {
namespace {

/// One that has all functions.
NcclLibrary of_version(int version) {
  NcclLibrary library;
  library.version = version;
  library.comm_init_rank_config = [](auto...) { return nccl::kSuccess; };
  library.all_to_all = [](auto...) { return nccl::kSuccess; };
  library.mem_alloc = [](auto...) { return nccl::kSuccess; };
  library.mem_free = [](auto...) { return nccl::kSuccess; };
  library.window_register = [](auto...) { return nccl::kSuccess; };
  library.window_deregister = [](auto...) { return nccl::kSuccess; };
  return library;
}

TEST(NcclLibrary, TellsItsVersion) {
  EXPECT_EQ(of_version(22809).version_text(), "2.28.9");
  EXPECT_EQ(of_version(23001).version_text(), "2.30.1");
}

TEST(NcclLibrary, WaysNeedWindowsThatGiveRightNumbers) {
  EXPECT_FALSE(of_version(22803).has_ways());
  EXPECT_TRUE(of_version(22807).has_ways());
  EXPECT_TRUE(of_version(22902).has_ways());
  NcclLibrary library = of_version(22807);
  library.window_register = nullptr;
  EXPECT_FALSE(library.has_ways());
}

}  // namespace
}  // namespace rooflm::backends::cuda
