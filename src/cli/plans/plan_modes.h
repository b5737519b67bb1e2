// Plans of more than one size: scaling curves, the largest that fits, the smallest cluster.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cli/plans/plan_options.h"
#include "cli/plans/plan_report.h"

namespace rooflm::cli {

/// What is planned, in the order of the options; deques, so that runs may point into them.
struct Plans {
  std::vector<perfmodel::Setting> settings;
  std::deque<perfmodel::PlanPoint> points;
  std::deque<perfmodel::Plan> plans;
  std::vector<PlannedRun> runs;
  std::vector<PlannedRun> searched;  ///< all that searches planned to the end, also beyond --top

  void add(perfmodel::PlanPoint point, const perfmodel::Setting& setting, perfmodel::Plan plan,
           std::string reason = "");
};

/// Calls add(point, setting) for all that the lists of options multiply to.
void for_each_point(const PlanOptions& options, const std::vector<perfmodel::Setting>& settings,
                    const std::function<void(perfmodel::PlanPoint, const perfmodel::Setting&)>& add);

/// Every combination of the options.
void plan_all(const PlanOptions& options, Plans& plans);
/// The best splits of --gpus.
void search_all(const PlanOptions& options, Plans& plans);
/// One plan, or the best split with --search, for each of --gpus, with speed-ups against the first. strong:
/// --global-batch (or that of the first) for all; weak: as much more as there are more GPUs.
void plan_scaling(const PlanOptions& options, Plans& plans);
/// The largest --batch, --seq or --layers that fits, and the next, which does not.
void plan_largest(const PlanOptions& options, Plans& plans);
/// The fewest GPUs with a split that fits, up to --gpus (65,536 when not given), and fewer, which do not fit.
void plan_smallest(const PlanOptions& options, Plans& plans);

}  // namespace rooflm::cli
