// One rank's step in time: ops on lanes, with waits.
#include "perfmodel/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <stdexcept>

namespace rooflm::perfmodel {
namespace {

using program::Lane;
using program::Op;
using program::Phase;
using program::Program;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kInstant = 1e-15;

/// The ops of one lane, and the one that runs.
struct Queue {
  std::vector<std::size_t> ops{};
  std::size_t next = 0;
  bool runs = false;
  double left_s = 0;  ///< of the op that runs, at full speed
};

class Simulation {
 public:
  Simulation(const Program& program, std::span<const double> seconds, const SimulationOptions& options)
      : program_(&program), seconds_(seconds), options_(options) {
    timeline_.spans.resize(program.ops.size());
    done_.assign(program.ops.size(), false);
    compute_before_.resize(program.ops.size());
    submitted_s_.resize(program.ops.size());
    double host_s = 0;
    std::size_t compute = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      compute_before_[i] = compute;
      if (op.phase == Phase::setup) {
        done_[i] = true;
        continue;
      }
      host_s += options.launch_host_s;
      submitted_s_[i] = host_s;
      queues_.at(static_cast<std::size_t>(op.lane)).ops.push_back(i);
      if (op.lane == Lane::compute) ++compute;
    }
  }

  Timeline run() {
    for (;;) {
      start_what_can();
      const double step = time_to_next_event();
      if (step == kNever) break;
      advance(step);
    }
    for (const Queue& queue : queues_) {
      if (queue.next < queue.ops.size()) throw std::logic_error("a program whose ops wait for each other");
    }
    timeline_.step_s = now_;
    return std::move(timeline_);
  }

 private:
  Queue& queue(Lane lane) { return queues_.at(static_cast<std::size_t>(lane)); }

  /// Whether everything but the host is ready for the op.
  [[nodiscard]] bool is_ready(std::size_t op) const {
    const Op& what = program_->ops[op];
    if (what.lane != Lane::compute && computed_ < compute_before_[op]) return false;
    return std::ranges::all_of(what.waits, [&](int wait) { return done_[static_cast<std::size_t>(wait)]; });
  }

  void start_what_can() {
    host_until_ = kNever;
    for (Queue& lane : queues_) {
      if (lane.runs || lane.next >= lane.ops.size()) continue;
      const std::size_t op = lane.ops[lane.next];
      if (!is_ready(op)) continue;
      if (submitted_s_[op] > now_ + kInstant) {
        host_until_ = std::min(host_until_, submitted_s_[op]);
        continue;
      }
      lane.runs = true;
      lane.left_s = seconds_[op];
      timeline_.spans[op].start_s = now_;
    }
  }

  [[nodiscard]] bool talks() { return queue(Lane::communication).runs || queue(kNetworkLane).runs; }

  [[nodiscard]] double speed(Lane lane) {
    if (lane == Lane::background && queue(Lane::compute).runs) return 0;
    if (lane != Lane::compute && lane != Lane::background) return 1;
    if (!talks()) return 1;
    const Queue& own = queue(lane);
    const program::Work work = program_->ops[own.ops[own.next]].def->work;
    const bool is_matmul = work == program::Work::matmul || work == program::Work::attention;
    return 1 / (is_matmul ? options_.matmul_slowdown : options_.other_slowdown);
  }

  [[nodiscard]] double time_to_next_event() {
    double step = host_until_ - now_;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      if (!queues_.at(i).runs) continue;
      const double rate = speed(static_cast<Lane>(i));
      if (rate > 0) step = std::min(step, queues_.at(i).left_s / rate);
    }
    return step;
  }

  void account(double step) {
    if (talks()) timeline_.communication_s += step;
    const Lane active = queue(Lane::compute).runs ? Lane::compute : Lane::background;
    if (queue(active).runs) {
      const double rate = speed(active);
      timeline_.busy_s += step * rate;
      timeline_.slowed_s += step * (1 - rate);
    } else if (talks()) {
      timeline_.exposed_s += step;
      note_idle(step, IdleCause::exposed_communication);
    } else if (host_until_ != kNever) {
      timeline_.host_s += step;
      note_idle(step, IdleCause::host);
    } else {
      timeline_.waiting_s += step;
      note_idle(step, IdleCause::waiting);
    }
  }

  void note_idle(double step, IdleCause cause) {
    if (!options_.keeps_idle || step <= kInstant) return;
    std::vector<IdleSpan>& idle = timeline_.idle;
    const bool goes_on = !idle.empty() && idle.back().cause == cause && now_ - idle.back().end_s <= kInstant;
    if (!goes_on) idle.push_back({.start_s = now_, .end_s = now_, .cause = cause});
    idle.back().end_s = now_ + step;
  }

  void advance(double step) {
    account(step);
    std::array<double, program::kLanes> rates{};
    for (std::size_t i = 0; i < queues_.size(); ++i)
      if (queues_.at(i).runs) rates.at(i) = speed(static_cast<Lane>(i));
    now_ += step;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      Queue& lane = queues_.at(i);
      if (!lane.runs || rates.at(i) == 0) continue;
      lane.left_s -= step * rates.at(i);
      if (lane.left_s > kInstant) continue;
      const std::size_t op = lane.ops[lane.next++];
      lane.runs = false;
      done_[op] = true;
      timeline_.spans[op].end_s = now_;
      if (static_cast<Lane>(i) == Lane::compute) ++computed_;
    }
  }

  const Program* program_;
  std::span<const double> seconds_;
  SimulationOptions options_;
  std::array<Queue, program::kLanes> queues_{};
  std::vector<bool> done_;
  std::vector<std::size_t> compute_before_;  ///< by op: ops of `compute` before it
  std::vector<double> submitted_s_;          ///< by op: when the host is done with it
  std::size_t computed_ = 0;                 ///< ops of `compute` that are done
  double now_ = 0;
  double host_until_ = kNever;
  Timeline timeline_;
};

}  // namespace

std::string_view name_of(IdleCause cause) {
  switch (cause) {
    case IdleCause::exposed_communication:
      return "exposed communication";
    case IdleCause::host:
      return "host";
    case IdleCause::waiting:
      return "waiting";
  }
  return "";
}

Timeline simulate(const Program& program, std::span<const double> seconds, const SimulationOptions& options) {
  if (seconds.size() != program.ops.size()) throw std::logic_error("simulate wants the seconds of each op");
  return Simulation(program, seconds, options).run();
}

}  // namespace rooflm::perfmodel
