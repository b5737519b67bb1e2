// How the collectives of a step run: beside its computation or not, and by which means of the device.
#include "train/overlap_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/statistics.h"
#include "core/units.h"

namespace rooflm::train {
namespace {

using backends::CollectiveWay;
using engines::Order;

std::string describe(const OverlapTrial::Candidate& candidate) {
  const std::string order =
      candidate.order == Order::lanes ? "overlapped with computation" : "one after the other";
  return candidate.way == CollectiveWay::usual
             ? order
             : fmt::format("{} ({})", order, backends::name_of(candidate.way));
}

}  // namespace

OverlapTrial::OverlapTrial(engines::Engine& engine, ranks::Transport* ranks, const CollectiveWishes& wishes)
    : engine_(&engine), ranks_(ranks) {
  if (ranks == nullptr) return;
  const std::vector<CollectiveWay> here = engine.store().backend().collective_ways();
  // Stages of a pipeline may have no collectives where others have some.
  const bool has_collectives = ranks::most(*ranks, engine.has_collectives() ? 1 : 0) > 0;
  const bool can_run_beside = engine.can_run_beside() && has_collectives;
  result_ = {.order = wishes.overlap == Overlap::off ? Order::program : Order::lanes,
             .way = wishes.way.value_or(CollectiveWay::usual)};
  std::vector<Order> orders = {result_.order};
  if (wishes.overlap == Overlap::measured && can_run_beside) orders = {Order::lanes, Order::program};
  std::vector<CollectiveWay> ways = {result_.way};
  if (!wishes.way && has_collectives) ways = here;
  for (const CollectiveWay way : ways) {
    for (const Order order : orders) {
      // Ways that nobody asked for are tried for what runs beside: that is what they are for.
      if (way == result_.way || order == Order::lanes) candidates_.push_back({.order = order, .way = way});
    }
  }
  is_done_ = candidates_.size() < 2;
  seconds_.resize(candidates_.size());
  use(result_);
}

void OverlapTrial::use(const Candidate& candidate) {
  engine_->set_order(candidate.order);
  engine_->set_way(candidate.way);
}

/// There and back again, so that all meet the same moments: 0 1 2, 2 1 0, ...
std::size_t OverlapTrial::turn() const {
  const auto count = static_cast<int>(candidates_.size());
  const int place = step_ % count;
  return static_cast<std::size_t>(step_ / count % 2 == 0 ? place : count - 1 - place);
}

void OverlapTrial::begin_step() {
  if (!is_done_) use(candidates_[turn()]);
}

void OverlapTrial::end_step(const engines::StepTimes& times) {
  if (is_done_) return;
  const auto count = static_cast<int>(candidates_.size());
  if (step_ >= kWarmup * count) seconds_[turn()].push_back(times.step_s);
  if (++step_ == (kWarmup + kRounds) * count) decide();
}

void OverlapTrial::decide() {
  is_done_ = true;
  measured_ = candidates_;
  for (std::size_t i = 0; i < measured_.size(); ++i)
    measured_[i].step_s = std::ranges::max(ranks::numbers(*ranks_, core::median(seconds_[i])));
  result_ = *std::ranges::min_element(measured_, {}, [](const Candidate& one) {
    return std::tuple(one.step_s, one.way, one.order == Order::lanes);
  });
  use(result_);
  engine_->forget_others();
}

std::string OverlapTrial::sentence() const {
  if (measured_.empty()) return {};
  std::string text;
  for (const Candidate& one : measured_) {
    text += text.empty()
                ? fmt::format("collectives {}: {} per step", describe(one), core::format_seconds(one.step_s))
                : fmt::format(", {}: {}", describe(one), core::format_seconds(one.step_s));
  }
  return fmt::format("{}; kept: {}", text, describe(result_));
}

}  // namespace rooflm::train
