// Whether the collectives of a step run beside its computation.
#include "train/overlap_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/names.h"
#include "core/statistics.h"
#include "core/units.h"

namespace rooflm::train {
namespace {

using engines::Order;

constexpr std::array<std::pair<Overlap, const char*>, 3> kNames = {
    {{Overlap::measured, "auto"}, {Overlap::on, "on"}, {Overlap::off, "off"}}};

/// In turn, so that both meet the same moments: lanes, program, program, lanes, ...
Order order_of(int step) {
  const bool first_is_lanes = step / 2 % 2 == 0;
  return (step % 2 == 0) == first_is_lanes ? Order::lanes : Order::program;
}

}  // namespace

std::string_view name_of(Overlap overlap) { return kNames.at(static_cast<std::size_t>(overlap)).second; }

Overlap parse_overlap(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [value, known_name] : kNames) {
    if (name == known_name) return value;
    known.emplace_back(known_name);
  }
  throw core::UsageError(core::unknown_name("--overlap", name, known));
}

OverlapTrial::OverlapTrial(engines::Engine& engine, ranks::Transport* ranks, Overlap wanted)
    : engine_(&engine), ranks_(ranks) {
  if (ranks == nullptr) return;
  // Stages of a pipeline may have no collectives where others have some.
  const bool has_choice =
      engine.can_run_beside() && ranks::most(*ranks, engine.has_collectives() ? 1 : 0) > 0;
  is_done_ = wanted != Overlap::measured || !has_choice;
  if (wanted == Overlap::off) result_.order = Order::program;
  engine.set_order(result_.order);
}

void OverlapTrial::begin_step() {
  if (!is_done_) engine_->set_order(order_of(step_));
}

void OverlapTrial::end_step(const engines::StepTimes& times) {
  if (is_done_) return;
  if (step_ >= kWarmup) (engine_->order() == Order::lanes ? lanes_s_ : program_s_).push_back(times.step_s);
  if (++step_ == kWarmup + 2 * kPairs) decide();
}

void OverlapTrial::decide() {
  is_done_ = true;
  const auto slowest = [this](const std::vector<double>& own) {
    return std::ranges::max(ranks::numbers(*ranks_, core::median(own)));
  };
  result_.lanes_s = slowest(lanes_s_);
  result_.program_s = slowest(program_s_);
  result_.order = result_.lanes_s < result_.program_s ? Order::lanes : Order::program;
  engine_->set_order(result_.order);
  engine_->forget_other_order();
}

std::string OverlapTrial::sentence() const {
  if (result_.lanes_s == 0) return {};
  return fmt::format("collectives beside computation: {} a step, one after the other {}: {}",
                     core::format_seconds(result_.lanes_s), core::format_seconds(result_.program_s),
                     result_.order == Order::lanes ? "beside" : "one after the other");
}

}  // namespace rooflm::train
