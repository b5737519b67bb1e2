// Checks the laws of records. Private to the room.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/reader.h"
#include "record/rows.h"
#include "report/verify/verify.h"

namespace rooflm::report {

/// The allowed difference of a measured time: clock resolution and what runs between two clock readings.
struct Slack {
  double share = 0;     ///< of what it is held against
  double absolute = 0;  ///< in the unit of both
  [[nodiscard]] double of(double value) const { return share * std::abs(value) + absolute; }
};

/// Two clocks that are read one after the other.
inline constexpr Slack kClockNoise{.share = 0.05, .absolute = 2e-6};
/// The part of a step outside its phases and ops: submitting the first, waiting for the last.
inline constexpr Slack kOutsideOps{.share = 0.05, .absolute = 50e-6};
/// Sums of doubles in another order.
inline constexpr Slack kRounding{.share = 1e-9};
inline constexpr Slack kExact{};

/// Checks the numbers of one run (or of the record itself) against laws, and keeps each law's worst
/// violation.
class LawBook {
 public:
  LawBook(std::int64_t run, std::string label) : run_(run), label_(std::move(label)) {}

  // `what` names the subject of the numbers ("step 12, forward"): a text, or a function that makes one and is
  // called only if the law is violated.

  /// found <= bound + slack.
  template <class What>
  void at_most(std::string_view law, const What& what, double found, double bound, std::string_view unit,
               Slack slack) {
    hold(law, what, found, bound, unit, found - bound - slack.of(bound));
  }
  /// |found - wanted| <= slack.
  template <class What>
  void equal(std::string_view law, const What& what, double found, double wanted, std::string_view unit,
             Slack slack) {
    hold(law, what, found, wanted, unit, std::abs(found - wanted) - slack.of(wanted));
  }
  /// found > 0 and finite.
  template <class What>
  void positive(std::string_view law, const What& what, double found, std::string_view unit) {
    hold(law, what, found, 0, unit, found > 0 && std::isfinite(found) ? 0 : 1);
  }
  /// found >= 0 and finite.
  template <class What>
  void not_negative(std::string_view law, const What& what, double found, std::string_view unit) {
    hold(law, what, found, 0, unit, found >= 0 && std::isfinite(found) ? 0 : 1);
  }

  /// The law applies, but the value to compare with is not a limit.
  void not_judged(std::string_view law, const std::string& why) {
    LawResult& result = entry(law);
    ++result.not_judged;
    result.why_not = why;
  }

  [[nodiscard]] std::vector<LawResult> take() { return std::move(results_); }

 private:
  /// `excess`: by how much the tolerance is exceeded; not a number counts as a violation.
  template <class What>
  void hold(std::string_view law, const What& what, double found, double bound, std::string_view unit,
            double excess) {
    LawResult& result = entry(law);
    ++result.checked;
    if (excess <= 0) return;
    if constexpr (std::invocable<What>) {
      keep_worst(result, what(), found, bound, unit, excess);
    } else {
      keep_worst(result, what, found, bound, unit, excess);
    }
  }
  LawResult& entry(std::string_view law);
  static void keep_worst(LawResult& result, const std::string& what, double found, double bound,
                         std::string_view unit, double excess);

  std::int64_t run_;
  std::string label_;
  std::vector<LawResult> results_;
};

/// Kernel time per step of each op, without gaps between kernels: medians over traced steps in which no
/// kernels overlapped.
std::map<std::int64_t, double> kernel_seconds(const record::Reader& record, const record::Run& run);
/// Device time per step of each op, by op: medians over the observed steps. In a replay one timestamp
/// separates two ops. If so few steps were observed that a late timestamp may be the median, the kernel times
/// are used instead, if known.
std::map<std::int64_t, double> op_seconds(const record::Reader& record, const record::Run& run);
/// Ceilings: positive, within their intervals, matmuls below the instruction peak of their dtype.
void check_ceilings(const record::Reader& record, LawBook& laws);
/// Ops against the instruction peak of the run's dtype, where there is one: needed matmul FLOP / peak is no
/// more than the op's time.
void check_instruction_peaks(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Times of phases and ops: parts against wholes, and how often each op ran.
void check_times(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Work of ops against what the run says of itself, and times against roofs.
void check_work(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Memory events against themselves, the tensors and the plan.
void check_memory(const record::Reader& record, const record::Run& run, LawBook& laws);
/// What views, page and bench show of the run: whole executions, shares of one total, nothing that was not
/// measured.
void check_views(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Activities of any program: they end after they start, and have lanes and names of the run.
void check_activities(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Traced steps: each moment has one kernel, several, or none; kernels lie within their step and are those
/// that the ops launch.
void check_device(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Hardware counters against the ops they are of and the passes that read them; gauges and energy.
void check_counters(const record::Reader& record, const record::Run& run, LawBook& laws);
/// A training run against its log: a row and a sample for each of its steps, and the loss of the last one.
void check_training(const record::Reader& record, const record::Run& run, LawBook& laws);
/// Rows of studies that are no training steps: rates against times and work.
void check_cells(const record::Reader& record, LawBook& laws);

}  // namespace rooflm::report
