// Whether neighbouring samples of a series resemble each other.
#include "core/correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace rooflm::core {
namespace {

/// Midranks less their mean.
std::vector<double> centred_ranks(std::span<const double> samples) {
  std::vector<double> ordered(samples.begin(), samples.end());
  std::sort(ordered.begin(), ordered.end());
  std::vector<double> ranks;
  ranks.reserve(samples.size());
  for (const double x : samples) {
    const auto [first, last] = std::equal_range(ordered.begin(), ordered.end(), x);
    const auto below = static_cast<double>(first - ordered.begin());
    const auto above = static_cast<double>(ordered.end() - last);
    ranks.push_back((below - above) / 2);
  }
  return ranks;
}

}  // namespace

double Neighbours::narrowness() const {
  return is_significant ? std::sqrt((1 + correlation) / (1 - correlation)) : 1;
}

Neighbours measure_neighbours(std::span<const double> samples) {
  constexpr std::size_t kFewest = 10;
  constexpr double kQuantile = 2.326;  // 99 % of a normal distribution
  if (std::any_of(samples.begin(), samples.end(), [](double x) { return std::isnan(x); })) {
    throw std::invalid_argument("the correlation of what is not a number");
  }
  const std::vector<double> ranks = centred_ranks(samples);
  double together = 0;
  double all = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    all += ranks[i] * ranks[i];
    if (i > 0) together += ranks[i] * ranks[i - 1];
  }
  if (all == 0) return {};
  const auto n = static_cast<double>(ranks.size());
  const double correlation = together / all;
  return {.correlation = correlation,
          .is_significant = ranks.size() >= kFewest && correlation + 1 / n > kQuantile / std::sqrt(n)};
}

}  // namespace rooflm::core
