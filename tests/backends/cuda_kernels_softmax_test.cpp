// CUDA causal softmax and its gradient against plain loops, by rules of scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/kernels/softmax.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
using Values = std::vector<double>;

double number(std::int64_t x) { return static_cast<double>(x); }

TEST_F(CudaKernels, CausalSoftmaxAndItsGradient) {
  for (const std::int64_t seq : {1, 8, 37, 600}) {
    for_types([&](DType dtype, std::size_t shift) {
      constexpr double kScale = 0.3;
      const std::int64_t rows = 2 * seq;
      const Values s = random_values(dtype, rows * seq, 10, 4);
      const Values dp = random_values(dtype, rows * seq, 11);
      const DeviceArray device(dtype, s, shift);
      const DeviceArray device_dp(dtype, dp);
      launch_causal_softmax(nullptr, dtype, rows, seq, static_cast<float>(kScale), device.data(),
                            device.data());
      const Values p = device.read();
      Values expected(p.size()), ds(p.size());
      for (std::int64_t r = 0; r < rows; ++r) {
        double total = 0;
        double dot = 0;
        for (std::int64_t j = 0; j <= r % seq; ++j) {
          total += std::exp(kScale * s[at(r * seq + j)]);
          dot += p[at(r * seq + j)] * dp[at(r * seq + j)];
        }
        for (std::int64_t j = 0; j <= r % seq; ++j) {
          expected[at(r * seq + j)] = std::exp(kScale * s[at(r * seq + j)]) / total;
          ds[at(r * seq + j)] = kScale * p[at(r * seq + j)] * (dp[at(r * seq + j)] - dot);
        }
      }
      expect_close(p, expected, tolerance_of(dtype), 0.05);
      launch_causal_softmax_backward(nullptr, dtype, rows, seq, static_cast<float>(kScale), device_dp.data(),
                                     device.data(), device_dp.data());
      expect_close(device_dp.read(), ds, tolerance_of(dtype), 0.05);
    });
  }
}

/// p of one row of scores and its sink, by rules.
Values row_softmax(const ScoreRules& rules, std::int64_t head, std::int64_t heads, double scale, double sink,
                   std::span<const double> s, std::int64_t t) {
  Values p(s.size() + 1);
  if (rules.sinks) p.back() = std::exp(sink);
  double total = p.back();
  for (std::int64_t j = rules.window > 0 ? std::max<std::int64_t>(t - rules.window + 1, 0) : 0; j <= t; ++j) {
    double score = scale * s[at(j)];
    if (rules.cap > 0) score = rules.cap * std::tanh(score / rules.cap);
    // Heads are a power of two here.
    const double slope = rules.alibi ? std::pow(2, -8.0 * number(head + 1) / number(heads)) : 0;
    total += p[at(j)] = std::exp(score - slope * number(t - j));
  }
  for (double& x : p) x /= total;
  return p;
}

TEST_F(CudaKernels, CausalSoftmaxByRules) {
  constexpr std::int64_t kBatch = 2, kHeads = 4;
  constexpr double kScale = 0.3;
  const std::vector<ScoreRules> all = {{.window = 5},
                                       {.cap = 0.7F},
                                       {.alibi = true},
                                       {.sinks = true},
                                       {.window = 300, .cap = 1.1F, .alibi = true, .sinks = true}};
  for (const ScoreRules& rules : all) {
    for (const std::int64_t seq : {8, 37, 600}) {
      for_types([&](DType dtype, std::size_t shift) {
        const std::int64_t rows = kBatch * kHeads * seq;
        const Values s = random_values(dtype, rows * seq, 10, 4);
        const Values dp = random_values(dtype, rows * seq, 11);
        const Values sinks = random_values(DType::f32, kHeads, 12);
        const DeviceArray scores(dtype, s, shift);
        const DeviceArray sink_values(DType::f32, sinks);
        const DeviceArray p(dtype, s.size(), shift);
        const SoftmaxRules softmax{
            .rules = rules, .heads = kHeads, .sinks = {.data = rules.sinks ? sink_values.data() : nullptr}};
        launch_causal_softmax(nullptr, dtype, rows, seq, static_cast<float>(kScale), scores.data(), p.data(),
                              softmax);
        const DeviceArray ds(dtype, dp);
        const DeviceArray sink_rows(DType::f32, at(rows));
        launch_causal_softmax_backward(nullptr, dtype, rows, seq, static_cast<float>(kScale), ds.data(),
                                       p.data(), ds.data(), softmax, scores.data(),
                                       rules.sinks ? sink_rows.floats() : nullptr);
        Values expected(s.size()), expected_ds(s.size()), d_sinks(kHeads);
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t head = r / seq % kHeads;
          const std::span<const double> row(&s[at(r * seq)], at(seq));
          const Values own = row_softmax(rules, head, kHeads, kScale, sinks[at(head)], row, r % seq);
          double dot = 0;
          for (std::int64_t j = 0; j < seq; ++j) dot += own[at(j)] * dp[at(r * seq + j)];
          for (std::int64_t j = 0; j < seq; ++j) {
            const double bent = rules.cap > 0 ? std::tanh(kScale * row[at(j)] / rules.cap) : 0;
            expected[at(r * seq + j)] = own[at(j)];
            expected_ds[at(r * seq + j)] =
                kScale * (1 - bent * bent) * own[at(j)] * (dp[at(r * seq + j)] - dot);
          }
          d_sinks[at(head)] -= own.back() * dot;
        }
        expect_close(p.read(), expected, tolerance_of(dtype), 0.05);
        expect_close(ds.read(), expected_ds, 2 * tolerance_of(dtype), 0.05);
        if (!rules.sinks) return;
        const DeviceArray sums(DType::f32, at(kHeads));
        launch_sum_sinks(nullptr, {.batch = kBatch, .seq = seq, .heads = kHeads}, sink_rows.floats(), nullptr,
                         {}, sums.floats(), false);
        expect_close(sums.read(), d_sinks, dtype == DType::f32 ? 1e-4 : 5e-2);
      });
    }
  }
}

}  // namespace
}  // namespace rooflm::tests
