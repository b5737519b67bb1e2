// How an engine submits the ops of a step: in program order, as a recording, or with overlapped collectives.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engines/engine.h"
#include "program/groups.h"

namespace rooflm::engines {
namespace {

using program::Op;
using program::Phase;

double host_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

bool Engine::is_of_side_thread(const Op& op) {
  return op.lane == program::Lane::communication && op.phase != Phase::setup;
}

void Engine::submit(Observers observers) {
  std::size_t phase = 0;
  const bool is_on_device = stopwatch_->is_on_device();
  stopwatch_->mark(0);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    if (op.phase == Phase::setup) continue;
    require_to_go_on();
    if (op.phase != phases_[phase]) stopwatch_->mark(++phase);
    const bool is_exposed = !is_on_device && program::is_collective(op);
    const double begin = is_exposed ? host_s() : 0;
    run_op(i, observers);
    if (is_exposed) exposed_s_ += host_s() - begin;
  }
  if (!phases_.empty()) stopwatch_->mark(phases_.size());
}

/// Whether collectives of the step run on the side thread.
bool Engine::runs_side_thread(Observers observers) const {
  return order_ == Order::lanes && has_collectives_ && is_on_host() &&
         std::ranges::all_of(observers, [](const Observer* observer) { return observer->sees_lanes(); });
}

template <class Wait>
void Engine::wait_beside(Observers observers, Wait wait) {
  const double begin = host_s();
  wait();
  exposed_s_ += host_s() - begin;
  for (Observer* observer : observers) observer->on_waited();
}

/// As `submit`, but collectives go to the side thread; the step waits for them where Op::waits says so.
void Engine::submit_beside(Observers observers) {
  if (side_ == nullptr) {
    const auto run = [this](std::size_t op) {
      steps_[op].kernel({.in = steps_[op].in, .out = steps_[op].out});
    };
    side_ = std::make_unique<SideThread>(run, program_.ops.size());
  }
  side_->begin();
  std::size_t phase = 0;
  stopwatch_->mark(0);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    if (op.phase == Phase::setup) continue;
    require_to_go_on();
    if (is_of_side_thread(op)) {
      prepare(i, observers);
      side_->submit(i);
      continue;
    }
    if (op.phase != own_phases_[phase]) stopwatch_->mark(++phase);
    for (const int wait : op.waits) {
      const auto before = static_cast<std::size_t>(wait);
      if (is_of_side_thread(program_.ops[before])) wait_beside(observers, [&] { side_->wait_for(before); });
    }
    run_op(i, observers);
  }
  wait_beside(observers, [&] { side_->wait(); });
  if (!own_phases_.empty()) stopwatch_->mark(own_phases_.size());
  for (Observer* observer : observers) observer->on_beside(program_, side_->ops());
}

/// `with_marks` also takes the time after each op. All marks but the first and the last are taken on a side
/// branch: on the op's own stream a mark takes the device 4 us between two ops, and 20 us around a short op.
void Engine::submit_recorded(bool with_marks, const std::function<void(std::size_t)>& submitted) {
  const std::vector<Phase>& phases = with_marks ? phases_ : recorded_phases_;
  std::size_t phase = 0;
  stopwatch_->mark(0);
  if (with_marks) op_ends_->mark(0);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    if (op.phase == Phase::setup) continue;
    const bool is_timed = with_marks || !runs_beside(op);
    if (is_timed && op.phase != phases[phase]) stopwatch_->mark_aside(++phase);
    run_op(i, {});
    if (with_marks) op_ends_->mark_aside(i + 1);
    submitted(i);
  }
  if (!phases.empty()) stopwatch_->mark(phases.size());
}

}  // namespace rooflm::engines
