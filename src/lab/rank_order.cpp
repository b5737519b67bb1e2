// Whether the collectives of a measured run are beside its computation.
#include "lab/rank_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "lab/devices.h"
#include "lab/notes.h"
#include "train/overlap_trial.h"

namespace rooflm::lab {

void choose_order(engines::Engine& engine, const Point& point, const Ranks& ranks, std::int64_t run,
                  record::Writer& record, const std::function<void(int step)>& before_step) {
  train::OverlapTrial trial(engine, ranks.get(), point.collectives);
  for (int step = 0; !trial.is_done(); ++step) {
    before_step(step);
    trial.begin_step();
    trial.end_step(engine.run());
  }
  const std::string text = trial.sentence();
  if (text.empty()) return;
  note("  {}", text);
  const auto& tried = trial.measured();
  const auto in_order =
      std::ranges::find(tried, engines::Order::program, &train::OverlapTrial::Candidate::order);
  if (in_order == tried.end()) return;
  record.add(run, record::Fact{.key = "overlap_gain",
                               .value = in_order->step_s / trial.result().step_s,
                               .unit = "times",
                               .text = text});
}

std::optional<record::Fact> exposed_fact(const Point& point, std::span<const engines::StepTimes> steps) {
  if (point.step.sharding.ranks() == 1 || !is_host(point.device) || steps.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (const engines::StepTimes& times : steps) seconds.push_back(times.exposed_s);
  return record::Fact{.key = "exposed_s", .value = core::median(seconds), .unit = "s", .text = {}};
}

}  // namespace rooflm::lab
