// CUDA flash attention, forward and backward, against plain loops in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/attention/attention.h"
#include "core/error.h"
#include "devices/cuda_workspaces.h"
#include "tests/backends/attention_reference.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
constexpr std::array kOnTensorCores = {Fp32Products::tf32, Fp32Products::bf16x6};

/// bf16: probabilities and their gradients are rounded to 2^-9 before they are summed, results once more;
/// fp16: results to 2^-12. tf32: factors are cut off to 11 bits.
double attention_tolerance(DType dtype, Fp32Products products) {
  if (dtype == DType::f32) return products == Fp32Products::tf32 ? 8e-3 : 2e-5;
  return dtype == DType::bf16 ? 2e-2 : 2e-3;
}

/// A shape and its rules, in words.
std::string text_of(const AttentionShape& s) {
  std::string text = fmt::format("B {} T {} H {} K {} D {}", s.batch, s.seq, s.heads, s.kv_heads, s.head_dim);
  const ScoreRules& r = s.rules;
  if (r.window > 0) text += fmt::format(", window {}", r.window);
  if (r.scale > 0) text += fmt::format(", scale {}", r.scale);
  if (r.cap > 0) text += fmt::format(", cap {}", r.cap);
  if (r.alibi) text += ", ALiBi";
  return text + (r.sinks ? ", sinks" : "");
}

void test_attention(DType dtype, const AttentionShape& s, std::size_t shift,
                    Fp32Products products = Fp32Products::plain) {
  SCOPED_TRACE(std::string(program::rate_name(dtype, products)) + " " + text_of(s) +
               (shift > 0 ? ", unaligned" : ""));
  // Scores, and with them their errors, grow with the scale.
  const double growth = std::max(1.0, s.rules.scale * std::sqrt(static_cast<double>(s.head_dim)));
  const double tolerance = attention_tolerance(dtype, products) * growth;
  const AttentionReference expected(s, dtype);
  const DeviceArray qkv(dtype, expected.qkv, shift);
  const DeviceArray y(dtype, expected.y.size(), shift);
  const DeviceArray lse(DType::f32, expected.lse.size());
  const DeviceArray sink_values(DType::f32, expected.sinks);
  const Sinks sinks{.data = s.rules.sinks ? sink_values.data() : nullptr};
  launch_flash_attention(nullptr, dtype, s, qkv.data(), y.data(), lse.floats(), products, sinks);
  expect_close(y.read(), expected.y, tolerance);
  expect_close(lse.read(), expected.lse,
               products == Fp32Products::tf32 ? 2e-3
               : dtype == DType::f32          ? 1e-5
                                              : 1e-4);

  const DeviceArray dy(dtype, expected.dy, shift);
  const DeviceArray dqkv(dtype, expected.qkv.size(), shift);
  const DeviceArray again(dtype, expected.qkv.size(), shift);
  const DeviceBytes workspace(flash_attention_backward_workspace_bytes(s));
  launch_flash_attention_backward(nullptr, dtype, s, dy.data(), qkv.data(), y.data(), lse.floats(),
                                  dqkv.data(), workspace.at(0), products);
  expect_close(dqkv.read(), expected.dqkv, tolerance);
  launch_flash_attention_backward(nullptr, dtype, s, dy.data(), qkv.data(), y.data(), lse.floats(),
                                  again.data(), workspace.at(0), products);
  EXPECT_EQ(again.read(), dqkv.read());  // the same bits
  if (!s.rules.sinks) return;
  const DeviceArray d_sinks(DType::f32, expected.sinks.size());
  for (const bool accumulate : {false, true}) {
    launch_sinks_gradient(nullptr, dtype, s, dy.data(), y.data(), lse.floats(), sinks, d_sinks.floats(),
                          workspace.at(0), accumulate);
    Values sums = expected.d_sinks;
    for (double& sum : sums) sum *= accumulate ? 2 : 1;
    expect_close(d_sinks.read(), sums, 2 * tolerance);
  }
}

/// Each rule alone, and all of them.
const std::vector<ScoreRules> kRules = {
    {.window = 1},
    {.window = 40},
    {.window = 64},
    {.window = 130},
    {.scale = 0.25F},
    {.scale = 0.5F, .cap = 1.5F},
    {.alibi = true},
    {.sinks = true},
    {.window = 33, .sinks = true},
    {.window = 70, .scale = 0.4F, .cap = 2.0F, .alibi = true, .sinks = true}};

/// The gradient in one pass; twice, as its sums are in any order and blocks are handed out as they come.
void test_fused_gradient(const AttentionShape& s, std::size_t shift = 0) {
  SCOPED_TRACE(text_of(s) + (shift > 0 ? ", unaligned" : ""));
  const AttentionReference expected(s, DType::bf16);
  const DeviceArray dy(DType::bf16, expected.dy, shift);
  const DeviceArray qkv(DType::bf16, expected.qkv, shift);
  const DeviceArray y(DType::bf16, expected.y, shift);
  const DeviceArray lse(DType::f32, expected.lse);
  const DeviceBytes workspace(fused_attention_backward_workspace_bytes(s));
  EXPECT_EQ(workspace.bytes(),
            at(devices::one_pass_gradient_bytes({s.batch, s.seq, s.heads, s.kv_heads, s.head_dim})));
  for (int i = 0; i < 2; ++i) {
    const DeviceArray dqkv(DType::bf16, expected.qkv.size(), shift);
    launch_fused_attention_backward(nullptr, s, dy.data(), qkv.data(), y.data(), lse.floats(), dqkv.data(),
                                    workspace.at(0));
    expect_close(dqkv.read(), expected.dqkv, attention_tolerance(DType::bf16, Fp32Products::plain));
  }
}

TEST_F(CudaKernels, FusedAttentionGradient) {
  if (!fits_fused_backward(DType::bf16, {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 64})) {
    GTEST_SKIP() << "no matrix instructions of warp groups";
  }
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t seq : {1, 63, 64, 65, 127, 128, 129, 200, 257, 513}) {
      test_fused_gradient({.batch = 1, .seq = seq, .heads = 2, .kv_heads = 2, .head_dim = dim});
    }
    for (const std::int64_t kv_heads : {1, 2, 3}) {
      test_fused_gradient({.batch = 2, .seq = 150, .heads = 6, .kv_heads = kv_heads, .head_dim = dim});
    }
    // More walks than there are multiprocessors: of two blocks of keys each, and four for each
    // multiprocessor.
    test_fused_gradient({.batch = 12, .seq = 140, .heads = 6, .kv_heads = 6, .head_dim = dim});
    test_fused_gradient({.batch = 60, .seq = 40, .heads = 10, .kv_heads = 10, .head_dim = dim});
    // Many walks of a head, past the tiles of three heads.
    test_fused_gradient({.batch = 1, .seq = 700, .heads = 3, .kv_heads = 1, .head_dim = dim});
    test_fused_gradient({.batch = 1, .seq = 70, .heads = 2, .kv_heads = 2, .head_dim = dim}, 1);
  }
}

TEST_F(CudaKernels, FusedAttentionGradientOfWindows) {
  if (!fits_fused_backward(DType::bf16, {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 64})) {
    GTEST_SKIP() << "no matrix instructions of warp groups";
  }
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t window : {1, 17, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, 400, 699}) {
      const ScoreRules rules{.window = window, .sinks = window % 2 == 0};
      test_fused_gradient(
          {.batch = 2, .seq = 700, .heads = 3, .kv_heads = 1, .head_dim = dim, .rules = rules});
    }
    test_fused_gradient(
        {.batch = 12, .seq = 340, .heads = 6, .kv_heads = 6, .head_dim = dim, .rules = {.window = 90}});
  }
}

TEST_F(CudaKernels, FlashAttentionByRules) {
  for (const ScoreRules& rules : kRules) {
    for (const std::int64_t dim : {32, 64, 80, 128, 136, 256, 5}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        test_attention(
            dtype, {.batch = 1, .seq = 201, .heads = 3, .kv_heads = 3, .head_dim = dim, .rules = rules}, 0);
      }
    }
    const AttentionShape shared{
        .batch = 2, .seq = 150, .heads = 6, .kv_heads = 2, .head_dim = 64, .rules = rules};
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      test_attention(dtype, shared, 0);
      test_attention(dtype, shared, 1);
    }
    for (const Fp32Products products : kOnTensorCores) test_attention(DType::f32, shared, 0, products);
  }
}

/// Blocks that a window hides in part, wherever their edges are.
TEST_F(CudaKernels, FlashAttentionOfAllWindows) {
  for (const std::int64_t window : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 190, 256, 257}) {
    for (const std::int64_t dim : {40, 64, 128}) {
      const AttentionShape shape{
          .batch = 1, .seq = 257, .heads = 2, .kv_heads = 1, .head_dim = dim, .rules = {.window = window}};
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) test_attention(dtype, shape, 0);
    }
  }
}

TEST_F(CudaKernels, FlashAttentionOfAllHeadSizes) {
  for (const std::int64_t dim : {8, 32, 40, 64, 72, 80, 96, 128, 136, 256, 5}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      test_attention(dtype, {.batch = 1, .seq = 77, .heads = 2, .kv_heads = 2, .head_dim = dim}, 0);
    }
    const AttentionShape shape{.batch = 1, .seq = 77, .heads = 2, .kv_heads = 2, .head_dim = dim};
    for (const Fp32Products products : kOnTensorCores) test_attention(DType::f32, shape, 0, products);
  }
}

TEST_F(CudaKernels, FlashAttentionOfAllLengths) {
  for (const std::int64_t seq : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 257}) {
    for (const std::int64_t dim : {64, 128}) {
      const AttentionShape shape{.batch = 2, .seq = seq, .heads = 2, .kv_heads = 1, .head_dim = dim};
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) test_attention(dtype, shape, 0);
      for (const Fp32Products products : kOnTensorCores) test_attention(DType::f32, shape, 0, products);
    }
  }
}

/// Enough heads that the kernels choose their large tiles.
TEST_F(CudaKernels, FlashAttentionOfManyHeads) {
  for (const std::int64_t dim : {32, 64, 80, 128}) {
    test_attention(DType::bf16, {.batch = 12, .seq = 193, .heads = 6, .kv_heads = 6, .head_dim = dim}, 0);
  }
}

TEST_F(CudaKernels, FlashAttentionOfSharedKeys) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t kv_heads : {1, 2, 3}) {
      const AttentionShape shape{.batch = 2, .seq = 150, .heads = 6, .kv_heads = kv_heads, .head_dim = 64};
      test_attention(dtype, shape, 0);
      if (dtype != DType::f32) continue;
      for (const Fp32Products products : kOnTensorCores) test_attention(dtype, shape, 0, products);
    }
  }
}

/// The largest errors of y and of the gradients.
std::pair<double, double> attention_errors(const AttentionShape& s, Fp32Products products) {
  const AttentionReference expected(s, DType::f32);
  const DeviceArray qkv(DType::f32, expected.qkv);
  const DeviceArray y(DType::f32, expected.y.size());
  const DeviceArray lse(DType::f32, expected.lse.size());
  const DeviceArray dy(DType::f32, expected.dy);
  const DeviceArray dqkv(DType::f32, expected.qkv.size());
  const DeviceBytes workspace(flash_attention_backward_workspace_bytes(s));
  launch_flash_attention(nullptr, DType::f32, s, qkv.data(), y.data(), lse.floats(), products);
  launch_flash_attention_backward(nullptr, DType::f32, s, dy.data(), qkv.data(), y.data(), lse.floats(),
                                  dqkv.data(), workspace.at(0), products);
  const auto largest = [](const std::vector<double>& actual, const std::vector<double>& exact) {
    double error = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) error = std::max(error, std::abs(actual[i] - exact[i]));
    return error;
  };
  return {largest(y.read(), expected.y), largest(dqkv.read(), expected.dqkv)};
}

TEST_F(CudaKernels, FlashAttentionInBf16x6IsAsCloseAsInFp32) {
  for (const std::int64_t dim : {64, 128}) {
    const AttentionShape shape{.batch = 1, .seq = 700, .heads = 2, .kv_heads = 2, .head_dim = dim};
    const auto [y, gradients] = attention_errors(shape, Fp32Products::plain);
    const auto [split_y, split_gradients] = attention_errors(shape, Fp32Products::bf16x6);
    RecordProperty("errors of " + std::to_string(dim),
                   fmt::format("y {:.2g} fp32 {:.2g}, gradients {:.2g} fp32 {:.2g}", split_y, y,
                               split_gradients, gradients));
    EXPECT_LT(split_y, 2 * y) << dim;
    EXPECT_LT(split_gradients, 2 * gradients) << dim;
  }
}

/// More heads than are worked on together, and a last group that is not full: what one sequence gets does not
/// depend on how many there are.
TEST_F(CudaKernels, FlashAttentionInGroupsOfHeads) {
  AttentionShape s{.batch = 39, .seq = 1024, .heads = 5, .kv_heads = 5, .head_dim = 64};
  const std::int64_t row = s.heads * s.head_dim;
  const DeviceArray qkv(DType::bf16, random_values(DType::bf16, s.batch * s.seq * 3 * row, 1));
  const DeviceArray dy(DType::bf16, random_values(DType::bf16, s.batch * s.seq * row, 2));
  /// y and then dqkv of s.batch sequences from `first` on.
  const auto run = [&](std::int64_t first) {
    const std::size_t positions = at(s.batch * s.seq);
    const auto from = [&](const DeviceArray& array, std::int64_t columns) {
      return static_cast<std::byte*>(array.data()) + first * s.seq * columns * 2;
    };
    const DeviceArray y(DType::bf16, positions * at(row));
    const DeviceArray lse(DType::f32, at(s.batch * s.heads * s.seq));
    const DeviceArray dqkv(DType::bf16, positions * at(3 * row));
    const DeviceBytes workspace(flash_attention_backward_workspace_bytes(s));
    launch_flash_attention(nullptr, DType::bf16, s, from(qkv, 3 * row), y.data(), lse.floats());
    launch_flash_attention_backward(nullptr, DType::bf16, s, from(dy, row), from(qkv, 3 * row), y.data(),
                                    lse.floats(), dqkv.data(), workspace.at(0));
    Values results = y.read();
    const Values gradients = dqkv.read();
    results.insert(results.end(), gradients.begin(), gradients.end());
    return results;
  };
  const Values whole = run(0);
  const std::size_t y_whole = at(s.batch * s.seq * row);
  const std::size_t y_alone = at(s.seq * row);
  const std::int64_t batch = std::exchange(s.batch, 1);
  for (const std::int64_t b : {std::int64_t{0}, std::int64_t{13}, batch - 1}) {
    const Values alone = run(b);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const std::size_t place =
          i < y_alone ? at(b) * y_alone + i : y_whole + at(b) * 3 * y_alone + (i - y_alone);
      ASSERT_EQ(alone[i], whole[place]) << "sequence " << b << " element " << i;
    }
  }
}

TEST_F(CudaKernels, FlashAttentionOfUnalignedOperands) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    for (const Fp32Products products : kOnTensorCores)
      test_attention(dtype, {.batch = 1, .seq = 70, .heads = 2, .kv_heads = 2, .head_dim = 64}, 1, products);
  }
}

TEST_F(CudaKernels, FlashAttentionRefusesLargeHeads) {
  const AttentionShape s{.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = kMaxHeadDim + 1};
  EXPECT_THROW(launch_flash_attention(nullptr, DType::f32, s, nullptr, nullptr, nullptr), core::Unavailable);
}

}  // namespace
}  // namespace rooflm::tests
