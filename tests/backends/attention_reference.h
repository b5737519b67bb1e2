// Causal attention and its gradient as plain loops in double, with all rules of scores.
#pragma once

#include <algorithm>
#include <bit>
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
  Values qkv, dy, sinks, y, lse, dqkv, d_sinks;

  AttentionReference(const backends::cuda::AttentionShape& shape, core::DType dtype) : s(shape) {
    const std::int64_t positions = s.batch * s.seq;
    qkv = random_values(dtype, positions * width(), 1);
    dy = random_values(dtype, positions * s.heads * s.head_dim, 2);
    sinks = random_values(core::DType::f32, s.heads, 3);
    d_sinks.resize(sinks.size());
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

  /// Of ALiBi: 2^(-8/n), its powers, for n heads; those beyond a power of two n have the odd powers for 2 n.
  [[nodiscard]] double slope(std::int64_t h) const {
    if (!s.rules.alibi) return 0;
    const auto n = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(s.heads)));
    return h < n ? std::pow(2, -8.0 * static_cast<double>(h + 1) / static_cast<double>(n))
                 : std::pow(2, -4.0 * static_cast<double>(2 * (h - n) + 1) / static_cast<double>(n));
  }

  /// One query: its output, and what it adds to the gradients.
  void row(std::int64_t b, std::int64_t h, std::int64_t t) {
    const auto& rules = s.rules;
    const double scale =
        rules.scale > 0 ? double{rules.scale} : 1 / std::sqrt(static_cast<double>(s.head_dim));
    const double cap = rules.cap;
    const std::int64_t first = rules.window > 0 ? std::max<std::int64_t>(t - rules.window + 1, 0) : 0;
    const std::int64_t key_head = s.heads + h / (s.heads / s.kv_heads);
    const std::size_t q = packed(b, t, h);
    const std::size_t out = at(((b * s.seq + t) * s.heads + h) * s.head_dim);
    Values p(at(t + 1));
    Values derivatives(at(t + 1), 1);
    const double of_sink = rules.sinks ? std::exp(sinks[at(h)]) : 0;
    double total = of_sink;
    for (std::int64_t j = first; j <= t; ++j) {
      double score = scale * dot(&qkv[q], &qkv[packed(b, j, key_head)]);
      if (cap > 0) {
        const double bent = std::tanh(score / cap);
        score = cap * bent;
        derivatives[at(j)] = 1 - bent * bent;
      }
      total += p[at(j)] = std::exp(score - slope(h) * static_cast<double>(t - j));
    }
    lse[at((b * s.heads + h) * s.seq + t)] = std::log(total);
    for (std::int64_t j = first; j <= t; ++j) {
      p[at(j)] /= total;
      const double* v = &qkv[packed(b, j, key_head + s.kv_heads)];
      for (std::int64_t d = 0; d < s.head_dim; ++d) y[out + at(d)] += p[at(j)] * v[d];
    }
    const double delta = dot(&dy[out], &y[out]);
    d_sinks[at(h)] -= of_sink / total * delta;
    for (std::int64_t j = first; j <= t; ++j) {
      const std::size_t k = packed(b, j, key_head);
      const std::size_t v = packed(b, j, key_head + s.kv_heads);
      const double ds = scale * derivatives[at(j)] * p[at(j)] * (dot(&dy[out], &qkv[v]) - delta);
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        dqkv[v + at(d)] += p[at(j)] * dy[out + at(d)];
        dqkv[q + at(d)] += ds * qkv[k + at(d)];
        dqkv[k + at(d)] += ds * qkv[q + at(d)];
      }
    }
  }
};

}  // namespace rooflm::tests
