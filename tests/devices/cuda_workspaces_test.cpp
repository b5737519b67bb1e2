// What kernels of the CUDA backend need beside their operands.
#include "devices/cuda_workspaces.h"

#include <gtest/gtest.h>

namespace rooflm {
namespace {

using devices::AttentionSizes;

TEST(CudaWorkspaces, NondeterministicGradientsAreSummedInFp32) {
  const AttentionSizes sizes{.batch = 32, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64};
  const std::int64_t rows = 32 * 1024 * 12;
  EXPECT_EQ(devices::cudnn_gradient_bytes(sizes, false), 4 * rows * (64 + 1));
  EXPECT_EQ(devices::own_gradient_bytes(sizes), 4 * rows);
  EXPECT_EQ(devices::one_pass_gradient_bytes(sizes), 4 * rows * (64 + 2) + 4);
  EXPECT_EQ(devices::one_pass_gradient_bytes({2, 65, 3, 3, 64}), 4 * 6 * 128 * (64 + 2) + 4);
  EXPECT_EQ(devices::one_pass_gradient_bytes({2, 65, 3, 3, 128}), 4 * 6 * 128 * (128 + 2) + 4);
}

TEST(CudaWorkspaces, DeterministicGradientsOfScoresFitTheirLimit) {
  const AttentionSizes sizes{.batch = 4, .seq = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128};
  const AttentionSizes part = devices::part_within(sizes, devices::kScoreBytes);
  EXPECT_EQ(part.batch, 1);
  EXPECT_EQ(part.kv_heads, 4);
  EXPECT_EQ(part.heads, 16);
  const std::int64_t scores = 2 * part.heads * 8192 * 8192;
  EXPECT_EQ(devices::cudnn_gradient_bytes(sizes, true), scores + 4 * part.heads * 8192 * (1 + 128));
  EXPECT_LE(scores, devices::kScoreBytes);
}

/// cuDNN 9.14 on an H200 said: 49,840,128 bytes more than with as many key heads, in either order of sums.
TEST(CudaWorkspaces, SharedKeysHaveGradientsByQueryHead) {
  const AttentionSizes shared{.batch = 6, .seq = 1664, .heads = 13, .kv_heads = 1, .head_dim = 96};
  AttentionSizes own = shared;
  own.kv_heads = own.heads;
  for (const bool deterministic : {false, true}) {
    EXPECT_EQ(devices::cudnn_gradient_bytes(shared, deterministic) -
                  devices::cudnn_gradient_bytes(own, deterministic),
              49'840'128);
  }
}

TEST(CudaWorkspaces, OnlyHopperHasKernelsForWarpGroups) {
  const AttentionSizes sizes{.batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64};
  for (const char* key : {"h100-sxm", "h200", "h20", "gh200-96gb"})
    EXPECT_TRUE(devices::has_warp_group_kernels(key, sizes)) << key;
  for (const char* key : {"a100-sxm", "b200", "mi300x", ""})
    EXPECT_FALSE(devices::has_warp_group_kernels(key, sizes)) << key;
  EXPECT_FALSE(devices::has_warp_group_kernels("h200", {4, 1024, 12, 12, 96}));
  EXPECT_TRUE(devices::is_own_attention_gradient_faster(sizes, false));
  EXPECT_FALSE(devices::is_own_attention_gradient_faster({32, 1024, 12, 12, 64}, false));
  EXPECT_TRUE(devices::is_own_attention_gradient_faster({64, 256, 12, 12, 64}, false));
  EXPECT_FALSE(devices::is_own_attention_gradient_faster({64, 256, 12, 12, 80}, false));
  EXPECT_FALSE(devices::is_own_attention_gradient_faster({4, 512, 12, 12, 128}, false));
}

TEST(CudaWorkspaces, NormGradientsGrowWithRowsUntilTheGpuIsFull) {
  EXPECT_EQ(devices::norm_gradient_bytes(512, 768, 132, 2), 2 * 4 * 512 * 768);
  EXPECT_EQ(devices::norm_gradient_bytes(4096, 768, 132, 2), 2 * 4 * 16 * 132 * 768);
  EXPECT_EQ(devices::norm_gradient_bytes(1 << 20, 768, 132, 2),
            devices::norm_gradient_bytes(4096, 768, 132, 2));
  EXPECT_EQ(devices::norm_gradient_bytes(512, 768, 132, 1), 4 * 512 * 768);
  EXPECT_EQ(devices::norm_gradient_bytes(512, 768, 132, 3), 3 * 4 * 512 * 768);
}

/// A warp sorts 256 choices and counts each expert's.
TEST(CudaWorkspaces, OfExpertsHaveCountsOfWarps) {
  EXPECT_EQ(devices::dispatch_bytes(256, 8), 4 * 8);
  EXPECT_EQ(devices::dispatch_bytes(257, 8), 2 * 4 * 8);
  EXPECT_EQ(devices::dispatch_bytes(32768 * 8, 128), 1024 * 4 * 128);
  EXPECT_EQ(devices::route_gradient_bytes(128), 4 * 128);
}

/// DeepSeek's heads of 192 and 128, 16 of them, 2 texts of 512, bf16: q, k, v and y with heads of 192, twice
/// for the gradient, and dy y of each row.
TEST(CudaWorkspaces, OfLatentAttention) {
  EXPECT_EQ(devices::latent_head_dim(192, 128), 192);
  EXPECT_EQ(devices::latent_head_dim(9, 20), 24);
  const devices::AttentionSizes sizes{.batch = 2, .seq = 512, .heads = 16, .kv_heads = 16, .head_dim = 192};
  const std::int64_t results = 2 * 512 * 16 * 192 * 2;
  EXPECT_EQ(devices::latent_attention_bytes(sizes, 2, false), 4 * results);
  EXPECT_EQ(devices::latent_attention_bytes(sizes, 2, true), 8 * results + 2 * 512 * 16 * 4);
}

}  // namespace
}  // namespace rooflm
