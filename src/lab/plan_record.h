// The simulated step of a plan as runs of a record, so that it has the timeline of measured ones.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perfmodel/plan.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Ops of a rank's timeline, and passes of a pipeline's: so much is drawn at once, and pages stay small.
inline constexpr std::size_t kMostPlanOps = 4000;
inline constexpr std::size_t kMostPlanPasses = 20'000;

/// Which ranks a stage of a plan stands for: "every rank", "stage 0", "stages 1 to 6".
std::string ranks_label(int stage, int stages);

/// Adds runs of the kind `record::kPlanKind` (rows.h): of a pipeline first one with the passes of its stages,
/// then one for each kind of rank with the ops of its program on lanes (compute, background, copy engine, one
/// per kind of link, host), what leaves the compute lane idle and why, and what its tensors take. Of long
/// steps the first two micro-batches and as many layers as kMostPlanOps allow are in it; the fact
/// `timeline_note` says so. Returns at which op the tensors of each kind of rank take most: "backward,
/// h.3/attention/qk". Throws as perfmodel::make_plan.
std::vector<std::string> record_plan(record::Writer& writer, const perfmodel::PlanPoint& point,
                                     const perfmodel::Setting& setting, const perfmodel::Plan& plan);

}  // namespace rooflm::lab
