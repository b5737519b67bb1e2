// Whether two sets of measurements differ: rank test, confidence interval of the ratio, correction for many
// tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/statistics.h"

namespace rooflm::core {

/// Two-sided p-value of the Mann-Whitney U test (Wilcoxon rank-sum test): the probability, under equal
/// distributions, of a rank sum at least as far from its expectation. Assumes no particular distribution;
/// samples must be independent. Exact, ties included (every split of the pooled midranks counts once), up to
/// 40 samples in total, and up to 4000 / n in total where the smaller set has n <= 10. More: normal
/// approximation with continuity correction and a variance corrected for ties. 1 if all samples are equal.
/// Throws std::invalid_argument for an empty sample or NaN.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);

/// What mann_whitney_p gives two sets of these sizes, without ties, that do not overlap: no difference is
/// more significant. Where it is exact, 2 / C(n_a + n_b, n_a). 1 if one is empty.
double least_p(std::size_t n_a, std::size_t n_b);

/// Confidence interval of median(b) / median(a): percentile bootstrap (Efron and Tibshirani, 1993, chapter
/// 13), 4000 draws from each set with Philox, so equal seeds give equal results. Conservative for medians of
/// few samples (tests/core/statistics_rates_test.cpp measures its coverage). `coverage` is the requested
/// confidence, 0 if a set has fewer than 5 samples. Samples must be positive. Throws std::invalid_argument if
/// one is not, a set is empty or `confidence` is outside (0, 1).
Interval median_ratio_interval(std::span<const double> a, std::span<const double> b, double confidence = 0.95,
                               std::uint64_t seed = 0);

/// p-values adjusted for multiple tests (Holm, 1979): calling all below alpha significant keeps the
/// probability of any false alarm below alpha. In the order of `p`. Throws std::invalid_argument for a value
/// outside [0, 1].
std::vector<double> holm(std::span<const double> p);

}  // namespace rooflm::core
