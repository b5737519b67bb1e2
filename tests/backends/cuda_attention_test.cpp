// CUDA flash attention, forward and backward, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/kernels/attention.h"
#include "core/error.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
using Values = std::vector<double>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Everything that attention computes, in double.
struct Reference {
  AttentionShape s;
  Values qkv, dy, y, lse, dqkv;

  Reference(const AttentionShape& shape, DType dtype) : s(shape) {
    const std::int64_t positions = s.batch * s.seq;
    qkv = random_values(dtype, positions * width(), 1);
    dy = random_values(dtype, positions * s.heads * s.head_dim, 2);
    y.resize(dy.size());
    dqkv.resize(qkv.size());
    lse.resize(at(positions * s.heads));
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t t = 0; t < s.seq; ++t) row(b, h, t);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t width() const { return (s.heads + 2 * s.kv_heads) * s.head_dim; }
  [[nodiscard]] std::size_t packed(std::int64_t b, std::int64_t t, std::int64_t head) const {
    return at((b * s.seq + t) * width() + head * s.head_dim);
  }
  [[nodiscard]] double dot(const double* a, const double* b) const {
    double total = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) total += a[d] * b[d];
    return total;
  }

  /// One query: its output, and what it adds to the gradients.
  void row(std::int64_t b, std::int64_t h, std::int64_t t) {
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    const std::int64_t key_head = s.heads + h / (s.heads / s.kv_heads);
    const std::size_t q = packed(b, t, h);
    const std::size_t out = at(((b * s.seq + t) * s.heads + h) * s.head_dim);
    Values p(at(t + 1));
    double total = 0;
    for (std::int64_t j = 0; j <= t; ++j) {
      total += p[at(j)] = std::exp(scale * dot(&qkv[q], &qkv[packed(b, j, key_head)]));
    }
    lse[at((b * s.heads + h) * s.seq + t)] = std::log(total);
    for (std::int64_t j = 0; j <= t; ++j) {
      p[at(j)] /= total;
      const double* v = &qkv[packed(b, j, key_head + s.kv_heads)];
      for (std::int64_t d = 0; d < s.head_dim; ++d) y[out + at(d)] += p[at(j)] * v[d];
    }
    const double delta = dot(&dy[out], &y[out]);
    for (std::int64_t j = 0; j <= t; ++j) {
      const std::size_t k = packed(b, j, key_head);
      const std::size_t v = packed(b, j, key_head + s.kv_heads);
      const double ds = scale * p[at(j)] * (dot(&dy[out], &qkv[v]) - delta);
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        dqkv[v + at(d)] += p[at(j)] * dy[out + at(d)];
        dqkv[q + at(d)] += ds * qkv[k + at(d)];
        dqkv[k + at(d)] += ds * qkv[q + at(d)];
      }
    }
  }
};

/// bf16: probabilities and their gradients are rounded to 2^-9 before they are summed, results once more.
void test_attention(DType dtype, const AttentionShape& s, std::size_t shift) {
  SCOPED_TRACE(std::string(core::name_of(dtype)) + " B " + std::to_string(s.batch) + " T " +
               std::to_string(s.seq) + " H " + std::to_string(s.heads) + " K " + std::to_string(s.kv_heads) +
               " D " + std::to_string(s.head_dim) + (shift > 0 ? ", unaligned" : ""));
  const double tolerance = dtype == DType::f32 ? 2e-5 : 2e-2;
  const Reference expected(s, dtype);
  const DeviceArray qkv(dtype, expected.qkv, shift);
  const DeviceArray y(dtype, expected.y.size(), shift);
  const DeviceArray lse(DType::f32, expected.lse.size());
  launch_flash_attention(nullptr, dtype, s, qkv.data(), y.data(), lse.floats());
  expect_close(y.read(), expected.y, tolerance);
  expect_close(lse.read(), expected.lse, dtype == DType::f32 ? 1e-5 : 1e-4);

  const DeviceArray dy(dtype, expected.dy, shift);
  const DeviceArray dqkv(dtype, expected.qkv.size(), shift);
  const DeviceArray again(dtype, expected.qkv.size(), shift);
  const DeviceBytes workspace(flash_attention_backward_workspace_bytes(s));
  launch_flash_attention_backward(nullptr, dtype, s, dy.data(), qkv.data(), y.data(), lse.floats(),
                                  dqkv.data(), workspace.at(0));
  expect_close(dqkv.read(), expected.dqkv, tolerance);
  launch_flash_attention_backward(nullptr, dtype, s, dy.data(), qkv.data(), y.data(), lse.floats(),
                                  again.data(), workspace.at(0));
  EXPECT_EQ(again.read(), dqkv.read());  // the same bits
}

TEST_F(CudaKernels, FlashAttentionOfAllHeadSizes) {
  for (const std::int64_t dim : {8, 32, 40, 64, 72, 80, 96, 128, 136, 256, 5}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      test_attention(dtype, {.batch = 1, .seq = 77, .heads = 2, .kv_heads = 2, .head_dim = dim}, 0);
    }
  }
}

TEST_F(CudaKernels, FlashAttentionOfAllLengths) {
  for (const std::int64_t seq : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 257}) {
    for (const std::int64_t dim : {64, 128}) {
      test_attention(DType::bf16, {.batch = 2, .seq = seq, .heads = 2, .kv_heads = 1, .head_dim = dim}, 0);
    }
  }
}

/// Enough heads that the kernels choose their large tiles.
TEST_F(CudaKernels, FlashAttentionOfManyHeads) {
  for (const std::int64_t dim : {32, 64, 80, 128}) {
    test_attention(DType::bf16, {.batch = 30, .seq = 193, .heads = 6, .kv_heads = 6, .head_dim = dim}, 0);
  }
}

TEST_F(CudaKernels, FlashAttentionOfSharedKeys) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t kv_heads : {1, 2, 3}) {
      test_attention(dtype, {.batch = 2, .seq = 150, .heads = 6, .kv_heads = kv_heads, .head_dim = 64}, 0);
    }
  }
}

TEST_F(CudaKernels, FlashAttentionOfUnalignedOperands) {
  test_attention(DType::bf16, {.batch = 1, .seq = 70, .heads = 2, .kv_heads = 2, .head_dim = 64}, 1);
}

TEST_F(CudaKernels, FlashAttentionRefusesLargeHeads) {
  const AttentionShape s{.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = kMaxHeadDim + 1};
  EXPECT_THROW(launch_flash_attention(nullptr, DType::f32, s, nullptr, nullptr, nullptr), core::Unavailable);
}

}  // namespace
}  // namespace rooflm::tests
