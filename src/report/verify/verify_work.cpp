// Laws of work: FLOPs and bytes of ops against the run's own sums, times against roofs.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/statistics.h"
#include "report/tables/ceiling_rows.h"
#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kRoofLaw = "no time beats its roof";

std::optional<double> value_of(const record::Reader& record, const record::Run& run, const std::string& key) {
  const auto fact = record.fact(run.id, key);
  return fact ? fact->value : std::nullopt;
}

struct Roof {
  double seconds = 0;
  std::string load;  ///< what kept its ceiling from being a limit, empty when it is one
};

/// 'roof_s' by subject.
std::map<std::string, Roof> roofs_of(const record::Reader& record, const record::Run& run) {
  const auto loads = uncertain_bounds(record.ceilings(), run.config);
  std::map<std::string, Roof> roofs;
  for (const record::Prediction& prediction : record.rows<record::Prediction>(run.id)) {
    if (prediction.quantity != "roof_s") continue;
    const auto load = loads.find(prediction.bound);
    roofs[prediction.subject] = {prediction.value, load == loads.end() ? "" : load->second};
  }
  return roofs;
}

void check_flop(const record::Reader& record, const record::Run& run, const std::vector<record::Op>& ops,
                LawBook& laws) {
  const auto stated = value_of(record, run, "matmul_flop");
  if (ops.empty() || !stated) return;
  double sum = 0;
  for (const record::Op& op : ops) sum += static_cast<double>(op.matmul_flop);
  laws.equal("FLOP of ops add up to matmul_flop", fmt::format("{} ops", ops.size()), sum, *stated, "flop",
             kRounding);
}

void check_counts(const std::vector<record::Op>& ops, LawBook& laws) {
  for (const record::Op& op : ops) {
    for (const auto& [name, count, unit] :
         {std::tuple("matmul_flop", op.matmul_flop, "flop"),
          std::tuple("elementwise_flop", op.elementwise_flop, "flop"),
          std::tuple("bytes_read", op.bytes_read, "B"), std::tuple("bytes_written", op.bytes_written, "B"),
          std::tuple("launches", op.launches, "")}) {
      laws.at_most(
          "counts of ops are not negative",
          [&, what = name] { return fmt::format("op {} {}, {}", op.op, op.name, what); },
          -static_cast<double>(count), 0, unit, kExact);
    }
  }
}

/// Rates divide by the tokens of the step, labels and sweeps name its batch and length.
void check_tokens(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto tokens = value_of(record, run, "tokens");
  const auto batch = run.config.integer("batch");
  const auto seq = run.config.integer("seq");
  if (!tokens || !batch || !seq) return;
  double product = static_cast<double>(*batch);
  if (run.config.text("phase") != "decode") product *= static_cast<double>(*seq);
  for (const char* key : {"grad_accum", "dp"})
    product *= static_cast<double>(run.config.integer(key).value_or(1));
  laws.equal("tokens of a step are those of its batch", "configuration", *tokens, product, "tokens",
             kRounding);
}

void check_needed(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto plan = value_of(record, run, "plan_bytes");
  const auto state = value_of(record, run, "state_bytes");
  const auto needed = value_of(record, run, "needed_bytes");
  if (run.status != "success" || !plan || !state || !needed) return;
  laws.equal("plan_bytes and state_bytes add up to needed_bytes", "memory", *plan + *state, *needed, "B",
             kExact);
}

/// Roofs of the ops of a phase add up to the phase's, those of the phases to the step's. Ops that may run
/// beside those of another phase are in no phase's roof, and the step's may be that of all matmuls or all
/// traffic.
void check_roof_sums(const std::map<std::string, Roof>& roofs, const std::vector<record::Op>& ops,
                     LawBook& laws) {
  std::map<std::string, double> of_phase;
  double phases_s = 0;
  bool has_beside = false;
  for (const record::Op& op : ops) {
    if (op.lane != "compute") {
      has_beside = true;
      continue;
    }
    const auto roof = roofs.find(fmt::format("op:{}", op.op));
    if (roof != roofs.end()) of_phase[op.phase] += roof->second.seconds;
  }
  for (const auto& [phase, sum_s] : of_phase) {
    const auto roof = roofs.find("phase:" + phase);
    if (roof == roofs.end()) continue;
    laws.equal("roofs of ops add up to their phase's", phase, sum_s, roof->second.seconds, "s", kRounding);
    phases_s += roof->second.seconds;
  }
  const auto step = roofs.find("step");
  if (phases_s > 0 && step != roofs.end() && has_beside) {
    laws.at_most("roofs of phases add up to the step's", "step", phases_s, step->second.seconds, "s",
                 kRounding);
  } else if (phases_s > 0 && step != roofs.end()) {
    laws.equal("roofs of phases add up to the step's", "step", phases_s, step->second.seconds, "s",
               kRounding);
  }
}

void check_ops_against_roofs(const record::Reader& record, const record::Run& run,
                             const std::map<std::string, Roof>& roofs, const std::vector<record::Op>& ops,
                             LawBook& laws) {
  std::map<std::int64_t, const record::Op*> op_of;
  for (const record::Op& op : ops) op_of[op.op] = &op;
  const auto hold = [&](std::string_view law, std::int64_t number, double seconds) {
    const auto roof = roofs.find(fmt::format("op:{}", number));
    if (roof == roofs.end()) return;
    if (!roof->second.load.empty()) {
      laws.not_judged(law, roof->second.load);
      return;
    }
    const auto op = op_of.find(number);
    laws.at_most(law, fmt::format("op {} {}", number, op == op_of.end() ? "" : op->second->name),
                 roof->second.seconds, seconds, "s", kClockNoise);
  };
  for (const auto& [op, seconds] : op_seconds(record, run)) hold(kRoofLaw, op, seconds);
  for (const auto& [op, seconds] : kernel_seconds(record, run))
    hold("no op's kernels beat its roof", op, seconds);
}

void check_against_roofs(const record::Reader& record, const record::Run& run,
                         const std::map<std::string, Roof>& roofs, const std::vector<record::Op>& ops,
                         LawBook& laws) {
  check_ops_against_roofs(record, run, roofs, ops, laws);
  // Phases and the step are sums of ops, so any of the ceilings may be in them.
  std::string load;
  for (const auto& [subject, roof] : roofs) {
    if (!roof.load.empty()) load = roof.load;
  }
  std::map<std::string, std::vector<double>> samples;
  for (const record::Sample& sample : record.rows<record::Sample>(run.id)) {
    if (sample.kind == "plain") samples[sample.phase].push_back(sample.seconds);
  }
  for (const auto& [phase, seconds] : samples) {
    const auto roof = roofs.find(phase == "step" ? phase : "phase:" + phase);
    if (roof == roofs.end()) continue;
    if (!load.empty()) {
      laws.not_judged(kRoofLaw, load);
      continue;
    }
    laws.at_most(kRoofLaw, phase, roof->second.seconds, core::median(seconds), "s", kClockNoise);
  }
}

}  // namespace

void check_work(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto ops = record.rows<record::Op>(run.id);
  const auto roofs = roofs_of(record, run);
  check_counts(ops, laws);
  check_tokens(record, run, laws);
  check_flop(record, run, ops, laws);
  check_needed(record, run, laws);
  for (const auto& [subject, roof] : roofs) {
    laws.at_most("roofs are not negative", subject, -roof.seconds, 0, "s", kExact);
  }
  check_roof_sums(roofs, ops, laws);
  check_against_roofs(record, run, roofs, ops, laws);
}

}  // namespace rooflm::report
