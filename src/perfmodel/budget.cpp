// From the time of a step to a run: tokens, days, GPU-hours, money, energy, and what failures cost.
#include "perfmodel/budget.h"

#include <algorithm>
#include <cmath>

namespace rooflm::perfmodel {
namespace {

constexpr double kChinchillaTokens = 20;  ///< per parameter
constexpr double kHour = 3600;
constexpr double kStorageBytePerS = 1e9;
constexpr double kMasterBytes = 4;  ///< of a weight, as it is saved

}  // namespace

Goodput goodput(double mtbf_s, double checkpoint_s, double restart_s) {
  const double m = mtbf_s;
  const double c = checkpoint_s;
  Goodput result{.mtbf_s = m, .checkpoint_s = c};
  const double ratio = c / (2 * m);
  result.interval_s = c < 2 * m ? std::sqrt(2 * c * m) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - c : m;
  const double lasts_s = m * std::exp(restart_s / m) * std::expm1((result.interval_s + c) / m);
  result.share = std::isfinite(lasts_s) && lasts_s > 0 ? result.interval_s / lasts_s : 0;
  return result;
}

double checkpoint_seconds(const PlanPoint& point, const Plan& plan) {
  const compile::Sharding& sharding = point.step.sharding;
  const double copies = sharding.zero > 0 ? 1 : sharding.data_ranks();
  // The role of weights has copies in the compute dtype, too, and what is gathered: neither is saved.
  const double weight_bytes = kMasterBytes * static_cast<double>(model::parameter_count(point.config));
  return (weight_bytes / point.gpus() + plan.memory.optimizer_bytes / copies) / kStorageBytePerS;
}

RunCost run_cost(const PlanPoint& point, const Setting& setting, const Plan& plan, const RunBudget& budget) {
  RunCost cost;
  cost.tokens = budget.tokens > 0
                    ? budget.tokens
                    : kChinchillaTokens * static_cast<double>(model::parameter_count(point.config));
  const double gpus = point.gpus();
  double share = 1;
  if (budget.mtbf_s > 0) {
    const double checkpoint_s =
        budget.checkpoint_s > 0 ? budget.checkpoint_s : checkpoint_seconds(point, plan);
    cost.goodput = goodput(budget.mtbf_s / gpus, checkpoint_s, budget.restart_s);
    share = cost.goodput->share;
  }
  const double steps = cost.tokens / static_cast<double>(point.tokens());
  cost.seconds = steps * plan.step_s / share;
  cost.low_s = steps * plan.low_s / share;
  cost.high_s = steps * plan.high_s / share;
  cost.gpu_hours = cost.seconds * gpus / kHour;
  if (budget.price_per_gpu_hour > 0) cost.price = cost.gpu_hours * budget.price_per_gpu_hour;
  if (setting.device.power_w) cost.energy_kwh = *setting.device.power_w / 1e3 * cost.gpu_hours;
  return cost;
}

}  // namespace rooflm::perfmodel
