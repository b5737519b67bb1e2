// What hardware counted, beside what follows from shapes.
#include "report/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/units.h"
#include "report/view.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kCycles = "cycles";
constexpr std::string_view kStall = "stall_";

/// The sum of those that were counted; nothing when none was.
std::optional<double> sum_of(std::initializer_list<std::optional<double>> values) {
  std::optional<double> sum;
  for (const auto& value : values) {
    if (value) sum = sum.value_or(0) + *value;
  }
  return sum;
}

/// Of the tiles of a causal score matrix, those that are not above the diagonal.
double causal_share(double seq) {
  constexpr double kTile = 128;
  const double tiles = std::max(1.0, seq / kTile);
  return (tiles + 1) / (2 * tiles);
}

}  // namespace

void Counted::add(const record::Counter& counter) {
  (counter.unit == "share" ? shares_ : values_)[counter.name] += counter.value;
}

void Counted::weigh_shares() {
  ops_ = 1;
  cycles_ = shares_.empty() ? 0 : value(kCycles).value_or(1);
  for (auto& [name, share] : shares_) share *= cycles_;
}

void Counted::add(const Counted& other) {
  for (const auto& [name, value] : other.values_) values_[name] += value;
  for (const auto& [name, share] : other.shares_) shares_[name] += share;
  cycles_ += other.cycles_;
  ops_ += other.ops_;
}

std::optional<double> Counted::value(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> Counted::share(std::string_view name) const {
  const auto found = shares_.find(name);
  if (found == shares_.end() || cycles_ <= 0) return std::nullopt;
  return found->second / cycles_;
}

std::optional<double> Counted::tensor_flop() const {
  return sum_of({value("tensor_bf16_flop"), value("tensor_fp16_flop"), value("tensor_tf32_flop"),
                 value("tensor_fp8_flop"), value("tensor_fp64_flop")});
}

std::optional<double> Counted::core_flop() const { return sum_of({value("fp32_flop"), value("fp64_flop")}); }

std::optional<double> Counted::flop() const {
  if (const auto all = value("flop")) return all;
  const auto tensor = tensor_flop();
  return tensor && *tensor > 0 ? tensor : core_flop();
}

std::optional<double> Counted::dram_bytes() const {
  return sum_of({value("dram_read_bytes"), value("dram_written_bytes")});
}

std::optional<double> Counted::l1_hit_share() const {
  const auto sectors = value("l1_sectors");
  const auto hits = value("l1_hit_sectors");
  return sectors && hits && *sectors > 0 ? std::optional(*hits / *sectors) : std::nullopt;
}

std::optional<double> Counted::l2_hit_share() const {
  const auto sectors = value("l2_sectors");
  const auto hits = value("l2_hit_sectors");
  if (!sectors || !hits || *sectors <= 0) return std::nullopt;
  return std::min(1.0, *hits / *sectors);  // the two are of different passes
}

std::pair<std::string, double> Counted::top_stall() const {
  const auto all = value("warp_cycles");
  if (!all || *all <= 0) return {};
  std::pair<std::string, double> top;
  for (const auto& [name, cycles] : values_) {
    if (!name.starts_with(kStall) || cycles / *all <= top.second) continue;
    top = {name.substr(kStall.size()), cycles / *all};
  }
  return top;
}

std::map<std::int64_t, Counted> counted_ops(const RunData& run) {
  std::map<std::int64_t, Counted> ops;
  for (const record::Counter& counter : run.counters) {
    if (counter.op && !counter.activity && counter.source != "shapes") ops[*counter.op].add(counter);
  }
  for (auto& [op, counted] : ops) counted.weigh_shares();
  return ops;
}

Counted counted_step(const RunData& run) {
  Counted step;
  for (const auto& [op, counted] : counted_ops(run)) step.add(counted);
  if (!step.empty()) return step;
  for (const record::Counter& counter : run.counters) {
    if (counter.op || counter.activity || counter.source == "shapes") continue;
    if (counter.phase == kStep && counter.scope.empty()) step.add(counter);
  }
  if (!step.empty()) step.weigh_shares();
  return step;
}

Explained explained_flop(const RunData& run, const record::Op& op) {
  const auto flop = static_cast<double>(op.matmul_flop);
  const bool is_forward = op.kind == "flash_attention";
  const bool is_backward = op.kind == "flash_attention_backward";
  if (!is_forward && !is_backward) return {.flop = flop};
  constexpr double kRebuilt = 5.0 / 4;
  const auto seq = static_cast<double>(run.run.config.integer("seq").value_or(1));
  return {.flop = flop * causal_share(seq) * (is_backward ? kRebuilt : 1),
          .cause = is_backward ? "masked tiles left out, scores rebuilt" : "masked tiles left out"};
}

std::optional<double> CountedGroup::flop_ratio() const {
  return explained_flop > 0 ? ratio_of(counted.flop(), explained_flop) : std::nullopt;
}

std::optional<double> CountedGroup::bytes_ratio() const {
  return bytes > 0 ? ratio_of(counted.dram_bytes(), bytes) : std::nullopt;
}

std::string CountedGroup::note() const {
  std::vector<std::string> causes;
  const auto flop = flop_ratio();
  if (flop && *flop > 1 + kFlopTolerance) {
    causes.emplace_back(flop_cause.empty() ? "more FLOP: padding of tiles, or recomputed"
                                           : "more FLOP: part of the masked half is computed");
  } else if (flop && *flop < 1 - kFlopTolerance) {
    causes.emplace_back(flop_cause.empty() ? "fewer FLOP: not all on counted pipes"
                                           : "fewer FLOP: smaller tiles leave more of the mask out");
  }
  const auto traffic = bytes_ratio();
  const double spilled = counted.value("local_bytes").value_or(0);
  constexpr double kMuch = 0.05;
  if (traffic && *traffic > 1 + kBytesTolerance) {
    if (spilled > kMuch * counted.dram_bytes().value_or(0)) {
      causes.push_back("more bytes: registers spill " + core::format_bytes(spilled));
    } else if (op_class == "matmul" || op_class == "attention") {
      causes.emplace_back(workspace_bytes > 0 ? "more bytes: operands read by several tiles, workspace"
                                              : "more bytes: operands read by several tiles");
    } else {
      causes.emplace_back("more bytes: read again, partial lines, or lines of the op before written back");
    }
  } else if (traffic && *traffic < 1 - kBytesTolerance) {
    causes.emplace_back("fewer bytes: L2 still has what the op before left, or keeps what this one wrote");
  }
  return fmt::format("{}", fmt::join(causes, "; "));
}

std::vector<CountedGroup> counted_groups(const RunData& run,
                                         const std::function<std::string(const TimedOp&)>& key) {
  const auto counted = counted_ops(run);
  std::vector<CountedGroup> groups;
  if (counted.empty()) return groups;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const Group& group : group_ops(run, key)) {  // their order
    index[{group.phase, group.name}] = groups.size();
    CountedGroup& made = groups.emplace_back();
    made.phase = group.phase;
    made.name = group.name;
    made.device_s = group.work.measured_s();
  }
  std::vector<double> most(groups.size());
  for (const TimedOp& timed : run.ops) {
    const auto found = index.find({timed.op.phase, key(timed)});
    const auto count = counted.find(timed.op.op);
    if (found == index.end() || count == counted.end()) continue;
    CountedGroup& group = groups[found->second];
    const Explained known = explained_flop(run, timed.op);
    const auto bytes = static_cast<double>(timed.op.bytes_read + timed.op.bytes_written);
    group.counted.add(count->second);
    group.matmul_flop += static_cast<double>(timed.op.matmul_flop);
    group.explained_flop += known.flop;
    if (!known.cause.empty()) group.flop_cause = known.cause;
    group.bytes += bytes;
    group.workspace_bytes = std::max(group.workspace_bytes, timed.op.workspace_bytes);
    if (bytes >= most[found->second]) {
      most[found->second] = bytes;
      group.op_class = timed.op.op_class;
    }
  }
  std::erase_if(groups, [](const CountedGroup& group) { return group.counted.empty(); });
  return groups;
}

}  // namespace rooflm::report
