// Laws of hardware counters and gauges.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/summaries.h"
#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

using Counts = std::map<std::string, double, std::less<>>;

/// 0 where it was not counted.
double count_of(const Counts& counts, std::string_view name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

/// Of the tensor and the CUDA cores, all precisions of matmuls.
double product_flop(const Counts& counts) {
  double tensor = 0;
  for (const char* name : {"tensor_bf16_flop", "tensor_fp16_flop", "tensor_tf32_flop", "tensor_fp8_flop"}) {
    tensor += count_of(counts, name);
  }
  return tensor > 0 ? tensor : count_of(counts, "fp32_flop");
}

/// Each pass ran one step, and none of them is a timed one.
void check_passes(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto passes = record.fact(run.id, "counter_passes");
  if (!passes || !passes->value) return;
  double counted = 0;
  for (const record::Sample& sample : record.rows<record::Sample>(run.id)) {
    if (sample.kind == "counted" && sample.phase == kStep) ++counted;
  }
  laws.equal("counted steps are the passes of the counters", "counter_passes", counted, *passes->value,
             "steps", kExact);
}

void check_counted_op(const record::Op& op, const Counts& counts, LawBook& laws) {
  const auto what = [&] { return fmt::format("op {} {}", op.op, op.name); };
  constexpr Slack kOtherPass{.share = 0.02, .absolute = 1000};  // the two may be of different passes
  if (counts.contains("l1_sectors")) {
    laws.at_most("L1 hits are within L1 sectors", what, count_of(counts, "l1_hit_sectors"),
                 count_of(counts, "l1_sectors"), "sectors", kOtherPass);
  }
  // Tiles may be padded, but nothing of a matmul is left out. Attention is: tiles above the diagonal.
  const bool has_all_pipes = counts.contains("tensor_bf16_flop") && counts.contains("tensor_tf32_flop") &&
                             counts.contains("fp32_flop");
  if (op.op_class == "matmul" && op.matmul_flop > 0 && has_all_pipes) {
    constexpr Slack kCounters{.share = 0.01};
    laws.at_most("matmuls have counted FLOP", what, static_cast<double>(op.matmul_flop), product_flop(counts),
                 "flop", kCounters);
  }
}

void check_counted_ops(const record::Reader& record, const record::Run& run, LawBook& laws) {
  std::map<std::int64_t, record::Op> ops;
  for (record::Op& op : record.rows<record::Op>(run.id)) ops.emplace(op.op, std::move(op));
  std::map<std::int64_t, std::int64_t> op_of_activity;
  for (const record::Activity& activity : record.rows<record::Activity>(run.id)) {
    op_of_activity[activity.id] = activity.op.value_or(-1);
  }
  std::map<std::int64_t, Counts> counts;
  for (const record::Counter& counter : record.rows<record::Counter>(run.id)) {
    if (counter.source == record::kAloneSource) continue;  // wall times
    laws.at_most("counters are not negative", counter.name, -counter.value, 0, counter.unit, kExact);
    if (counter.unit == "share") {
      constexpr Slack kPasses{.share = 0.05};
      laws.at_most("counted shares are at most 1", counter.name, counter.value, 1, "share", kPasses);
    }
    if (counter.activity) {
      const auto activity = op_of_activity.find(*counter.activity);
      laws.equal(
          "counted kernels belong to the op that was counted",
          [&] { return fmt::format("activity {}", *counter.activity); },
          activity == op_of_activity.end() ? -2.0 : static_cast<double>(activity->second),
          static_cast<double>(counter.op.value_or(-1)), "op", kExact);
    }
    if (!counter.op) continue;
    laws.equal(
        "counters belong to ops of the program", [&] { return fmt::format("op {}", *counter.op); },
        ops.contains(*counter.op) ? 0 : 1, 0, "unknown ops", kExact);
    counts[*counter.op][counter.name] += counter.value;
  }
  for (const auto& [number, of_op] : counts) {
    const auto op = ops.find(number);
    if (op != ops.end()) check_counted_op(op->second, of_op, laws);
  }
}

void check_gauges(const record::Reader& record, const record::Run& run, LawBook& laws) {
  for (const record::Gauge& gauge : record.rows<record::Gauge>(run.id)) {
    laws.at_most("gauges are not negative", gauge.name, -gauge.value, 0, gauge.unit, kExact);
    if (gauge.unit == "share") {
      laws.at_most("gauges that are shares are at most 1", gauge.name, gauge.value, 1, "share", kExact);
    }
  }
  const auto step = record.fact(run.id, "energy_j");
  const auto token = record.fact(run.id, "energy_j_per_token");
  const auto tokens = record.fact(run.id, "tokens");
  if (!step || !token || !tokens || !step->value || !token->value || !tokens->value) return;
  laws.equal("energy of tokens adds up to the step's", "energy_j", *token->value * *tokens->value,
             *step->value, "J", kRounding);
}

}  // namespace

void check_counters(const record::Reader& record, const record::Run& run, LawBook& laws) {
  check_passes(record, run, laws);
  check_counted_ops(record, run, laws);
  check_gauges(record, run, laws);
}

}  // namespace rooflm::report
