// Causal attention and its gradient as plain loops in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cuda/kernels/attention/attention.h"
#include "core/dtype.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {

using Values = std::vector<double>;

/// Everything that attention computes, in double, from random operands as `dtype` keeps them.
struct AttentionReference {
  backends::cuda::AttentionShape s;
  Values qkv, dy, y, lse, dqkv;

  AttentionReference(const backends::cuda::AttentionShape& shape, core::DType dtype) : s(shape) {
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

}  // namespace rooflm::tests
