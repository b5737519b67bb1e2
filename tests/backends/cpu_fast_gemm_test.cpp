// Prepared matmuls against loops in double.
#include <concepts>
#include <memory>

#include "backends/cpu/fast/converted_gemm.h"
#include "backends/cpu/fast/few_rows_gemm.h"
#include "backends/cpu/fast/gemm.h"
#include "core/error.h"
#include "cpu_fast_gemm_testing.h"

namespace rooflm::backends::cpu {
namespace {

using core::DType;

template <class S, class R>
void check(const GemmProblem& given) {
  std::unique_ptr<Gemm> gemm;
  try {
    gemm = std::make_unique<Gemm>(given);
  } catch (const core::Unavailable& e) {
    GTEST_SKIP() << e.what();
  }
  check_gemm<S, R>(gemm->problem(), *gemm);
}

TEST(CpuFastGemm, EveryTransposition) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const GemmProblem p{.m = 37, .n = 45, .k = 29, .trans_a = trans_a, .trans_b = trans_b};
      check<float, float>(p);
      GemmProblem h = p;
      h.a_type = h.b_type = DType::bf16;
      check<core::Bf16, float>(h);
      h.c_type = DType::bf16;
      check<core::Bf16, core::Bf16>(h);
    }
  }
}

TEST(CpuFastGemm, BiasAndAccumulation) {
  GemmProblem p{.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true};
  check<float, float>(p);
  p.a_type = p.b_type = p.c_type = DType::bf16;
  check<core::Bf16, core::Bf16>(p);
  p.bias_type = DType::bf16;
  check<core::Bf16, core::Bf16>(p);
  GemmProblem q{.m = 65, .n = 33, .k = 100, .trans_a = true, .accumulate = true};
  check<float, float>(q);
  q.a_type = q.b_type = DType::bf16;
  check<core::Bf16, float>(q);
  check<float, float>({.m = 8, .n = 8, .k = 8, .alpha = 0.125F});
}

TEST(CpuFastGemm, LongInnerDimensionGoesInParts) {
  check<float, float>({.m = 5, .n = 17, .k = 9301});
  check<float, float>({.m = 5, .n = 17, .k = 9301, .trans_a = true, .trans_b = true, .accumulate = true});
  check<float, float>({.m = 5, .n = 17, .k = 9301, .trans_b = true, .bias = true});
  check<core::Bf16, float>({.m = 5, .n = 17, .k = 9301, .a_type = DType::bf16, .b_type = DType::bf16});
}

/// From 1024 rows and 512 terms on.
TEST(CpuFastGemm, RightFactorsOfManyRowsArePacked) {
  for (const bool trans_b : {false, true}) {
    check<float, float>({.m = 1024, .n = 19, .k = 515, .trans_b = trans_b});
    check<float, float>({.m = 1027, .n = 5, .k = 512, .trans_b = trans_b, .bias = true, .ldb = 520});
  }
  check<float, float>({.m = 1027, .n = 3, .k = 5001, .accumulate = true});
}

/// Without AVX-512, for few rows, where rows of b are a multiple of 2 KiB apart.
TEST(CpuFastGemm, RightFactorsOfFewRowsArePadded) {
  check<float, float>({.m = 33, .n = 512, .k = 70});
  check<float, float>({.m = 33, .n = 500, .k = 70, .bias = true, .ldb = 512});
  check<float, float>({.m = 40, .n = 512, .k = 4700, .trans_a = true, .accumulate = true});
}

TEST(CpuFastGemm, BatchesWithStrides) {
  check<float, float>({.batch = 3, .m = 20, .n = 24, .k = 16, .trans_b = true});
  check<float, float>({.batch = 3,
                       .m = 20,
                       .n = 24,
                       .k = 16,
                       .lda = 48,
                       .ldb = 40,
                       .ldc = 30,
                       .batch_stride_a = 20 * 48,
                       .batch_stride_b = 16 * 40,
                       .batch_stride_c = 20 * 30});
  check<float, float>({.batch = 2, .m = 20, .n = 24, .k = 16, .accumulate = true});
  check<float, float>({.batch = 2, .m = 20, .n = 24, .k = 16, .bias = true});
}

/// The problem with its dense strides, on panels of that many elements.
template <class S, class R>
void check_converted(GemmProblem p, std::int64_t most_elements) {
  p.a_type = p.b_type = std::same_as<S, core::Bf16> ? DType::bf16 : DType::f16;
  p.c_type = std::same_as<R, float> ? DType::f32 : p.a_type;
  if (p.bias_type != DType::f32) p.bias_type = p.a_type;
  const ConvertedGemm<S> gemm(p, most_elements);
  GemmProblem dense = p;
  dense.lda = p.trans_a ? p.m : p.k;
  dense.ldb = p.trans_b ? p.k : p.n;
  dense.ldc = p.n;
  dense.batch_stride_a = p.m * p.k;
  dense.batch_stride_b = p.k * p.n;
  dense.batch_stride_c = p.m * p.n;
  check_gemm<S, R>(dense, gemm);
}

template <class S, class R>
void check_few_rows(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, bool bias, DType bias_type) {
  const GemmProblem p{.m = m,
                      .n = n,
                      .k = k,
                      .trans_b = true,
                      .a_type = dtype,
                      .b_type = dtype,
                      .c_type = std::same_as<R, float> ? DType::f32 : dtype,
                      .bias = bias,
                      .bias_type = bias_type,
                      .lda = k,
                      .ldb = k,
                      .ldc = n,
                      .batch_stride_a = m * k,
                      .batch_stride_b = k * n,
                      .batch_stride_c = m * n};
  ASSERT_TRUE(FewRowsGemm<S>::takes(p));
  check_gemm<S, R>(p, FewRowsGemm<S>(p));
}

/// Blocks of four rows and of some columns, with what is left over of each.
template <class S>
void check_few_rows_of(DType dtype) {
  for (std::int64_t m = 1; m <= FewRowsGemm<S>::kMostRows; ++m) {
    for (const std::int64_t n : {1, 3, 32, 71}) {
      for (const std::int64_t k : {1, 15, 16, 100}) {
        check_few_rows<S, float>(m, n, k, dtype, false, DType::f32);
        check_few_rows<S, S>(m, n, k, dtype, k == 100, dtype);
      }
    }
    check_few_rows<S, S>(m, 130, 2049, dtype, true, DType::f32);
  }
}

TEST(CpuFastFewRowsGemm, AllShapes) {
  check_few_rows_of<float>(DType::f32);
  check_few_rows_of<core::Bf16>(DType::bf16);
  check_few_rows_of<core::F16>(DType::f16);
}

TEST(CpuFastFewRowsGemm, LeavesOtherProblemsAlone) {
  const GemmProblem p{.m = 8, .n = 64, .k = 64, .trans_b = true};
  EXPECT_TRUE(FewRowsGemm<float>::takes(p));
  GemmProblem q = p;
  q.m = 9;
  EXPECT_FALSE(FewRowsGemm<float>::takes(q));
  q = p;
  q.trans_b = false;
  EXPECT_FALSE(FewRowsGemm<float>::takes(q));
  q = p;
  q.accumulate = true;
  EXPECT_FALSE(FewRowsGemm<float>::takes(q));
  q = p;
  q.batch = 2;
  EXPECT_FALSE(FewRowsGemm<float>::takes(q));
}

template <class S>
class CpuFastConvertedGemm : public testing::Test {};
using SixteenBits = testing::Types<core::Bf16, core::F16>;
TYPED_TEST_SUITE(CpuFastConvertedGemm, SixteenBits);

/// One panel, panels that cut every extent (16 x 16, and 32 x 48 with remainders), and a batch in parts.
TYPED_TEST(CpuFastConvertedGemm, EveryTranspositionInEveryCut) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const std::int64_t most : {std::int64_t{256}, std::int64_t{1536}, std::int64_t{1} << 22U}) {
        const GemmProblem p{.m = 37, .n = 75, .k = 101, .trans_a = trans_a, .trans_b = trans_b};
        check_converted<TypeParam, float>(p, most);
        check_converted<TypeParam, TypeParam>(p, most);
      }
    }
  }
}

TYPED_TEST(CpuFastConvertedGemm, BiasAccumulationBatchesAndScale) {
  for (const std::int64_t most : {std::int64_t{256}, std::int64_t{3000}, std::int64_t{1} << 22U}) {
    check_converted<TypeParam, float>({.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true}, most);
    check_converted<TypeParam, TypeParam>({.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true}, most);
    check_converted<TypeParam, float>(
        {.m = 65, .n = 33, .k = 100, .trans_b = true, .bias = true, .bias_type = DType::bf16}, most);
    check_converted<TypeParam, float>({.m = 65, .n = 33, .k = 100, .trans_a = true, .accumulate = true},
                                      most);
    check_converted<TypeParam, float>({.batch = 5, .m = 20, .n = 24, .k = 17, .trans_b = true}, most);
    check_converted<TypeParam, TypeParam>({.batch = 5, .m = 20, .n = 24, .k = 17}, most);
    check_converted<TypeParam, float>({.batch = 2, .m = 20, .n = 24, .k = 16, .accumulate = true}, most);
    check_converted<TypeParam, float>({.m = 1, .n = 1, .k = 1, .alpha = 0.125F}, most);
  }
}

/// Rows of 512 converted numbers are padded.
TYPED_TEST(CpuFastConvertedGemm, PaddedRows) {
  for (const std::int64_t most : {std::int64_t{512 * 16}, std::int64_t{1} << 22U}) {
    check_converted<TypeParam, float>({.m = 20, .n = 1024, .k = 33}, most);
    check_converted<TypeParam, TypeParam>({.m = 20, .n = 17, .k = 1024, .trans_b = true}, most);
    check_converted<TypeParam, float>(
        {.batch = 3, .m = 5, .n = 512, .k = 40, .trans_a = true, .accumulate = true}, most);
  }
}

TEST(CpuFastGemm, ConvertedPanelsAreBoundedAndDense) {
  const GemmProblem p{.m = 1'000'000,
                      .n = 1'000'000,
                      .k = 1'000'000,
                      .a_type = DType::bf16,
                      .b_type = DType::bf16,
                      .c_type = DType::bf16};
  const ConvertedGemm<core::Bf16> gemm(p);
  EXPECT_LE(gemm.scratch_bytes(), std::size_t{100} << 20U);  // three panels, and what oneDNN needs
  EXPECT_GT(gemm.primitives(), 1'000'000U);
  GemmProblem strided{.m = 4, .n = 4, .k = 4, .a_type = DType::bf16, .b_type = DType::bf16, .ldc = 8};
  EXPECT_THROW(ConvertedGemm<core::Bf16>{strided}, core::UsageError);
}

TEST(CpuFastGemm, RefusesWhatCannotBe) {
  EXPECT_THROW(Gemm({.m = 0, .n = 1, .k = 1}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 1, .k = 1, .a_type = DType::bf16}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 1, .k = 1, .c_type = DType::bf16}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 1, .k = 1, .a_type = DType::i32, .b_type = DType::i32}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 4, .k = 1, .ldc = 3}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 4, .k = 1, .bias = true, .accumulate = true}), core::UsageError);
  EXPECT_THROW(Gemm({.m = 1, .n = 4, .k = 1, .bias = true, .bias_type = DType::bf16}), core::UsageError);
}

}  // namespace
}  // namespace rooflm::backends::cpu
