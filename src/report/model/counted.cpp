// What hardware counted, beside what follows from shapes.
#include "report/model/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/units.h"
#include "report/model/device_times.h"
#include "report/model/kernel_names.h"
#include "report/views/view.h"

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

std::optional<double> Counted::all_flop() const {
  const auto tensor = tensor_flop();
  const auto core = core_flop();
  return tensor || core ? std::optional(tensor.value_or(0) + core.value_or(0)) : flop();
}

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
    if (counter.op && counter.source != "shapes") ops[*counter.op].add(counter);
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

double ExplainedFlop::nearest(double counted) const { return std::clamp(counted, least, most); }

ExplainedFlop explained_flop(const RunData& run, const record::Op& op) {
  const auto flop = static_cast<double>(op.matmul_flop);
  const bool is_backward = op.kind == "flash_attention_backward";
  if (op.kind != "flash_attention" && !is_backward) return {.least = flop, .most = flop};
  constexpr double kRebuilt = 5.0 / 4;
  constexpr double kRebuiltTwice = 7.0 / 4;
  constexpr std::int64_t kWhole = 64;
  const std::int64_t heads = run.run.config.integer("heads").value_or(0);
  const std::int64_t follows = heads > 0 ? run.run.config.integer("d_model").value_or(0) / heads : 0;
  const std::int64_t head_dim = run.run.config.integer("head_dim").value_or(follows);
  const std::int64_t padded = (head_dim + kWhole - 1) / kWhole * kWhole;
  const double padding = head_dim > 0 ? static_cast<double>(padded) / static_cast<double>(head_dim) : 1;
  const double square = flop * (is_backward ? kRebuilt : 1);
  return {.least = square / 2,
          .most = flop * (is_backward ? kRebuiltTwice : 1) * padding,
          .square = square,
          .is_padded = padded != head_dim};
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
  if (attention_square > 0) {
    causes.push_back(fmt::format("computes {:.0f} % of the score matrix, 50 % is needed{}",
                                 100 * attention_flop / attention_square,
                                 is_padded ? "; heads are padded" : ""));
  }
  if (flop && *flop > 1 + kFlopTolerance) {
    causes.emplace_back("more FLOP: padding of tiles or clusters, or recomputation");
  } else if (flop && *flop < 1 - kFlopTolerance) {
    causes.emplace_back("fewer FLOP: some ran on pipes that are not counted");
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
      causes.emplace_back(
          "more bytes: repeated reads, partial cache lines, or write-back of lines of the previous op");
    }
  } else if (traffic && *traffic < 1 - kBytesTolerance) {
    causes.emplace_back("fewer bytes: L2 still holds results of the previous op, or keeps those of this one");
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
    const ExplainedFlop known = explained_flop(run, timed.op);
    const double flop = count->second.flop().value_or(known.least);
    const auto bytes = static_cast<double>(timed.op.bytes_read + timed.op.bytes_written);
    group.counted.add(count->second);
    group.matmul_flop += static_cast<double>(timed.op.matmul_flop);
    group.explained_flop += known.nearest(flop);
    if (known.square > 0) {
      group.attention_flop += flop;
      group.attention_square += known.square;
      group.is_padded = group.is_padded || known.is_padded;
    }
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

std::vector<CountedGroup> counted_kernels(const RunData& run) {
  std::map<std::int64_t, const record::Activity*> activities;
  std::map<std::int64_t, Counted> counted;  // by activity
  for (const record::Counter& counter : run.counters) {
    if (counter.activity && counter.source != "shapes") counted[*counter.activity].add(counter);
  }
  if (counted.empty()) return {};
  for (const record::Activity& activity : run.activities) {
    if (counted.contains(activity.id)) activities[activity.id] = &activity;
  }
  const ActivityNames names(run);
  const std::map<std::string, std::string, std::less<>> short_names = short_kernel_names(run.activity_names);
  std::map<std::string, CountedGroup> by_name;
  for (auto& [id, of_kernel] : counted) {
    const auto found = activities.find(id);
    if (found == activities.end()) continue;
    const record::Activity& activity = *found->second;
    const auto short_name = short_names.find(names.text(activity));
    const std::string name = short_name == short_names.end() ? "" : short_name->second;
    of_kernel.weigh_shares();
    CountedGroup& group = by_name[name];
    group.name = name;
    group.counted.add(of_kernel);
    group.device_s =
        group.device_s.value_or(0) + core::kNano * static_cast<double>(activity.end_ns - activity.start_ns);
    if (const TimedOp* timed = activity.op ? run.find_op(*activity.op) : nullptr) {
      group.matmul_flop += static_cast<double>(timed->op.matmul_flop);
      group.bytes += static_cast<double>(timed->op.bytes_read + timed->op.bytes_written);
    }
  }
  std::vector<CountedGroup> groups;
  for (auto& [name, group] : by_name) groups.push_back(std::move(group));
  std::ranges::stable_sort(
      groups, [](const CountedGroup& a, const CountedGroup& b) { return a.device_s > b.device_s; });
  return groups;
}

}  // namespace rooflm::report
