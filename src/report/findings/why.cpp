// Why ops take longer than they need.
#include "report/findings/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/statistics.h"
#include "report/model/counted.h"
#include "report/model/traced_kernels.h"
#include "report/model/work_figures.h"
#include "report/runs/match_runs.h"

namespace rooflm::report {
namespace {

/// What the device can do at best.
struct Best {
  std::map<std::string, double> matmul_flop_per_s;  ///< by dtype
  std::optional<double> dram_byte_per_s, l2_byte_per_s;
  std::optional<double> clock_share;  ///< of the highest clock, while steps ran
};

Best best_of(const RunData& run) {
  Best best;
  const auto [rates, bandwidths] = roof_lines(run);
  for (const RoofLine& rate : rates) {
    if (!rate.name.starts_with("matmul")) continue;
    double& known = best.matmul_flop_per_s[rate.name.substr(rate.name.rfind(' ') + 1)];
    known = std::max(known, rate.value);
  }
  for (const RoofLine& line : bandwidths) {
    if (line.name == "DRAM") best.dram_byte_per_s = line.value;
    if (line.name == "L2") best.l2_byte_per_s = line.value;
  }
  std::vector<double> clocks;
  for (const record::Gauge& gauge : run.gauges) {
    if (gauge.name == "sm_clock_hz") clocks.push_back(gauge.value);
  }
  const auto highest = run.number("sm_clock_max_hz");
  if (!clocks.empty() && highest && *highest > 0) {
    best.clock_share = std::min(1.0, core::median(clocks) / *highest);
  }
  return best;
}

/// What is known of the kernels of one op, per step.
struct OpKernels {
  double seconds = 0, tail_s = 0, longest_s = 0;
  double charged_s = 0;  ///< its part of a step as the engine runs it, of all_s that its kernels take there
  double all_s = 0;
  bool has_waves = false;
  std::optional<double> occupancy, waves;
};

/// Of steps in which nothing ran beside anything else, where there are some: those are like observed ones.
std::map<std::int64_t, OpKernels> op_kernels_of(const TracedKernels& traced) {
  const std::size_t in_order = traced.times().count(kInOrder);
  const std::string_view kind = in_order > 0 ? kInOrder : kTraced;
  const auto steps = static_cast<double>(in_order > 0 ? in_order : traced.steps());
  std::map<std::int64_t, OpKernels> ops;
  for (const TracedKernel& kernel : traced.all()) {
    if (kernel.op == nullptr) continue;
    OpKernels& op = ops[kernel.op->op.op];
    if (kernel.step_kind == kTraced) {
      op.charged_s += kernel.charged_s() / static_cast<double>(traced.steps());
      op.all_s += kernel.seconds() / static_cast<double>(traced.steps());
    }
    if (kernel.step_kind != kind) continue;
    op.seconds += kernel.seconds() / steps;
    if (kernel.launch->waves) {
      op.tail_s += tail_share(*kernel.launch) * kernel.seconds() / steps;
      op.has_waves = true;
    }
    if (kernel.seconds() <= op.longest_s) continue;
    op.longest_s = kernel.seconds();
    op.occupancy = kernel.launch->occupancy;
    op.waves = kernel.launch->waves;
  }
  return ops;
}

/// What an op needs at least, and of what.
struct Need {
  Cause cause = Cause::latency;
  double seconds = 0;
  void consider(Cause what, std::optional<double> amount, std::optional<double> per_s) {
    const double needed_s = amount && per_s && *per_s > 0 ? *amount / *per_s : 0;
    if (needed_s <= seconds) return;
    cause = what;
    seconds = needed_s;
  }
};

Need need_of(const RunData& run, const TimedOp& op, const Counted* counted, const Best& best) {
  Need need;
  if (counted == nullptr) {
    need.consider(op.bound.starts_with("matmul") ? Cause::tensor : Cause::dram, op.roof_s, 1.0);
    // The roof lets caches hold what fits. What a kernel that nobody counted took is explained by memory
    // first.
    need.consider(Cause::dram, static_cast<double>(op.op.bytes_read + op.op.bytes_written),
                  best.dram_byte_per_s);
    return need;
  }
  auto rate = best.matmul_flop_per_s.find(op.op.dtype);
  if (rate == best.matmul_flop_per_s.end()) rate = best.matmul_flop_per_s.find(run.setting("dtype"));
  if (rate != best.matmul_flop_per_s.end() && op.op.matmul_flop > 0) {
    need.consider(Cause::tensor, counted->flop(), rate->second);
  }
  need.consider(Cause::dram, counted->dram_bytes(), best.dram_byte_per_s);
  need.consider(Cause::l2, counted->value("l2_bytes"), best.l2_byte_per_s);
  return need;
}

Why explain_time(const RunData& run, const TimedOp& op, const Counted* counted, const OpKernels* kernels,
                 const Best& best) {
  Why why;
  why.is_counted = counted != nullptr;
  // Links bound what ranks send each other, and no ceiling here is a link's.
  const bool talks = is_communication(op);
  // Kernels of recorded programs run beside each other: what they take of a step adds up, durations do not.
  const bool is_of_others = is_foreign(run.run);
  why.time_s = op.time->device_s;
  if (kernels != nullptr && kernels->all_s > 0) {
    if (is_of_others) why.time_s = kernels->charged_s;
    if (!is_of_others && talks) why.time_s *= kernels->charged_s / kernels->all_s;
  }
  const double shown = kernels == nullptr || kernels->all_s <= 0 ? 1 : kernels->charged_s / kernels->all_s;
  double left_s = why.time_s;
  const auto take = [&](Cause cause, double seconds) {
    const double taken_s = std::clamp(seconds, 0.0, left_s);
    why.cause_s.at(static_cast<std::size_t>(cause)) = taken_s;
    left_s -= taken_s;
  };
  const Need need = talks ? Need{} : need_of(run, op, counted, best);
  take(need.cause, need.seconds);
  if (kernels != nullptr) {
    why.has_launch = !is_of_others;
    const double scale = op.time->device_s > 0 ? why.time_s / op.time->device_s : 1;
    if (why.has_launch) take(Cause::launch, why.time_s - kernels->seconds * scale);
    why.has_tail = kernels->has_waves && !talks;
    if (why.has_tail) take(Cause::tail, kernels->tail_s * (is_of_others ? shown : 1));
    why.occupancy = kernels->occupancy;
    why.waves = kernels->waves;
  }
  if (best.clock_share) {
    why.has_clock = true;
    if (need.cause == Cause::tensor) take(Cause::clock, why.time_s * (1 - *best.clock_share));
  }
  take(talks ? Cause::communication : Cause::latency, left_s + why.of(Cause::latency));
  if (counted != nullptr) {
    const auto [name, share] = counted->top_stall();
    if (!name.empty()) {
      why.stall = name;
      std::ranges::replace(why.stall, '_', ' ');
      why.stall += fmt::format(" {:.0f} %", 100 * share);
    }
  }
  return why;
}

/// Adds an op to its part. What is shown of single kernels is that of the longest op.
void add_op(Why& sum, const Why& op, double& longest_s) {
  sum.time_s += op.time_s;
  for (std::size_t i = 0; i < kCauses; ++i) sum.cause_s.at(i) += op.cause_s.at(i);
  sum.has_launch = sum.has_launch || op.has_launch;
  sum.has_tail = sum.has_tail || op.has_tail;
  sum.has_clock = sum.has_clock || op.has_clock;
  sum.is_counted = sum.is_counted || op.is_counted;
  if (op.time_s <= longest_s) return;
  longest_s = op.time_s;
  sum.occupancy = op.occupancy;
  sum.waves = op.waves;
  sum.stall = op.stall;
}

}  // namespace

double tail_share(const LaunchShape& launch) {
  const double waves = launch.waves.value_or(0);
  return waves > 0 ? 1 - waves / std::ceil(waves) : 0;
}

std::string_view title_of(Cause cause) {
  constexpr std::array<std::string_view, kCauses> kTitles = {
      "arithmetic", "DRAM bandwidth", "L2 bandwidth", "launch", "tail", "clock", "latency", "communication"};
  return kTitles.at(static_cast<std::size_t>(cause));
}

std::string_view mend_of(Cause cause) {
  constexpr std::array<std::string_view, kCauses> kMends = {
      "fewer FLOP (less recompute), or a narrower dtype",
      "fewer bytes: fusion with the op before or after, narrower dtypes",
      "reuse in caches or shared memory: larger tiles, fewer passes",
      "fusion of small ops; larger batches, which do more per launch",
      "another tile size or split, so that waves are whole; a larger batch",
      "less power: fewer bytes moved, a higher power limit, better cooling",
      "more work in flight (threads, warps, loads); larger kernels or better shapes",
      "overlap of collectives with computation, fewer or larger messages, ranks that arrive together"};
  return kMends.at(static_cast<std::size_t>(cause));
}

Cause Why::bound() const {
  const auto most = std::ranges::max_element(cause_s);
  return static_cast<Cause>(most - cause_s.begin());
}

std::vector<Why> why_of(const RunData& run) {
  const auto counted = counted_ops(run);
  const Best best = best_of(run);
  const TracedKernels& traced = traced_kernels(run);
  const auto kernels = op_kernels_of(traced);
  std::vector<Why> parts;
  std::vector<double> longest_s;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const Group& group : parts_of(run)) {
    index[{group.phase, group.name}] = parts.size();
    Why& part = parts.emplace_back();
    part.phase = group.phase;
    part.name = group.name;
    longest_s.push_back(0);
  }
  for (const TimedOp& op : run.ops) {
    const auto found = index.find({op.op.phase, op.part});
    const auto counts = counted.find(op.op.op);
    const bool is_explained = counts != counted.end() || op.roof_s || is_communication(op);
    if (!op.time || found == index.end() || !is_explained) continue;
    const auto of_op = kernels.find(op.op.op);
    const Why why = explain_time(run, op, counts == counted.end() ? nullptr : &counts->second,
                                 of_op == kernels.end() ? nullptr : &of_op->second, best);
    add_op(parts[found->second], why, longest_s[found->second]);
  }
  std::erase_if(parts, [](const Why& part) { return part.time_s <= 0; });
  return parts;
}

}  // namespace rooflm::report
