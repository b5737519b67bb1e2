// Experts against plain loops over tokens in double precision, which sort no rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "compile/passes/cast.h"
#include "core/error.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using core::DType;
using program::Attributes;
using program::TensorId;

using Values = std::vector<double>;

constexpr std::size_t kRoutedTokens = 9;
constexpr std::size_t kInWidth = 6;
constexpr std::size_t kOutWidth = 4;

struct RouteKind {
  std::string name;
  std::size_t experts, active;
  bool sigmoid, normalised, bias;
  double scale, balance, z_loss;
  std::size_t groups = 1, active_groups = 1, group_best = 1;
  double jitter = -1;  ///< of a sparse mixer; below 0: none
};

Attributes attributes_of(const RouteKind& kind) {
  Attributes attrs{{"experts", static_cast<std::int64_t>(kind.experts)},
                   {"active", static_cast<std::int64_t>(kind.active)},
                   {"sigmoid", kind.sigmoid},
                   {"normalised", kind.normalised},
                   {"scale", kind.scale},
                   {"balance", kind.balance},
                   {"z_loss", kind.z_loss},
                   {"share", 0.5}};
  if (kind.groups > 1) {
    attrs.set("groups", static_cast<std::int64_t>(kind.groups));
    attrs.set("active_groups", static_cast<std::int64_t>(kind.active_groups));
    attrs.set("group_best", static_cast<std::int64_t>(kind.group_best));
  }
  if (kind.jitter >= 0) attrs.set("jitter", kind.jitter);
  return attrs;
}

/// What a token's logits lead to.
struct Choice {
  Values scores, weights;
  std::vector<std::size_t> experts;
  double log_sum = 0;
};

/// By expert: whether its group is one of those with the best sums.
std::vector<bool> in_best_groups(const RouteKind& kind, const Values& ranks) {
  const std::size_t size = kind.experts / kind.groups;
  std::vector<std::pair<double, std::size_t>> sums;
  for (std::size_t g = 0; g < kind.groups; ++g) {
    const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(g * size);
    Values group(first, first + static_cast<std::ptrdiff_t>(size));
    std::ranges::sort(group, std::greater());
    const auto best = group.begin() + static_cast<std::ptrdiff_t>(std::min(kind.group_best, size));
    sums.emplace_back(-std::accumulate(group.begin(), best, 0.0), g);
  }
  std::ranges::sort(sums);
  std::vector<bool> in(kind.experts);
  for (std::size_t i = 0; i < kind.active_groups; ++i)
    for (std::size_t e = 0; e < size; ++e) in[sums[i].second * size + e] = true;
  return in;
}

/// A sparse mixer's: the weight of each is its softmax among those that are near it.
void mix(const RouteKind& kind, const double* logits, Choice& c) {
  Values rest(logits, logits + kind.experts);
  while (c.experts.size() < kind.active) {
    const auto best = static_cast<std::size_t>(std::ranges::max_element(rest) - rest.begin());
    double sum = 0;
    for (std::size_t e = 0; e < kind.experts; ++e) {
      const double gap = (rest[best] - rest[e]) / std::max(std::abs(rest[e]), rest[best]);
      if (std::isfinite(rest[e]) && gap <= 2 * kind.jitter) sum += std::exp(rest[e] - rest[best]);
    }
    c.experts.push_back(best);
    c.weights.push_back(kind.scale / sum);
    rest[best] = -std::numeric_limits<double>::infinity();
  }
}

Choice choose(const RouteKind& kind, const double* logits, const Values& bias) {
  Choice c;
  double sum = 0;
  for (std::size_t e = 0; e < kind.experts; ++e) sum += std::exp(logits[e]);
  c.log_sum = std::log(sum);
  for (std::size_t e = 0; e < kind.experts; ++e)
    c.scores.push_back(kind.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]) / sum);
  if (kind.jitter >= 0) {
    mix(kind, logits, c);
    return c;
  }
  Values ranks = c.scores;
  for (std::size_t e = 0; e < kind.experts && kind.bias; ++e) ranks[e] += bias[e];
  const std::vector<bool> in = in_best_groups(kind, ranks);
  c.experts.resize(kind.experts);
  std::iota(c.experts.begin(), c.experts.end(), 0U);
  std::ranges::stable_sort(
      c.experts, [&](std::size_t a, std::size_t b) { return in[a] != in[b] ? in[a] : ranks[a] > ranks[b]; });
  c.experts.resize(kind.active);
  double chosen = 0;
  for (const std::size_t e : c.experts) chosen += c.scores[e];
  for (const std::size_t e : c.experts)
    c.weights.push_back(kind.scale * c.scores[e] / (kind.normalised ? chosen : 1));
  return c;
}

/// <projection, weights> and half of the losses of routing, as `share` says.
double routing_loss(const RouteKind& kind, const Values& logits, const Values& bias,
                    const Values& projection) {
  double loss = 0;
  Values rows(kind.experts), shares(kind.experts);
  const double tokens = static_cast<double>(logits.size()) / static_cast<double>(kind.experts);
  for (std::size_t n = 0; n * kind.experts < logits.size(); ++n) {
    const Choice c = choose(kind, &logits[n * kind.experts], bias);
    for (std::size_t k = 0; k < kind.active; ++k) {
      loss += projection[n * kind.active + k] * c.weights[k];
      rows[c.experts[k]] += 1 / tokens;
    }
    const double all = std::accumulate(c.scores.begin(), c.scores.end(), 0.0);
    for (std::size_t e = 0; e < kind.experts; ++e) shares[e] += c.scores[e] / all / tokens;
    loss += 0.5 * kind.z_loss * c.log_sum * c.log_sum / tokens;
  }
  for (std::size_t e = 0; e < kind.experts; ++e)
    loss += 0.5 * kind.balance * static_cast<double>(kind.experts) * rows[e] * shares[e];
  return loss;
}

class Routes : public testing::TestWithParam<RouteKind> {};

TEST_P(Routes, ChooseAndWeighAsDefined) {
  const RouteKind& kind = GetParam();
  CaseWriter w("route");
  const auto experts = static_cast<std::int64_t>(kind.experts);
  const TensorId logits = w.activation({static_cast<std::int64_t>(kRoutedTokens), experts});
  const TensorId bias = w.weight({experts});
  std::vector<TensorId> inputs{logits};
  if (kind.bias) inputs.push_back(bias);
  const auto routed = w.op(ops::kRoute, inputs, attributes_of(kind));
  Case c = w.done({routed[0]});
  const auto gradients = append_backward(c);
  passes::cast(c.program, DType::f64);
  const auto backend = backends::make_cpu_backend(backends::CpuKernels::fast, 2);
  OpRunner runner(c, *backend);
  runner.run_all();

  Values x = runner.read(logits);
  const Values offsets = runner.read(bias);
  const Values weights = runner.read(routed[0]);
  const Values chosen = runner.read(routed[1]);
  for (std::size_t n = 0; n < kRoutedTokens; ++n) {
    const Choice expected = choose(kind, &x[n * kind.experts], offsets);
    for (std::size_t k = 0; k < kind.active; ++k) {
      ASSERT_EQ(chosen[n * kind.active + k], static_cast<double>(expected.experts[k])) << n;
      ASSERT_NEAR(weights[n * kind.active + k], expected.weights[k], 1e-12) << n;
    }
  }
  const Values projection = runner.read(gradients.at(routed[0]));
  const Values found = runner.read(gradients.at(logits));
  for (std::size_t i = 0; i < x.size(); ++i) {
    constexpr double kStep = 1e-5;
    const auto loss_at = [&](double change) {
      Values changed = x;
      changed[i] += change;
      return routing_loss(kind, changed, offsets, projection);
    };
    ASSERT_NEAR(found[i], (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep), 1e-8) << "d logits[" << i << "]";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Routes,
                         testing::Values(RouteKind{"mixtral", 8, 2, false, true, false, 1, 0.02, 0},
                                         RouteKind{"switch", 4, 1, false, false, false, 1, 0.3, 0.1},
                                         RouteKind{"deepseek", 7, 3, true, true, true, 2.5, 0.2, 0.1},
                                         RouteKind{"sigmoids", 7, 3, true, false, false, 1, 0.2, 0},
                                         RouteKind{"all", 3, 3, false, true, false, 1, 0, 0.5},
                                         RouteKind{"one", 1, 1, false, true, false, 1, 0.1, 0.1},
                                         RouteKind{"groups", 8, 3, false, false, false, 4, 0.1, 0, 4, 2, 1},
                                         RouteKind{"deepseek_v3", 8, 3, true, true, true, 2.5, 0, 0, 4, 2, 2},
                                         RouteKind{"small_groups", 6, 2, true, true, true, 1, 0, 0, 6, 3, 2},
                                         RouteKind{"mixer", 6, 2, false, false, false, 1, 0, 0, 1, 1, 1, 0.3},
                                         RouteKind{"far", 6, 2, false, false, false, 2, 0.2, 0.1, 1, 1, 1,
                                                   0}),
                         [](const auto& test) { return test.param.name; });

TEST(Route, TiesGoToTheLowestExpert) {
  CaseWriter w("route");
  const TensorId logits = w.activation({3, 4});
  w.fix(logits, {0, 0, 0, 0, 1, 3, 3, 3, 2, 1, 2, 1});
  const RouteKind kind{"", 4, 2, false, true, false, 1, 0, 0};
  const auto routed = w.op(ops::kRoute, {logits}, attributes_of(kind));
  const Case c = w.done();
  const auto backend = backends::make_cpu_backend(backends::CpuKernels::fast, 2);
  OpRunner runner(c, *backend);
  runner.run_all();
  EXPECT_EQ(runner.read(routed[1]), (Values{0, 1, 1, 2, 0, 2}));
}

/// Sorted rows, multiplied by expert and summed by token, are each token's own sum over its experts.
TEST(Dispatch, RowsComeBackToTheirTokens) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const std::size_t experts : {2U, 5U, 40U}) {
      const RouteKind kind{"", experts, 2, false, true, false, 1, 0, 0};
      const auto count = static_cast<std::int64_t>(experts);
      const Attributes places{{"experts", count}, {"active", std::int64_t{2}}};
      CaseWriter w("layer");
      const TensorId x =
          w.activation({static_cast<std::int64_t>(kRoutedTokens), static_cast<std::int64_t>(kInWidth)});
      const TensorId logits = w.activation({static_cast<std::int64_t>(kRoutedTokens), count});
      const TensorId weight =
          w.weight({count, static_cast<std::int64_t>(kOutWidth), static_cast<std::int64_t>(kInWidth)});
      const auto routed = w.op(ops::kRoute, {logits}, attributes_of(kind));
      const auto sorted = w.op(ops::kDispatch, {routed[1]}, places);
      const TensorId rows = w.op(ops::kGatherRows, {x, sorted[0], sorted[1]}, places)[0];
      const TensorId products = w.op(ops::kGroupedMatmul, {rows, weight, sorted[2]},
                                     ops::grouped_matmul(count, 2 * static_cast<std::int64_t>(kRoutedTokens),
                                                         kOutWidth, kInWidth, true))[0];
      const TensorId y = w.op(ops::kCombine, {products, routed[0], sorted[1]}, places)[0];
      Case c = w.done();
      passes::cast(c.program, dtype);
      const auto backend = backends::make_cpu_backend(backends::CpuKernels::fast, 2);
      OpRunner runner(c, *backend);
      runner.run_all();

      const Values order = runner.read(sorted[0]);
      const Values chosen = runner.read(routed[1]);
      const Values offsets = runner.read(sorted[2]);
      for (std::size_t r = 0; r < order.size(); ++r) {
        const double expert = chosen[static_cast<std::size_t>(order[r])];
        EXPECT_LE(offsets[static_cast<std::size_t>(expert)], static_cast<double>(r));
        EXPECT_GT(offsets[static_cast<std::size_t>(expert) + 1], static_cast<double>(r));
        if (r > 0 && chosen[static_cast<std::size_t>(order[r - 1])] == expert) {
          EXPECT_LT(order[r - 1], order[r]);
        }
        EXPECT_EQ(runner.read(sorted[1])[static_cast<std::size_t>(order[r])], static_cast<double>(r));
      }
      const Values xs = runner.read(x);
      const Values ws = runner.read(weight);
      const Values all = runner.read(logits);
      const Values ys = runner.read(y);
      for (std::size_t n = 0; n < kRoutedTokens; ++n) {
        const Choice choice = choose(kind, &all[n * experts], {});
        for (std::size_t o = 0; o < kOutWidth; ++o) {
          double sum = 0;
          for (std::size_t k = 0; k < 2; ++k) {
            for (std::size_t i = 0; i < kInWidth; ++i)
              sum += choice.weights[k] * ws[(choice.experts[k] * kOutWidth + o) * kInWidth + i] *
                     xs[n * kInWidth + i];
          }
          ASSERT_NEAR(ys[n * kOutWidth + o], sum, dtype == DType::f64 ? 1e-12 : 1e-5) << n;
        }
      }
    }
  }
}

/// An expert takes the first tokens that chose it. What is dropped adds nothing, forward and backward.
TEST(Dispatch, DropsWhatIsBeyondTheCapacity) {
  CaseWriter w("capacity");
  const Attributes places{{"experts", 3}, {"active", 2}};
  Attributes limited = places;
  limited.set("capacity", std::int64_t{2});
  const TensorId chosen = w.ids({4, 2}, 3);
  w.fix(chosen, {0, 1, 0, 2, 1, 0, 0, 2});
  const TensorId x = w.activation({4, 3});
  const TensorId weights = w.add("weights", {4, 2}, program::Role::activation, true);
  const auto sorted = w.op(ops::kDispatch, {chosen}, limited);
  const TensorId rows = w.op(ops::kGatherRows, {x, sorted[0], sorted[1]}, places)[0];
  const TensorId y = w.op(ops::kCombine, {rows, weights, sorted[1]}, places)[0];
  Case c = w.done({y});
  const auto gradients = append_backward(c);
  passes::cast(c.program, DType::f64);
  const auto backend = backends::make_cpu_backend(backends::CpuKernels::fast, 2);
  OpRunner runner(c, *backend);
  runner.run_all();
  EXPECT_EQ(runner.read(sorted[2]), (Values{0, 2, 4, 6}));
  EXPECT_EQ(runner.read(sorted[1]), (Values{0, 2, 1, 4, 3, -1, -1, 5}));
  EXPECT_EQ(runner.read(sorted[0]), (Values{0, 2, 1, 4, 3, 7, -1, -1}));
  const Values xs = runner.read(x), ws = runner.read(weights), ys = runner.read(y);
  const Values dys = runner.read(gradients.at(y));
  const Values dxs = runner.read(gradients.at(x)), dws = runner.read(gradients.at(weights));
  const std::vector<bool> kept = {true, true, true, true, true, false, false, true};
  for (std::size_t n = 0; n < 4; ++n) {
    double factor = 0;
    for (std::size_t k = 0; k < 2; ++k) {
      double product = 0;
      for (std::size_t i = 0; i < 3; ++i) product += dys[n * 3 + i] * xs[n * 3 + i];
      if (kept[n * 2 + k]) factor += ws[n * 2 + k];
      EXPECT_NEAR(dws[n * 2 + k], kept[n * 2 + k] ? product : 0, 1e-12);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(ys[n * 3 + i], factor * xs[n * 3 + i], 1e-12);
      EXPECT_NEAR(dxs[n * 3 + i], factor * dys[n * 3 + i], 1e-12);
    }
  }
}

/// FLOPs are those of the rows; bytes count the weights of as many experts as can have rows.
TEST(GroupedMatmul, CostsRowsAndTouchedWeights) {
  for (const auto& [experts, rows] : {std::pair<std::int64_t, std::int64_t>{8, 20}, {8, 3}}) {
    CaseWriter w("grouped");
    const TensorId x = w.activation({rows, 6});
    const TensorId weight = w.weight({experts, 4, 6});
    w.op(ops::kGroupedMatmul, {x, weight, w.ids({experts + 1}, rows)},
         ops::grouped_matmul(experts, rows, 4, 6, true));
    Case c = w.done();
    const program::Cost cost = program::cost_of(c.program, c.program.ops[0]);
    EXPECT_EQ(cost.matmul_flop, 2 * rows * 4 * 6);
    EXPECT_EQ(cost.bytes_read, 4 * (rows * 6 + std::min(experts, rows) * 4 * 6));
    EXPECT_EQ(cost.bytes_written, 4 * rows * 4);
  }
}

TEST(Route, RefusesWhatCannotBe) {
  // Groups that do not divide, too many of them, too few experts in those that are chosen.
  for (const auto& [groups, active] : {std::pair<std::size_t, std::size_t>{3, 1}, {4, 5}, {4, 1}, {2, 0}}) {
    CaseWriter w("route");
    const TensorId logits = w.activation({3, 8});
    const RouteKind kind{"", 8, 3, false, true, false, 1, 0, 0, groups, active, 1};
    EXPECT_THROW(w.op(ops::kRoute, {logits}, attributes_of(kind)), core::UsageError);
  }
  for (const auto& [experts, active] : {std::pair<std::size_t, std::size_t>{4, 5}, {4, 0}, {5, 2}}) {
    CaseWriter w("route");
    const TensorId logits = w.activation({3, 4});
    const RouteKind kind{"", experts, active, false, true, false, 1, 0, 0};
    EXPECT_THROW(w.op(ops::kRoute, {logits}, attributes_of(kind)), core::UsageError);
  }
}

}  // namespace
}  // namespace rooflm::tests
