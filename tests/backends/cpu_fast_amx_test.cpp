// GEMMs by tiles, emulated everywhere and by AMX where it is, against loops in double.
#include <vector>

#include "backends/cpu/fast/amx/gemm.h"
#include "backends/cpu/resources.h"
#include "core/error.h"
#include "cpu_fast_gemm_testing.h"

namespace rooflm::backends::cpu {
namespace {

using core::Bf16;
using core::DType;

struct TileCase {
  const char* name;
  bool is_real;
};

class CpuFastAmx : public testing::TestWithParam<TileCase> {
 protected:
  void SetUp() override {
    if (GetParam().is_real && !has_amx()) GTEST_SKIP() << "no AMX with bf16 here";
  }
  [[nodiscard]] static const TileOps& ops() { return GetParam().is_real ? amx_tiles() : emulated_tiles(); }

  template <class R>
  static void check(GemmProblem p, AmxBlocks blocks = {}) {
    p.a_type = p.b_type = DType::bf16;
    if (sizeof(R) == 2) p.c_type = DType::bf16;
    const AmxGemm gemm(p, ops(), blocks);
    check_gemm<Bf16, R>(gemm.problem(), gemm);
  }
  /// With blocks chosen for the shape, and with small ones that cut every extent.
  template <class R>
  static void check_in_every_cut(const GemmProblem& p) {
    for (const AmxBlocks blocks : {AmxBlocks{}, {32, 32, 32}, {64, 32, 64}, {32, 96, 32}, {512, 64, 32}})
      check<R>(p, blocks);
  }

  template <class R>
  static std::vector<R> result(const AmxGemm& gemm) {
    const GemmProblem& p = gemm.problem();
    const auto a = random_array<Bf16>(p.batch_stride_a, 1);
    const auto b = random_array<Bf16>(p.batch_stride_b, 2);
    auto c = random_array<R>(p.batch_stride_c, 3);
    const auto bias = random_array<float>(p.n, 4);
    const auto scratch = scratch_for(gemm);
    gemm(a.data(), b.data(), c.data(), bias.data(), scratch.get());
    return c;
  }
};

TEST_P(CpuFastAmx, EveryTransposition) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      check_in_every_cut<float>({.m = 37, .n = 45, .k = 29, .trans_a = trans_a, .trans_b = trans_b});
      check_in_every_cut<Bf16>({.m = 70, .n = 101, .k = 133, .trans_a = trans_a, .trans_b = trans_b});
      check_in_every_cut<float>({.m = 128, .n = 96, .k = 64, .trans_a = trans_a, .trans_b = trans_b});
    }
  }
  check<float>({.m = 1, .n = 1, .k = 1});
  check<float>({.m = 1, .n = 200, .k = 3, .trans_b = true});
}

TEST_P(CpuFastAmx, BiasAccumulationAndScale) {
  check_in_every_cut<float>({.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true});
  check_in_every_cut<Bf16>({.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true});
  check_in_every_cut<Bf16>({.m = 65, .n = 33, .k = 100, .bias = true, .bias_type = DType::bf16});
  check_in_every_cut<float>({.m = 65, .n = 33, .k = 100, .trans_a = true, .accumulate = true});
  check_in_every_cut<float>({.m = 40, .n = 40, .k = 40, .alpha = 0.125F});
}

TEST_P(CpuFastAmx, StridesBeyondTheRows) {
  for (const bool trans : {false, true}) {
    check_in_every_cut<float>(
        {.m = 50, .n = 60, .k = 70, .trans_a = trans, .trans_b = !trans, .lda = 80, .ldb = 90, .ldc = 77});
    check_in_every_cut<Bf16>(
        {.m = 50, .n = 60, .k = 70, .trans_a = trans, .trans_b = trans, .lda = 80, .ldb = 90, .ldc = 77});
  }
}

TEST_P(CpuFastAmx, LayersOfAModel) {
  check<Bf16>({.m = 256, .n = 768, .k = 384, .trans_b = true, .bias = true, .bias_type = DType::bf16});
  check<Bf16>({.m = 256, .n = 384, .k = 768});
  check<float>({.m = 768, .n = 384, .k = 256, .trans_a = true, .accumulate = true});
}

/// So long sums that threads share b in two chunks, of 96 and of 4 columns; with one row part they share a.
TEST_P(CpuFastAmx, LongSumsTakeSeveralChunks) {
  GemmProblem p{.m = 33, .n = 100, .k = 70000, .trans_b = true};
  p.a_type = p.b_type = DType::bf16;
  expect_same_bits(result<float>(AmxGemm(p, ops(), {32, 32, 512})),
                   result<float>(AmxGemm(p, ops(), {64, 64, 512})), "chunks");
}

/// So large an a for so narrow a c that threads pack their own of it, for each of two column parts.
TEST_P(CpuFastAmx, NarrowResultsPackLongSumsTwice) {
  GemmProblem p{.m = 33, .n = 40, .k = 140'000};
  p.a_type = p.b_type = DType::bf16;
  const AmxGemm twice(p, ops(), {64, 32, 512});
  EXPECT_LT(twice.scratch_bytes(), std::size_t{16} << 20U);
  expect_same_bits(result<float>(twice), result<float>(AmxGemm(p, ops(), {64, 64, 512})), "once");
}

TEST_P(CpuFastAmx, BitsDependOnlyOnTheOperands) {
  for (const std::int64_t rows : {150, 530}) {
    GemmProblem p{.m = rows, .n = 250, .k = 700, .trans_b = true, .bias = true};
    p.a_type = p.b_type = p.c_type = DType::bf16;
    const auto expected = result<Bf16>(AmxGemm(p, ops()));
    for (const int threads : {1, 2, 3}) {
      const Threads some(threads);
      for (const AmxBlocks blocks : {AmxBlocks{}, {32, 32, 32}, {64, 96, 256}, {544, 64, 512}}) {
        const AmxGemm gemm(p, ops(), blocks);
        expect_same_bits(result<Bf16>(gemm), expected, "blocks");
      }
    }
  }
}

/// Prepared for two threads, run with one and with three.
TEST_P(CpuFastAmx, RunsOnFewerAndMoreThreadsThanPlanned) {
  GemmProblem p{.m = 150, .n = 250, .k = 200, .trans_a = true};
  p.a_type = p.b_type = DType::bf16;
  const Threads two(2);
  const AmxGemm gemm(p, ops(), {32, 32, 64});
  const auto expected = result<float>(gemm);
  for (const int threads : {1, 3}) {
    const Threads some(threads);
    expect_same_bits(result<float>(gemm), expected, "other threads");
  }
}

/// Larger than most caches: written with streaming stores, unless rows are not whole cache lines.
TEST_P(CpuFastAmx, LargeResultsHaveTheSameBits) {
  GemmProblem p{.m = 65, .n = 320'000, .k = 32};
  p.a_type = p.b_type = DType::bf16;
  GemmProblem odd = p;
  odd.ldc = p.n + 1;
  const auto streamed = result<float>(AmxGemm(p, ops()));
  const auto plain = result<float>(AmxGemm(odd, ops()));
  for (std::int64_t i = 0; i < p.m; ++i) {
    ASSERT_EQ(std::memcmp(&streamed[static_cast<std::size_t>(i * p.n)],
                          &plain[static_cast<std::size_t>(i * odd.ldc)],
                          static_cast<std::size_t>(p.n) * sizeof(float)),
              0)
        << "row " << i;
  }
}

/// Sums of the instructions, bit by bit.
TEST_P(CpuFastAmx, TilesSumInTheOrderOfTheEmulation) {
  const std::int64_t steps = 5;
  const auto left = random_array<Bf16>(steps * 1024, 1);
  const auto right = random_array<Bf16>(steps * 1024, 2);
  for (const bool first : {true, false}) {
    auto sums = random_array<float>(1024, 3);
    auto expected = sums;
    emulated_tiles().multiply(steps, left.data(), right.data(), expected.data(), first, {}, {});
    ops().begin();
    ops().multiply(steps, left.data(), right.data(), sums.data(), first, {left.data(), 2, 32, 64},
                   {right.data(), 4, 32, 128});
    ops().end();
    expect_same_bits(sums, expected, first ? "first" : "added");
  }
}

INSTANTIATE_TEST_SUITE_P(Tiles, CpuFastAmx,
                         testing::Values(TileCase{"emulated", false}, TileCase{"amx", true}),
                         [](const auto& tiles) { return std::string(tiles.param.name); });

/// One instruction of EmulatedTiles, by hand: products of even terms first, then those of odd terms.
TEST(CpuFastAmxRule, EmulatedTilesSumEvenAndOddTermsApart) {
  std::vector<Bf16> left(1024, Bf16(0.0F));
  std::vector<Bf16> right(1024, Bf16(0.0F));
  // Row 0 times column 0: 2^24 + 1 + 1 + 1, of which an fp32 sum in order would keep 2^24.
  const float terms[4] = {0x1p12F, 1.0F, 1.0F, 1.0F};
  for (std::size_t k = 0; k < 4; ++k) {
    left[k] = Bf16(terms[k]);
    right[k / 2 * 32 + k % 2] = Bf16(terms[k]);
  }
  std::vector<float> sums(1024);
  emulated_tiles().multiply(1, left.data(), right.data(), sums.data(), true, {}, {});
  EXPECT_EQ(sums[0], 0x1p24F + 2.0F);
  EXPECT_EQ(sums[1], 0.0F);
}

TEST(CpuFastAmxRule, TakesLargeMatricesOfBf16) {
  GemmProblem p{.m = 256, .n = 768, .k = 768, .a_type = DType::bf16, .b_type = DType::bf16};
  EXPECT_TRUE(AmxGemm::takes(p));
  p.m = 1;
  EXPECT_FALSE(AmxGemm::takes(p));
  p.m = 256;
  p.batch = 2;
  EXPECT_FALSE(AmxGemm::takes(p));
  p.batch = 1;
  p.n = p.k = 64;
  EXPECT_FALSE(AmxGemm::takes(p));
  EXPECT_FALSE(AmxGemm::takes({.m = 256, .n = 768, .k = 768}));
}

TEST(CpuFastAmxRule, ChoosesBlocksThatFitTheCaches) {
  for (const std::int64_t m : {32, 256, 4096, 50304}) {
    for (const std::int64_t n : {32, 768, 2304, 50304}) {
      for (const std::int64_t k : {32, 256, 768, 4096, 50304}) {
        GemmProblem p{.m = m, .n = n, .k = k, .a_type = DType::bf16, .b_type = DType::bf16};
        const AmxGemm gemm(p, emulated_tiles());
        const AmxBlocks x = gemm.blocks();
        EXPECT_LE(x.rows * x.terms * 2, 2 << 20U) << m << " " << n << " " << k;
        EXPECT_LE(gemm.scratch_bytes(), std::size_t{160} << 20U) << m << " " << n << " " << k;
      }
    }
  }
}

TEST(CpuFastAmxRule, RefusesWhatItCannotMultiply) {
  EXPECT_THROW(AmxGemm({.m = 4, .n = 4, .k = 4}, emulated_tiles()), core::UsageError);
  EXPECT_THROW(AmxGemm({.batch = 2, .m = 4, .n = 4, .k = 4, .a_type = DType::bf16, .b_type = DType::bf16},
                       emulated_tiles()),
               core::UsageError);
  if (!has_amx()) {
    EXPECT_THROW(AmxGemm({.m = 64, .n = 64, .k = 64, .a_type = DType::bf16, .b_type = DType::bf16}),
                 core::Unavailable);
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
