// Two run records: what got faster or slower, by how much, and whether that is more than chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/statistics.h"
#include "record/reader.h"

namespace rooflm::report {

enum class Verdict : std::uint8_t { faster, slower, same, unsure };
/// "FASTER", "SLOWER", "SAME", "UNSURE".
[[nodiscard]] std::string_view name_of(Verdict verdict);

struct CompareOptions {
  double same = 0.01;        ///< ratios within 1 +- this are the same for all purposes
  double confidence = 0.95;  ///< of the intervals; 1 - confidence is the level of significance
  std::uint64_t seed = 0;    ///< of the bootstrap
};

/// One time in both records.
struct ComparedTime {
  std::string run{};        ///< label of the configuration
  std::string subject{};    ///< "step", "forward", "forward/attention"
  double a_s = 0, b_s = 0;  ///< medians
  std::size_t a_samples = 0, b_samples = 0;
  double ratio = 0;           ///< b_s / a_s
  core::Interval interval{};  ///< of the ratio
  double p = 1;               ///< of the rank test, adjusted for all rows of the comparison
  Verdict verdict = Verdict::unsure;
};

struct Comparison {
  std::vector<ComparedTime> rows;
  std::vector<std::string> notes;  ///< what differs between the records, and what has no counterpart
  std::vector<std::string> lost;   ///< configurations that only the first record could time: "label (oom)"
};

/// Compares the configurations that both records ran (see match_runs): the whole step and its phases by the
/// samples of plain steps, and per phase each block (its layers added up) by the device time that it took in
/// each observed step. Steps of several runs of one configuration count together.
///
/// The verdict: SAME when the interval of the ratio of medians (bootstrap) lies within 1 +- same, of five
/// samples or more; else FASTER or SLOWER when the interval does not hold 1 and the Mann-Whitney test,
/// adjusted for the number of rows (Holm), is significant; else UNSURE. All of it is about the steps of these
/// runs: what changes from one start of a program to the next is not in it, unless the records hold several
/// runs.
///
/// Throws core::InputError when the records share no configuration, or none that both timed.
[[nodiscard]] Comparison compare(const record::Reader& a, const record::Reader& b,
                                 const CompareOptions& options);

/// The verdict on a ratio; `p` is adjusted.
[[nodiscard]] Verdict verdict_of(const ComparedTime& row, const CompareOptions& options);

/// The whole steps that are slower by more than `share` with the confidence of the comparison: whose interval
/// lies above 1 + share.
[[nodiscard]] std::vector<ComparedTime> slower_steps(const Comparison& comparison, double share);

}  // namespace rooflm::report
