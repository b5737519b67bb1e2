// From the time of a step to a run: tokens, days, GPU-hours, money, energy, and what failures cost.
#pragma once

#include <optional>
#include <string>

#include "perfmodel/plan.h"

namespace rooflm::perfmodel {

/// What turns a step into a run.
struct RunBudget {
  double tokens = 0;              ///< 0: 20 per parameter (Hoffmann et al., 2022)
  double price_per_gpu_hour = 0;  ///< 0: not given
  std::string currency{};         ///< of the price, as it was typed
  double mtbf_s = 0;              ///< of one GPU; 0: nothing fails
  double checkpoint_s = 0;        ///< to write one; 0: checkpoint_seconds()
  double restart_s = 300;         ///< from a failure to the first step
};

/// Of a run with failures (Daly, "A higher order estimate of the optimum checkpoint interval for restart
/// dumps", 2006).
struct Goodput {
  double mtbf_s = 0;        ///< of all GPUs together
  double checkpoint_s = 0;  ///< to write one
  double interval_s = 0;    ///< of work from one checkpoint to the next, which costs least
  double share = 0;         ///< of the time that is work which lasts
};

/// With a cluster that fails every M, checkpoints of C and restarts of R seconds:
///   interval = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C where C < 2 M, else M
///   share    = interval / (M e^(R/M) (e^((interval + C)/M) - 1))
Goodput goodput(double mtbf_s, double checkpoint_s, double restart_s);

/// Assumed: what a rank keeps, at 1 GB/s to storage; copies of the same are written once.
double checkpoint_seconds(const PlanPoint& point, const Plan& plan);

/// Numbers of a run; with those of a step at the ends of its interval.
struct RunCost {
  double tokens = 0;
  double seconds = 0, low_s = 0, high_s = 0;  ///< failures included
  double gpu_hours = 0;
  std::optional<double> price{};
  std::optional<double> energy_kwh{};  ///< at the datasheet's power at all times: an upper bound of the GPUs
  std::optional<Goodput> goodput{};
};
RunCost run_cost(const PlanPoint& point, const Setting& setting, const Plan& plan, const RunBudget& budget);

}  // namespace rooflm::perfmodel
