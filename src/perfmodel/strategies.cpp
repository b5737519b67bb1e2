// Each way to split a step alone: what it computes, what it sends, and from how many devices on sending takes
// longer.
#include "perfmodel/strategies.h"

#include <utility>

#include "core/error.h"

namespace rooflm::perfmodel {
namespace {

struct Strategy {
  const char* name;
  int compile::Sharding::*degree;
  int zero;
};

constexpr Strategy kStrategies[] = {
    {"dp", &compile::Sharding::data, 0},     {"zero1", &compile::Sharding::data, 1},
    {"zero3", &compile::Sharding::data, 3},  {"tp", &compile::Sharding::tensor, 0},
    {"pp", &compile::Sharding::pipeline, 0}, {"ep", &compile::Sharding::expert, 0},
    {"cp", &compile::Sharding::context, 0}};

/// Nothing where the step cannot be split so.
std::optional<StrategyPlan> planned(const Strategy& strategy, const PlanPoint& whole, const Setting& setting,
                                    int gpus) {
  StrategyPlan found{.name = strategy.name, .point = whole};
  compile::Sharding& sharding = found.point.step.sharding;
  sharding.*strategy.degree = gpus;
  sharding.zero = strategy.zero;
  // Experts are shared by data-parallel ranks.
  if (strategy.degree == &compile::Sharding::expert) sharding.data = gpus;
  fit_to_framework(sharding, setting.framework);
  const std::int64_t batch = whole.micro_batches;
  if (batch % sharding.data != 0) return std::nullopt;
  found.point.micro_batches = batch / sharding.data;
  try {
    found.plan = make_plan(found.point, setting);
  } catch (const core::UsageError&) {
    return std::nullopt;
  } catch (const core::Unavailable&) {
    return std::nullopt;
  }
  return found;
}

}  // namespace

double StrategyPlan::sent_bytes() const {
  double sum = 0;
  for (const auto& [kind, work] : plan.work) sum += work.sent_bytes;
  return sum;
}

std::optional<double> StrategyPlan::critical_tokens() const {
  if (point.step.sharding.data == 1 || point.step.sharding.expert > 1) return std::nullopt;
  const std::int64_t together = point.step.sharding.zero < 2 ? point.micro_batches : 1;
  return static_cast<double>(point.micro_batch * point.seq * together) / compute_per_communication();
}

std::vector<StrategyPlan> compare_strategies(const PlanPoint& whole, const Setting& setting, int gpus) {
  constexpr int kMost = 1 << 16;
  std::vector<StrategyPlan> found;
  for (const Strategy& strategy : kStrategies) {
    auto one = planned(strategy, whole, setting, gpus);
    if (!one) continue;
    for (int count = 2; count <= kMost && one->bound_from == 0; count *= 2) {
      const auto other = planned(strategy, whole, setting, count);
      if (!other) break;
      one->most = count;
      if (other->plan.communication_s > other->plan.compute_s) one->bound_from = count;
    }
    found.push_back(std::move(*one));
  }
  return found;
}

}  // namespace rooflm::perfmodel
