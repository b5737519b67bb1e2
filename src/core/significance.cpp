// Whether two sets of measurements differ.
#include "core/significance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>

#include "core/rng.h"

namespace rooflm::core {
namespace {

/// Up to so many samples in total the distribution of the rank sum is counted.
constexpr std::size_t kMostExact = 40;
/// If the smaller set has at most so many, the tails of the normal approximation are far off: counted, too,
/// as long as the product of its size and all samples is at most kMostCounted (about 10 ms).
constexpr std::size_t kSmallSet = 10;
constexpr std::size_t kMostCounted = 4000;

bool is_counted(std::size_t smaller, std::size_t all) {
  return all <= kMostExact || (smaller <= kSmallSet && smaller * all <= kMostCounted);
}

/// Ranks of the pooled samples, doubled so that midranks are integers.
struct Ranks {
  std::vector<std::size_t> doubled;  ///< ranks of a's samples, then of b's
  double tie_term = 0;               ///< sum of t^3 - t over groups of t equal samples
};

Ranks pooled_ranks(std::span<const double> a, std::span<const double> b) {
  std::vector<double> values(a.begin(), a.end());
  values.insert(values.end(), b.begin(), b.end());
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  Ranks ranks{.doubled = std::vector<std::size_t>(values.size()), .tie_term = 0};
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // Ranks begin + 1 to end; twice their mean is begin + 1 + end.
    for (std::size_t i = begin; i < end; ++i) ranks.doubled[order[i]] = begin + 1 + end;
    const auto ties = static_cast<double>(end - begin);
    ranks.tie_term += ties * ties * ties - ties;
    begin = end;
  }
  return ranks;
}

/// Share of all choices of `chosen` ranks whose sum is at least as far from `expected` as `observed`. Counts
/// below 2^53 are exact in double, larger ones to 16 digits.
double exact_p(std::vector<std::size_t> ranks, std::size_t chosen, double observed, double expected) {
  std::sort(ranks.begin(), ranks.end());
  const std::size_t n = ranks.size();
  std::vector<std::size_t> sums(n + 1, 0);  // of the lowest ranks
  std::partial_sum(ranks.begin(), ranks.end(), sums.begin() + 1);
  // ways[k][s]: number of choices of k of the ranks so far with sum s.
  std::vector<std::vector<double>> ways(chosen + 1);
  for (std::size_t k = 0; k <= chosen; ++k) ways[k].assign(sums[n] - sums[n - k] + 1, 0.0);
  ways[0][0] = 1;
  for (std::size_t seen = 1; seen <= n; ++seen) {
    const std::size_t rank = ranks[seen - 1];
    for (std::size_t k = std::min(seen, chosen); k > 0; --k) {
      const std::size_t least = sums[k - 1];
      const std::size_t most = sums[seen - 1] - sums[seen - k];  // of k - 1 of the ranks before this one
      for (std::size_t s = least; s <= most; ++s) ways[k][s + rank] += ways[k - 1][s];
    }
  }
  double far = 0;
  double all = 0;
  for (std::size_t s = 0; s < ways[chosen].size(); ++s) {
    all += ways[chosen][s];
    if (std::abs(static_cast<double>(s) - expected) >= std::abs(observed - expected)) far += ways[chosen][s];
  }
  return far / all;
}

double normal_p(double observed, double expected, double n_a, double n_b, double tie_term) {
  const double n = n_a + n_b;
  const double variance = n_a * n_b / 12 * (n + 1 - tie_term / (n * (n - 1)));
  if (variance <= 0) return 1;
  constexpr double kContinuity = 0.5;
  const double distance =
      std::max(0.0, std::abs(observed - expected) / 2 - kContinuity);  // ranks are doubled
  return std::erfc(distance / std::sqrt(2 * variance));
}

/// Bootstrap resampling with replacement; the random numbers depend only on seed, set and draw.
class Resampler {
 public:
  Resampler(std::span<const double> samples, std::uint64_t key) : samples_(samples), key_(key) {}

  /// Median of resample `draw`.
  double median_of(std::uint64_t draw) {
    constexpr std::size_t kWords = 4;
    drawn_.resize(samples_.size());
    std::array<std::uint32_t, kWords> words{};
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      if (i % kWords == 0) words = philox(key_, draw, i / kWords);
      drawn_[i] = samples_[words.at(i % kWords) * samples_.size() >> 32U];
    }
    const auto middle = drawn_.begin() + static_cast<std::ptrdiff_t>(drawn_.size() / 2);
    std::nth_element(drawn_.begin(), middle, drawn_.end());
    if (drawn_.size() % 2 == 1) return *middle;
    return std::midpoint(*std::max_element(drawn_.begin(), middle), *middle);
  }

 private:
  std::span<const double> samples_;
  std::uint64_t key_;
  std::vector<double> drawn_;
};

void require_positive(std::span<const double> samples) {
  if (samples.empty()) throw std::invalid_argument("the ratio of medians of an empty sample");
  for (const double x : samples) {
    if (!(x > 0) || std::isinf(x)) throw std::invalid_argument("the ratio of medians needs positive samples");
  }
}

}  // namespace

double mann_whitney_p(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) throw std::invalid_argument("a rank test of an empty sample");
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (std::any_of(a.begin(), a.end(), is_nan) || std::any_of(b.begin(), b.end(), is_nan)) {
    throw std::invalid_argument("a rank test of what is not a number");
  }
  const Ranks ranks = pooled_ranks(a, b);
  const auto split = ranks.doubled.begin() + static_cast<std::ptrdiff_t>(a.size());
  const auto observed = static_cast<double>(std::accumulate(ranks.doubled.begin(), split, std::size_t{0}));
  const auto n_a = static_cast<double>(a.size());
  const auto n_b = static_cast<double>(b.size());
  const double expected = n_a * (n_a + n_b + 1);
  const std::size_t smaller = std::min(a.size(), b.size());
  if (!is_counted(smaller, ranks.doubled.size())) {
    return normal_p(observed, expected, n_a, n_b, ranks.tie_term);
  }
  if (smaller == a.size()) return exact_p(ranks.doubled, smaller, observed, expected);
  const double all = (n_a + n_b) * (n_a + n_b + 1);
  return exact_p(ranks.doubled, smaller, all - observed, all - expected);
}

double least_p(std::size_t n_a, std::size_t n_b) {
  const std::size_t smaller = std::min(n_a, n_b);
  if (!is_counted(smaller, n_a + n_b)) {
    const auto a = static_cast<double>(n_a);
    const auto b = static_cast<double>(n_b);
    return normal_p(a * (a + 1), a * (a + b + 1), a, b, 0);
  }
  double splits = 1;
  for (std::size_t i = 1; i <= smaller; ++i) {
    splits *= static_cast<double>(n_a + n_b - smaller + i) / static_cast<double>(i);
  }
  return std::min(1.0, 2 / splits);
}

Interval median_ratio_interval(std::span<const double> a, std::span<const double> b, double confidence,
                               std::uint64_t seed) {
  constexpr std::uint64_t kDraws = 4000;
  constexpr std::size_t kFewest = 5;
  if (!(confidence > 0 && confidence < 1)) throw std::invalid_argument("a confidence outside (0, 1)");
  require_positive(a);
  require_positive(b);
  Resampler from_a(a, 2 * seed);
  Resampler from_b(b, 2 * seed + 1);
  std::vector<double> ratios(kDraws);
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    ratios[draw] = from_b.median_of(draw) / from_a.median_of(draw);
  }
  const double tail = (1 - confidence) / 2;
  const double promised = std::min(a.size(), b.size()) < kFewest ? 0 : confidence;
  return {.low = quantile(ratios, tail), .high = quantile(ratios, 1 - tail), .coverage = promised};
}

std::vector<double> holm(std::span<const double> p) {
  for (const double value : p) {
    if (!(value >= 0 && value <= 1)) throw std::invalid_argument("a probability outside [0, 1]");
  }
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return p[i] < p[j]; });
  std::vector<double> adjusted(p.size());
  double reached = 0;
  std::size_t left = p.size();
  for (const std::size_t i : order) {
    reached = std::max(reached, std::min(1.0, static_cast<double>(left) * p[i]));
    adjusted[i] = reached;
    --left;
  }
  return adjusted;
}

}  // namespace rooflm::core
