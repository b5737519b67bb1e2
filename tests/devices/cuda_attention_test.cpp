// Which attention kernels the CUDA backend runs, by dtype and shape.
#include "devices/cuda_attention.h"

#include <gtest/gtest.h>

namespace rooflm {
namespace {

using core::DType;
using devices::AttentionFamily;
using devices::AttentionSizes;
using devices::AttentionUse;
using program::Fp32Products;

AttentionFamily family(DType dtype, std::int64_t seq, std::int64_t head_dim, AttentionUse use = {},
                       const char* device = "h200") {
  use.dtype = dtype;
  return devices::attention_family_of(
      device, use, {.batch = 4, .seq = seq, .heads = 8, .kv_heads = 8, .head_dim = head_dim});
}

TEST(CudaAttention, CudnnTakesSixteenBits) {
  EXPECT_EQ(family(DType::bf16, 1024, 64), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::f16, 1024, 96), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::bf16, 1000, 64), AttentionFamily::warp_groups);
  EXPECT_EQ(family(DType::bf16, 1000, 96), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::bf16, 1000, 32), AttentionFamily::tensor_cores);
  EXPECT_EQ(family(DType::f16, 1000, 32), AttentionFamily::tensor_cores);
  EXPECT_EQ(family(DType::bf16, 500, 96), AttentionFamily::tensor_cores);
  EXPECT_EQ(family(DType::bf16, 512, 96), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::bf16, 1000, 64, {}, "a100-sxm"), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::f16, 1000, 64), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::f16, 1000, 64, {.is_gradient = true}), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::f16, 1000, 60), AttentionFamily::cuda_cores);
}

TEST(CudaAttention, Fp32RunsOnTensorCoresWhereItMayBeRounded) {
  EXPECT_EQ(family(DType::f32, 1024, 64), AttentionFamily::cuda_cores);
  EXPECT_EQ(family(DType::f32, 1024, 64, {.fp32_products = Fp32Products::tf32}),
            AttentionFamily::tensor_cores);
  EXPECT_EQ(family(DType::f32, 1024, 64, {.fp32_products = Fp32Products::bf16x6}),
            AttentionFamily::tensor_cores);
  for (const std::int64_t dim : {32, 136})
    EXPECT_EQ(family(DType::f32, 1024, dim, {.fp32_products = Fp32Products::bf16x6}),
              AttentionFamily::cuda_cores)
        << dim;
  EXPECT_EQ(family(DType::f32, 1024, 60, {.fp32_products = Fp32Products::tf32}), AttentionFamily::cuda_cores);
}

TEST(CudaAttention, OwnGradientsAreChosenWhereTheyAreFaster) {
  EXPECT_EQ(family(DType::bf16, 8192, 64, {.is_gradient = true}), AttentionFamily::warp_groups);
  EXPECT_EQ(family(DType::f16, 8192, 64, {.is_gradient = true}), AttentionFamily::cudnn);
  // Gradients of the scores of one head: 2 bytes of 65,536^2.
  EXPECT_EQ(family(DType::f16, 65536, 64, {.is_gradient = true}), AttentionFamily::tensor_cores);
  EXPECT_EQ(family(DType::bf16, 128, 64), AttentionFamily::warp_groups);
}

TEST(CudaAttention, RulesOfScoresThatCudnnDoesNotTake) {
  using devices::AttentionRules;
  const auto of = [](DType dtype, AttentionRules rules, bool is_gradient) {
    return family(dtype, 4096, 64,
                  {.fp32_products = Fp32Products::tf32,
                   .is_gradient = is_gradient,
                   .is_deterministic = false,
                   .rules = rules});
  };
  EXPECT_EQ(of(DType::bf16, AttentionRules::window, false), AttentionFamily::cudnn);
  EXPECT_EQ(of(DType::bf16, AttentionRules::window, true), AttentionFamily::one_pass);
  EXPECT_EQ(of(DType::bf16, AttentionRules::sinks, true), AttentionFamily::one_pass);
  EXPECT_EQ(family(DType::bf16, 4096, 128, {.is_gradient = true}), AttentionFamily::cudnn);
  EXPECT_EQ(family(DType::bf16, 4096, 128, {.is_gradient = true, .rules = AttentionRules::window}),
            AttentionFamily::warp_groups)
      << "cuDNN would store what the window hides";
  EXPECT_EQ(of(DType::bf16, AttentionRules::other, false), AttentionFamily::warp_groups);
  EXPECT_EQ(of(DType::bf16, AttentionRules::other, true), AttentionFamily::warp_groups);
  EXPECT_EQ(of(DType::f16, AttentionRules::other, true), AttentionFamily::tensor_cores);
  EXPECT_EQ(of(DType::f32, AttentionRules::none, false), AttentionFamily::tensor_cores);
  EXPECT_EQ(of(DType::f32, AttentionRules::window, false), AttentionFamily::cuda_cores);
}

TEST(CudaAttention, OnePassIsForNondeterministicGradientsInBf16) {
  const AttentionUse use{.is_gradient = true, .is_deterministic = false};
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t seq : {1024, 1025, 8192})
      EXPECT_EQ(family(DType::bf16, seq, dim, use), AttentionFamily::one_pass) << seq << " " << dim;
    EXPECT_EQ(family(DType::bf16, 1000, dim, use), AttentionFamily::warp_groups) << dim;
  }
  EXPECT_EQ(family(DType::bf16, 512, 64, use), AttentionFamily::warp_groups);
  EXPECT_EQ(family(DType::bf16, 512, 128, use), AttentionFamily::cudnn);
  EXPECT_NE(family(DType::bf16, 4096, 80, use), AttentionFamily::one_pass);
  EXPECT_NE(family(DType::f16, 4096, 128, use), AttentionFamily::one_pass);
  EXPECT_NE(family(DType::bf16, 4096, 128, use, "a100-sxm"), AttentionFamily::one_pass);
  EXPECT_NE(family(DType::bf16, 4096, 128, {.is_gradient = true}), AttentionFamily::one_pass);
  EXPECT_NE(family(DType::bf16, 4096, 128, {.is_deterministic = false}), AttentionFamily::one_pass);
}

TEST(CudaAttention, CudnnHasGradientsOfFewSharedKeys) {
  AttentionUse use{.dtype = DType::bf16, .is_gradient = true, .is_deterministic = false};
  const auto of = [&](AttentionSizes sizes) { return devices::attention_family_of("h100-sxm", use, sizes); };
  // 64 blocks of keys, of which the longest has twice the mean, for 132 multiprocessors.
  const AttentionSizes few{.batch = 2, .seq = 4096, .heads = 7, .kv_heads = 1, .head_dim = 128};
  EXPECT_TRUE(devices::has_few_key_blocks(few, true, true));
  EXPECT_EQ(of(few), AttentionFamily::cudnn);
  AttentionSizes sizes = few;
  sizes.kv_heads = sizes.heads;  // nothing is shared
  EXPECT_EQ(of(sizes), AttentionFamily::one_pass);
  sizes = few;
  sizes.batch = 8;
  EXPECT_EQ(of(sizes), AttentionFamily::one_pass);
  sizes = {.batch = 4, .seq = 1770, .heads = 67, .kv_heads = 1, .head_dim = 32};
  EXPECT_EQ(of(sizes), AttentionFamily::cudnn);
  use.is_gradient = false;
  EXPECT_EQ(of(sizes), AttentionFamily::tensor_cores);
  use.is_gradient = true;
  use.dtype = DType::f32;
  EXPECT_EQ(of(few), AttentionFamily::cuda_cores);
}

// Short sequences cost cuDNN whole tiles: as measured, docs/performance/attention.md, "Shared keys".
TEST(CudaAttention, CudnnHasShortGradientsOfFewerSharedKeys) {
  const AttentionUse use{.dtype = DType::bf16, .is_gradient = true, .is_deterministic = false};
  const auto of = [&](AttentionSizes sizes) { return devices::attention_family_of("h200", use, sizes); };
  EXPECT_EQ(of({.batch = 8, .seq = 443, .heads = 19, .kv_heads = 1, .head_dim = 40}), AttentionFamily::cudnn);
  EXPECT_EQ(of({.batch = 2, .seq = 500, .heads = 8, .kv_heads = 2, .head_dim = 256}), AttentionFamily::cudnn);
  EXPECT_EQ(of({.batch = 4, .seq = 384, .heads = 16, .kv_heads = 1, .head_dim = 64}), AttentionFamily::cudnn);
  const AttentionUse ordered{.dtype = DType::bf16, .is_gradient = true};
  const AttentionSizes one_key{.batch = 8, .seq = 443, .heads = 19, .kv_heads = 1, .head_dim = 40};
  EXPECT_EQ(devices::attention_family_of("h200", ordered, one_key), AttentionFamily::tensor_cores)
      << "not measured";
  const AttentionSizes fewer{.batch = 1, .seq = 448, .heads = 32, .kv_heads = 8, .head_dim = 128};
  EXPECT_EQ(of(fewer), AttentionFamily::warp_groups);
  EXPECT_EQ(of({.batch = 32, .seq = 443, .heads = 19, .kv_heads = 1, .head_dim = 40}),
            AttentionFamily::tensor_cores);
  // One block of keys is the longest and the mean.
  EXPECT_FALSE(devices::has_few_key_blocks(
      {.batch = 1, .seq = 128, .heads = 8, .kv_heads = 1, .head_dim = 64}, true, false));
}

TEST(CudaAttention, TilesPadHeads) {
  const AttentionUse tf32{.dtype = DType::f32, .fp32_products = Fp32Products::tf32};
  const AttentionUse split{.dtype = DType::f32, .fp32_products = Fp32Products::bf16x6};
  EXPECT_EQ(devices::attention_tile(AttentionFamily::tensor_cores, split, 64).rows, 64);
  const auto tile = devices::attention_tile(AttentionFamily::tensor_cores, tf32, 80);
  EXPECT_EQ(tile.width, 96);
  EXPECT_EQ(tile.rows, 64);
  EXPECT_DOUBLE_EQ(tile.padding, 1.2);
  EXPECT_EQ(devices::attention_tile(AttentionFamily::tensor_cores, tf32, 32).width, 64);
  EXPECT_EQ(devices::attention_tile(AttentionFamily::tensor_cores, {.dtype = DType::bf16}, 32).width, 32);
  EXPECT_EQ(devices::attention_tile(AttentionFamily::tensor_cores, {.dtype = DType::f16}, 32).width, 32);
  EXPECT_EQ(devices::attention_tile(AttentionFamily::tensor_cores, {.dtype = DType::f16}, 160).width, 192);
  // Scores have 80 columns, results 96.
  EXPECT_DOUBLE_EQ(devices::attention_tile(AttentionFamily::cuda_cores, {.dtype = DType::f32}, 80).padding,
                   1.1);
}

}  // namespace
}  // namespace rooflm
