// Whether two sets of measurements differ: a rank test, an interval of the ratio, and care with many tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/statistics.h"

namespace rooflm::core {

/// Two-sided p-value of the Mann-Whitney U test (the Wilcoxon rank-sum test): how often samples of one
/// distribution give rank sums that are at least as far from what is expected. Nothing is assumed of the
/// distribution; samples must be independent. Up to 40 samples in all: exact, ties included (every split of
/// the pooled midranks counts once). More: normal approximation with continuity correction, its variance
/// corrected for ties. 1 when all samples are equal. std::invalid_argument for an empty or a NaN sample.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);

/// Confidence interval of median(b) / median(a): percentile bootstrap (Efron and Tibshirani, 1993, chapter
/// 13), 4000 draws from each set with Philox and therefore the same for the same seed. For medians of few
/// samples it errs on the wide side (tests/core/statistics_rates_test.cpp measures how often it covers).
/// `coverage` is the confidence asked for, 0 when a set has a single sample. The samples must be positive;
/// std::invalid_argument when one is not, a set is empty or `confidence` is outside (0, 1).
Interval median_ratio_interval(std::span<const double> a, std::span<const double> b, double confidence = 0.95,
                               std::uint64_t seed = 0);

/// p-values adjusted for being several (Holm, 1979): those below alpha may all be called significant, and the
/// probability of one or more false alarms stays below alpha. In the order of `p`. std::invalid_argument for
/// a value outside [0, 1].
std::vector<double> holm(std::span<const double> p);

}  // namespace rooflm::core
