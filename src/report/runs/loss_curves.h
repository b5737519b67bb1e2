// Training losses of several runs compared: their differences, and the cost of equal losses.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/model/run_data.h"
#include "report/tables/table.h"

namespace rooflm::report {

/// Loss of each step that was logged, in their order.
struct LossCurve {
  std::string name;
  double tokens_per_step = 0;
  double step_s = 0;           ///< of all steps of the process, waiting included; 0 where it is not known
  std::vector<double> steps;   ///< counted from 1
  std::vector<double> losses;  ///< nats per token
};

/// Curves of the training runs that logged their losses, named by their files.
[[nodiscard]] std::vector<LossCurve> loss_curves(const RecordSet& set);

/// Means over ten equal stretches of the tokens that all curves have seen: a row per stretch and curve,
/// except the first, with the first for comparison. Empty with fewer than two curves.
[[nodiscard]] Table loss_table(std::span<const LossCurve> curves);

/// A row per curve but the first: the tokens, and the seconds, after which it and the first reach the higher
/// of their two last losses, smoothed by the mean of the last twentieth of the tokens that both have seen.
[[nodiscard]] Table equal_loss_table(std::span<const LossCurve> curves);

/// Of both tables.
[[nodiscard]] std::vector<Column> columns_of_losses();

}  // namespace rooflm::report
