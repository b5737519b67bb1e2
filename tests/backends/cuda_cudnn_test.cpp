// Attention through cuDNN against plain loops in double: shapes, shared keys, parts, the same bits again.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cudnn_attention.h"
#include "tests/backends/attention_reference.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): what is tested
using core::DType;

class Cudnn : public CudaKernels {
 protected:
  void SetUp() override {
    CudaKernels::SetUp();
    if (IsSkipped()) return;
    if (const auto status = query_cudnn(); status.version.empty()) GTEST_SKIP() << status.reason;
  }
};

/// bf16: probabilities and their gradients are rounded to 2^-9 before they are summed, results once more.
/// fp16 rounds to 2^-11.
void test_attention(DType dtype, const AttentionShape& s, GradientOrder order) {
  SCOPED_TRACE(std::string(core::name_of(dtype)) + " B " + std::to_string(s.batch) + " T " +
               std::to_string(s.seq) + " H " + std::to_string(s.heads) + " K " + std::to_string(s.kv_heads) +
               " D " + std::to_string(s.head_dim) + (order.deterministic ? "" : " in any order"));
  const double tolerance = dtype == DType::bf16 ? 2e-2 : 5e-3;
  const AttentionReference expected(s, dtype);
  CudnnAttention cudnn(0, nullptr);
  const CudnnForward forward = cudnn.forward(s, dtype);
  const CudnnGradient gradient = cudnn.gradient(s, dtype, order);
  ASSERT_TRUE(forward.submit);
  ASSERT_TRUE(gradient.submit);

  const DeviceArray qkv(dtype, expected.qkv);
  const DeviceArray y(dtype, expected.y.size());
  const DeviceArray lse(DType::f32, expected.lse.size());
  const DeviceBytes forward_workspace(forward.workspace_bytes);
  forward.submit(qkv.data(), y.data(), lse.floats(), forward_workspace.at(0));
  expect_close(y.read(), expected.y, tolerance);
  expect_close(lse.read(), expected.lse, 1e-4);

  const DeviceArray dy(dtype, expected.dy);
  const DeviceArray dqkv(dtype, expected.qkv.size());
  const DeviceBytes workspace(gradient.workspace_bytes);
  gradient.submit(dy.data(), qkv.data(), y.data(), lse.floats(), dqkv.data(), workspace.at(0));
  const Values first = dqkv.read();
  expect_close(first, expected.dqkv, tolerance);
  if (!order.deterministic) return;
  const DeviceArray again(dtype, expected.qkv.size());
  gradient.submit(dy.data(), qkv.data(), y.data(), lse.floats(), again.data(), workspace.at(0));
  EXPECT_EQ(again.read(), first);  // the same bits
}

TEST_F(Cudnn, AttentionOfHeadSizes) {
  for (const std::int64_t dim : {64, 80, 128, 256}) {
    for (const bool deterministic : {true, false}) {
      test_attention(DType::bf16, {.batch = 2, .seq = 256, .heads = 3, .kv_heads = 3, .head_dim = dim},
                     {.deterministic = deterministic});
    }
  }
}

TEST_F(Cudnn, AttentionOfSharedKeys) {
  for (const std::int64_t kv_heads : {1, 2}) {
    for (const bool deterministic : {true, false}) {
      test_attention(DType::bf16, {.batch = 2, .seq = 384, .heads = 4, .kv_heads = kv_heads, .head_dim = 64},
                     {.deterministic = deterministic});
    }
  }
}

/// The gradients of scores take 2 * 128 * 128 bytes a head: two batch elements at a time, two groups of
/// heads, one.
TEST_F(Cudnn, AttentionInParts) {
  constexpr std::size_t kHeadBytes = std::size_t{2} * 128 * 128;
  const AttentionShape s{.batch = 4, .seq = 128, .heads = 8, .kv_heads = 4, .head_dim = 64};
  for (const std::size_t heads : {2 * 8, 4, 2}) {
    test_attention(DType::bf16, s, {.deterministic = true, .score_bytes = heads * kHeadBytes});
  }
}

TEST_F(Cudnn, AttentionInFp16) {
  for (const bool deterministic : {true, false}) {
    test_attention(DType::f16, {.batch = 2, .seq = 256, .heads = 2, .kv_heads = 2, .head_dim = 64},
                   {.deterministic = deterministic});
  }
}

/// Sequences that end within a tile of 128; also in parts, whose sums then begin at odd addresses.
TEST_F(Cudnn, AttentionOfAnyLength) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t seq : {77, 129, 200, 577}) {
      for (const std::int64_t dim : {64, 96, 256}) {
        for (const bool deterministic : {true, false}) {
          test_attention(dtype, {.batch = 2, .seq = seq, .heads = 3, .kv_heads = 3, .head_dim = dim},
                         {.deterministic = deterministic});
        }
      }
    }
  }
  for (const bool deterministic : {true, false}) {
    test_attention(DType::f16, {.batch = 3, .seq = 301, .heads = 6, .kv_heads = 2, .head_dim = 128},
                   {.deterministic = deterministic});
  }
  constexpr std::size_t kHeadBytes = std::size_t{2} * 201 * 201;
  for (const std::size_t heads : {2 * 8, 4, 2}) {
    test_attention(DType::bf16, {.batch = 4, .seq = 201, .heads = 8, .kv_heads = 4, .head_dim = 96},
                   {.deterministic = true, .score_bytes = heads * kHeadBytes});
  }
}

/// Old versions have no engine for windows; then rooflm's kernels run.
TEST_F(Cudnn, AttentionOfWindowsAndScales) {
  for (const std::int64_t window : {0, 1, 64, 100, 130, 200}) {
    AttentionShape s{.batch = 2, .seq = 384, .heads = 4, .kv_heads = 2, .head_dim = 64};
    s.rules = {.window = window, .scale = 0.2F};
    for (const bool deterministic : {true, false}) {
      CudnnAttention cudnn(0, nullptr);
      if (window > 0 && !(cudnn.forward(s, DType::bf16).submit &&
                          cudnn.gradient(s, DType::bf16, {.deterministic = deterministic}).submit)) {
        GTEST_SKIP() << "no engine for windows, deterministic " << deterministic;
      }
      SCOPED_TRACE("window " + std::to_string(window));
      test_attention(DType::bf16, s, {.deterministic = deterministic});
    }
  }
}

TEST_F(Cudnn, LeavesOtherShapesAlone) {
  CudnnAttention cudnn(0, nullptr);
  const AttentionShape s{.batch = 1, .seq = 128, .heads = 2, .kv_heads = 2, .head_dim = 64};
  EXPECT_TRUE(cudnn.forward(s, DType::bf16).submit);
  EXPECT_FALSE(cudnn.forward(s, DType::f32).submit);
  EXPECT_FALSE(cudnn.gradient(s, DType::f32, {}).submit);
  const AttentionShape other{1, 128, 2, 2, 60};
  EXPECT_FALSE(cudnn.forward(other, DType::bf16).submit);
  EXPECT_FALSE(cudnn.gradient(other, DType::bf16, {}).submit);
  EXPECT_FALSE(cudnn.gradient(s, DType::bf16, {.deterministic = true, .score_bytes = 1000}).submit);
  EXPECT_TRUE(cudnn.gradient(s, DType::bf16, {.deterministic = false, .score_bytes = 1000}).submit);
}

}  // namespace
}  // namespace rooflm::tests
