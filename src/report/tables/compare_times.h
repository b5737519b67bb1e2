// The times of the runs of a match: of steps and phases, and of the parts of a step. Private to the room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/runs/match_runs.h"
#include "report/tables/compare.h"
#include "report/tables/compare_rows.h"

namespace rooflm::report {

/// What a step takes beyond all of its kernels.
inline constexpr std::string_view kOutsideKernels = "outside kernels";

/// By subject, in the order in which subjects are shown.
class Times {
 public:
  /// Those of the run that is added now.
  std::vector<double>& of(const std::string& subject) {
    const auto [entry, is_new] = index_.try_emplace(subject, times_.size());
    if (is_new) times_.emplace_back(subject, Runs{});
    Runs& runs = times_[entry->second].second;
    runs.resize(run_count_);
    return runs.back();
  }
  void next_run() { ++run_count_; }
  [[nodiscard]] const Runs* find(const std::string& subject) const {
    const auto entry = index_.find(subject);
    return entry == index_.end() ? nullptr : &times_[entry->second].second;
  }
  [[nodiscard]] auto begin() const { return times_.begin(); }
  [[nodiscard]] auto end() const { return times_.end(); }

 private:
  std::vector<std::pair<std::string, Runs>> times_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t run_count_ = 0;
};

/// What both sides can be taken apart by, where that is left open: ops, where those that both have take
/// nearly all of the time of either; else blocks; kernels, where neither has ops.
Parts parts_of_both(const RunMatch& match, Parts asked);

/// `parts`: not Parts::automatic. `kinds`: parts are of ops of these kinds alone; empty: of all.
Times times_of(const std::vector<FoundRun>& runs, bool is_across, Parts parts,
               const std::vector<std::string>& kinds);

}  // namespace rooflm::report
