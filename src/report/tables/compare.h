// Two run records: what got faster or slower, by how much, and whether that is more than chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/statistics.h"
#include "record/reader.h"

namespace rooflm::report {

enum class Verdict : std::uint8_t { faster, slower, same, unsure };
/// "FASTER", "SLOWER", "SAME", "UNSURE".
[[nodiscard]] std::string_view name_of(Verdict verdict);

/// What a step is taken apart by, layers added up: "attention", "attention/qk", the kernels by name.
/// automatic: ops, where both sides have the same (nine tenths of either's time), else blocks; kernels where
/// no op was timed.
enum class Parts : std::uint8_t { automatic, blocks, ops, kernels };

struct CompareOptions {
  double same = 0.01;        ///< ratios within 1 +- this are the same for all purposes
  double confidence = 0.95;  ///< of the intervals; 1 - confidence is the level of significance
  /// Where steps are compared: changes of up to this, or to 1 / (1 + this), may be differences between runs.
  /// Absent: kProcessorRestart or kDeviceRestart.
  std::optional<double> restart;
  std::uint64_t seed = 0;  ///< of the bootstrap
  /// Kinds of ops ("matmul"): times of blocks are then of these ops alone, and there are none of steps and
  /// phases.
  std::vector<std::string> ops{};
  Parts parts = Parts::blocks;
};

/// How much medians of two runs of one program may differ: measured on CPUs of a shared virtual machine (nine
/// of ten runs with steps of 10 ms within 44 % of the previous one), and on an exclusive GPU.
inline constexpr double kProcessorRestart = 0.50;
inline constexpr double kDeviceRestart = 0.03;

/// From so many runs on each side, runs may be compared and not steps: with fewer a rank test cannot reach 5
/// %. Among several rows it takes more (core::least_p times their number must be below the level).
inline constexpr std::size_t kFewestRuns = 4;

/// One time in both records.
struct ComparedTime {
  std::string run{};                         ///< label of the configuration
  std::string subject{};                     ///< "step", "forward", "forward/attention", "outside kernels"
  double a_s = 0, b_s = 0;                   ///< medians
  std::size_t a_samples = 0, b_samples = 0;  ///< steps; with enough runs, runs
  std::size_t a_runs = 0, b_runs = 0;        ///< that have this time
  double ratio = 0;                          ///< b_s / a_s
  core::Interval interval{};                 ///< of the ratio
  double p = 1;                              ///< of the rank test, adjusted for all rows of the comparison
  double allowance = 0;  ///< allowed difference between runs: B / A or A / B up to 1 + this shows nothing
  /// Samples on each side without which no change can be significant among so many rows; 0: it has them.
  std::size_t needed_samples = 0;
  std::size_t needed_runs = 0;  ///< on each side, with which runs are compared; 0: they are
  Verdict verdict = Verdict::unsure;

  /// What it adds to the difference of the step.
  [[nodiscard]] double difference_s() const { return b_s - a_s; }
  /// The smallest change that samples that spread like these could have shown, as a share of A: 0.25 for
  /// B / A from 1.25 or up to 1 / 1.25. Nothing where no change could have been shown, however large.
  [[nodiscard]] std::optional<double> least_change() const;
};

struct Comparison {
  std::vector<ComparedTime> rows{};  ///< by configuration: step, phases, then parts, what adds most first
  std::vector<std::string> notes{};  ///< what differs between the records, and what has no counterpart
  /// Configurations that only the first record could time, "label (oom)", or that an unfinished second one
  /// lacks.
  std::vector<std::string> lost{};
  /// Whole steps that could not be compared because of times that the first record has.
  std::vector<std::string> untimed{};
  std::string a_name{}, b_name{};  ///< of the sides: files, or what differs within one: "fp32", "bf16"
};

/// Compares the configurations that both sides ran (see match_runs): the whole step and its phases by the
/// samples of plain steps, and per phase each part (options.parts, layers added up) by the device time that
/// it took in each observed step.
///
/// Steps of one run resemble each other more than steps of different runs: memory placement and load of the
/// machine differ. With enough runs on each side (several records, or a record that ran a configuration
/// several times) the medians of the runs are compared: kFewestRuns, and so many that the test of a row can
/// be significant among all whole steps, or among all parts. With fewer, steps are compared, and only ratios
/// beyond an allowance for the difference between runs are a change: options.restart, or three times the
/// spread (normalised MAD / median) of the steps or of kFewestRuns runs and more, whichever is most. Parts of
/// less than 5 % of the step are no change then, nor is anything of a processor of which other programs had
/// more than 5 % (fact 'others_share').
///
/// The verdict: SAME when the interval of the ratio of medians (bootstrap) lies within 1 +- same, of five
/// samples or more; where steps are compared it says that these runs do not differ, not that the next would
/// not. Else FASTER or SLOWER when the interval lies beyond the allowance and the Mann-Whitney test, adjusted
/// for the number of whole steps or of parts (Holm), is significant; else UNSURE.
///
/// A record of somebody else's program against ours: its recorded steps against our plain ones, and per phase
/// the parts that both models have (common_parts), and what is outside of kernels. Notes say what makes the
/// difference, and whether both do the same work.
///
/// Throws core::InputError when the records share no configuration, unless each side has one alone, or none
/// that both timed.
[[nodiscard]] Comparison compare(std::span<const record::Reader> a, std::span<const record::Reader> b,
                                 const CompareOptions& options);
/// Two configurations of one record. `runs`: two, by number from 1 or part of their label; `between`: a
/// setting of the configuration with two values, "dtype", whatever else differs being matched. Empty: the
/// only two, or the only setting that pairs all of them. Throws core::UsageError, naming what there is.
[[nodiscard]] Comparison compare_within(const record::Reader& record, const std::vector<std::string>& runs,
                                        const std::string& between, const CompareOptions& options);
/// Of one record each.
[[nodiscard]] Comparison compare(const record::Reader& a, const record::Reader& b,
                                 const CompareOptions& options);

/// The verdict on a ratio; `p` is adjusted.
[[nodiscard]] Verdict verdict_of(const ComparedTime& row, const CompareOptions& options);

/// For each configuration whose step both sides timed, a sentence with the verdict, both times, the interval
/// and, where it is UNSURE, the smallest change that could have been shown; then the parts that add most to
/// the difference. `confidence` is that of the comparison.
[[nodiscard]] std::vector<std::string> verdict_sentences(const Comparison& comparison, double confidence);

/// The whole steps that are SLOWER, and by more than `share`: whose interval lies above 1 + share. A `share`
/// below CompareOptions::same finds no step that is SAME.
[[nodiscard]] std::vector<ComparedTime> slower_steps(const Comparison& comparison, double share);

/// Sentences on what slower_steps cannot find: whole steps of which no change could be shown, however large,
/// and the largest change that the allowance hides, where that is more than `share`; with the number of runs
/// that would show it.
[[nodiscard]] std::vector<std::string> unseen_steps(const Comparison& comparison, double share);

}  // namespace rooflm::report
