// Each way to split a step alone: what it computes, what it sends, and from how many devices on sending takes
// longer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "perfmodel/plan.h"

namespace rooflm::perfmodel {

/// A step on some devices that are all used in one way, as make_plan plans it.
struct StrategyPlan {
  std::string_view name{};  ///< dp, zero1, zero3, tp, pp, ep, cp
  PlanPoint point{};
  Plan plan{};
  /// The first power of two of devices on which a rank's collectives take longer than what it computes, of
  /// the same step; 0: none up to `most`, the largest number over which the step can be split so.
  std::int64_t bound_from = 0, most = 1;

  [[nodiscard]] double flop_per_gpu() const { return plan.executed_flop / point.gpus(); }
  /// That a rank of the slowest stage sends in a step.
  [[nodiscard]] double sent_bytes() const;
  [[nodiscard]] double compute_per_communication() const { return plan.compute_s / plan.communication_s; }
  /// Tokens at which sending takes as long as computing: of a rank in a step, or with ZeRO 2 and 3, which
  /// send for each micro-batch, in one of these. Only of what sends the same bytes whatever the tokens.
  [[nodiscard]] std::optional<double> critical_tokens() const;
};

/// Those that the model and the step allow on so many devices. `whole`: the step on one device, with all its
/// micro-batches.
std::vector<StrategyPlan> compare_strategies(const PlanPoint& whole, const Setting& setting, int gpus);

}  // namespace rooflm::perfmodel
