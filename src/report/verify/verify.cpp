// Holding a run record against itself.
#include "report/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

/// A record that says that it is finished has no run that goes on.
void check_status(const record::Reader& record, LawBook& laws) {
  if (!record.is_complete()) return;
  for (const record::Run& run : record.runs()) {
    laws.equal("a finished record has no running run", run.label, run.status == "running" ? 1 : 0, 0, "runs",
               kExact);
  }
}

}  // namespace

LawResult& LawBook::entry(std::string_view law) {
  const auto found = std::ranges::find(results_, law, &LawResult::law);
  if (found != results_.end()) return *found;
  return results_.emplace_back(LawResult{.run = run_, .label = label_, .law = std::string(law)});
}

void LawBook::keep_worst(LawResult& result, const std::string& what, double found, double bound,
                         std::string_view unit, double excess) {
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  const double share = std::isnan(excess) || bound == 0 ? kEndless : excess / std::abs(bound);
  if (result.violated++ > 0 && share <= result.excess) return;
  result.what = what;
  result.found = found;
  result.bound = bound;
  result.unit = unit;
  result.excess = share;
}

std::vector<LawResult> verify(const record::Reader& record) {
  LawBook whole(0, "");
  check_ceilings(record, whole);
  check_status(record, whole);
  check_cells(record, whole);
  std::vector<LawResult> results = whole.take();
  for (const record::Run& run : record.runs()) {
    LawBook laws(run.id, run.label);
    check_times(record, run, laws);
    check_work(record, run, laws);
    check_instruction_peaks(record, run, laws);
    check_memory(record, run, laws);
    check_views(record, run, laws);
    check_activities(record, run, laws);
    check_device(record, run, laws);
    check_counters(record, run, laws);
    check_training(record, run, laws);
    std::ranges::move(laws.take(), std::back_inserter(results));
  }
  return results;
}

bool all_hold(std::span<const LawResult> results) {
  return std::ranges::none_of(results, [](const LawResult& result) { return result.violated > 0; });
}

}  // namespace rooflm::report
