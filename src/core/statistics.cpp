// Summary statistics of repeated measurements.
#include "core/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/significance.h"

namespace rooflm::core {
namespace {

void require_samples(std::span<const double> samples) {
  if (samples.empty()) throw std::invalid_argument("statistics of an empty sample");
}

std::vector<double> sorted(std::span<const double> samples) {
  require_samples(samples);
  std::vector<double> values(samples.begin(), samples.end());
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<double> distances_from_median(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> distances;
  distances.reserve(samples.size());
  for (const double x : samples) distances.push_back(std::abs(x - center));
  return distances;
}

/// P(Binomial(n, 1/2) = k), by logarithms: 2^-n underflows where the probability does not.
double binomial_half(double n, double k) {
  const double log_choose = std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
  return std::exp(log_choose - n * std::log(2.0));
}

}  // namespace

double mean(std::span<const double> samples) {
  require_samples(samples);
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double sample_std(std::span<const double> samples) {
  const double center = mean(samples);
  if (samples.size() < 2) return 0;
  double sum = 0;
  for (const double x : samples) sum += (x - center) * (x - center);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

double quantile(std::span<const double> samples, double q) {
  if (!(q >= 0 && q <= 1)) throw std::invalid_argument("a quantile outside [0, 1]");
  const std::vector<double> values = sorted(samples);
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], position - static_cast<double>(below));
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double median_absolute_deviation(std::span<const double> samples) {
  return median(distances_from_median(samples));
}

double outlier_distance(std::span<const double> samples) {
  // Factors to the standard deviation of a normal distribution: of the MAD, and of the mean distance.
  constexpr double kOfMad = 1.4826;
  constexpr double kOfMean = 1.2533;
  constexpr double kFar = 5;
  constexpr std::size_t kFewest = 6;
  const std::vector<double> distances = distances_from_median(samples);
  if (samples.size() < kFewest) return std::numeric_limits<double>::infinity();
  const double mad = median(distances);
  return kFar * (mad > 0 ? kOfMad * mad : kOfMean * mean(distances));
}

Drift measure_drift(std::span<const double> samples) {
  require_samples(samples);
  if (samples.size() < 2) return {};
  const std::span<const double> first = samples.first(samples.size() / 2);
  const std::span<const double> second = samples.last(samples.size() / 2);
  const double before = median(first);
  return {.ratio = before != 0 ? median(second) / before : 1, .p = mann_whitney_p(first, second)};
}

Interval median_interval(std::span<const double> samples, double confidence) {
  const std::vector<double> values = sorted(samples);
  const std::size_t n = values.size();
  double below = binomial_half(static_cast<double>(n), 0);  // P(B < k) for k = 1
  std::size_t k = 1;
  while (k + 1 <= n / 2) {
    const double next = below + binomial_half(static_cast<double>(n), static_cast<double>(k));
    if (1 - 2 * next < confidence) break;
    below = next;
    ++k;
  }
  return {.low = values[k - 1], .high = values[n - k], .coverage = std::max(0.0, 1 - 2 * below)};
}

Summary summarise(std::span<const double> samples, double confidence) {
  require_samples(samples);
  const auto [min, max] = std::minmax_element(samples.begin(), samples.end());
  const double center = median(samples);
  const double far = outlier_distance(samples);
  const auto outliers =
      std::count_if(samples.begin(), samples.end(), [&](double x) { return std::abs(x - center) > far; });
  return {.count = samples.size(),
          .mean = mean(samples),
          .std = sample_std(samples),
          .median = center,
          .mad = median_absolute_deviation(samples),
          .min = *min,
          .max = *max,
          .outliers = static_cast<std::size_t>(outliers),
          .median_ci = median_interval(samples, confidence),
          .drift = measure_drift(samples)};
}

}  // namespace rooflm::core
