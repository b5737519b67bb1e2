// The roofline: the least time that an op can take on a machine with measured ceilings.
#include "perfmodel/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "program/fp32_products.h"
#include "program/ops.h"

namespace rooflm::perfmodel {
namespace {

using program::Op;
using program::Program;

constexpr std::array kLevels = {"L1", "L2", "L3", "DRAM"};

/// The name of the rate that binds the op's matmuls: that of its first floating operand.
std::string product_dtype(const Program& program, const Op& op) {
  for (const program::TensorId id : op.inputs) {
    if (id == program::kNone || program.tensor(id).dtype == core::DType::i32) continue;
    return std::string(program::rate_name(program.tensor(id).dtype, program::fp32_products_of(op)));
  }
  return {};
}

/// Share of the counted matrix-product flop that must be computed.
double needed_share(const Program& program, const Op& op) {
  namespace ops = program::ops;
  if (!op.is(ops::kFlashAttention) && !op.is(ops::kFlashAttentionBackward)) return 1;
  const auto seq = static_cast<double>(program.shape(op.inputs.at(0))[1]);
  return (seq + 1) / (2 * seq);
}

/// Slowest level that the bytes must pass, and its time.
std::pair<double, std::string> memory_time(const Machine& machine, const Work& work) {
  double inner_bytes = 0;
  std::pair<double, std::string> slowest{0, ""};
  for (const MemoryLevel& level : machine.levels) {
    const double seconds = std::max(work.far_bytes, work.bytes - inner_bytes) / level.byte_per_s;
    if (seconds > slowest.first) slowest = {seconds, level.name};
    inner_bytes = std::max(inner_bytes, level.capacity_bytes);
  }
  return slowest;
}

Work work_of(const Program& program, const Op& op) {
  const program::Cost cost = program::cost_of(program, op);
  return {.dtype = product_dtype(program, op),
          .needed_flop = static_cast<double>(cost.matmul_flop) * needed_share(program, op),
          .bytes = static_cast<double>(cost.bytes_read + cost.bytes_written)};
}

/// For each op, the bytes of weights that it alone reads, and whole. Setup does not count.
std::vector<double> own_weight_bytes(const Program& program) {
  constexpr std::size_t kNobody = ~std::size_t{0};
  std::map<program::TensorId, std::size_t> reader;  // kNobody: several
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].phase == program::Phase::setup) continue;
    for (const program::TensorId id : program.ops[i].inputs) {
      if (id == program::kNone) continue;
      const program::TensorId base = program.tensor(id).view_of;
      const program::TensorId whole = base == program::kNone ? id : base;
      if (program.tensor(whole).role != program::Role::weight) continue;
      const auto [found, is_new] = reader.try_emplace(whole, i);
      if (!is_new && found->second != i) found->second = kNobody;
    }
  }
  std::vector<double> bytes(program.ops.size());
  for (const auto& [id, op] : reader) {
    if (op == kNobody || program.ops[op].def->work != program::Work::matmul) continue;
    bytes[op] += static_cast<double>(program.tensor(id).bytes());
  }
  return bytes;
}

record::Prediction prediction_of(const std::string& subject, const Roof& roof) {
  return {.subject = subject, .quantity = "roof_s", .value = roof.roof_s, .unit = "s", .bound = roof.bound};
}

/// Sums of roofs, and what they are made of.
class Sum {
 public:
  void add(const Roof& roof) {
    seconds_ += roof.roof_s;
    by_bound_[roof.bound] += roof.roof_s;
  }
  /// What else bounds the time: takes the place of a smaller sum.
  void raise(double seconds, const std::string& bound) {
    if (seconds <= seconds_) return;
    seconds_ = seconds;
    by_bound_ = {{bound, seconds}};
  }
  [[nodiscard]] record::Prediction prediction(const std::string& subject) const {
    const auto most = std::max_element(by_bound_.begin(), by_bound_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return {.subject = subject,
            .quantity = "roof_s",
            .value = seconds_,
            .unit = "s",
            .bound = most == by_bound_.end() ? "" : most->first};
  }

 private:
  double seconds_ = 0;
  std::map<std::string, double> by_bound_;
};

}  // namespace

Machine Machine::from_ceilings(const std::vector<record::Ceiling>& ceilings, const std::string& device,
                               int threads, const std::map<std::string, double>& capacity_bytes) {
  Machine machine;
  std::map<std::string, double> bandwidth;
  for (const record::Ceiling& ceiling : ceilings) {
    if (ceiling.device != device || (ceiling.threads != 0 && ceiling.threads != threads)) continue;
    if (ceiling.what.starts_with("instruction")) continue;  // no kernel reaches it: it is no roof
    double& rate = ceiling.unit == "flop/s" ? machine.flop_per_s[ceiling.dtype] : bandwidth[ceiling.level];
    rate = std::max(rate, ceiling.value);
  }
  for (const char* name : kLevels) {
    if (!bandwidth.contains(name)) continue;
    const auto capacity = capacity_bytes.find(name);
    machine.levels.push_back({.name = name,
                              .byte_per_s = bandwidth[name],
                              .capacity_bytes = capacity == capacity_bytes.end() ? 0 : capacity->second});
  }
  return machine;
}

Roof roof_of(const Machine& machine, const Work& work) {
  Roof roof;
  if (const auto rate = machine.flop_per_s.find(work.dtype); rate != machine.flop_per_s.end()) {
    roof.matmul_s = work.needed_flop / rate->second;
  }
  const auto [memory_s, level] = memory_time(machine, work);
  roof.memory_s = memory_s;
  roof.roof_s = std::max(roof.matmul_s, roof.memory_s);
  roof.bound = roof.matmul_s >= roof.memory_s ? fmt::format("matmul {}", work.dtype) : level;
  if (roof.roof_s <= 0) roof.bound.clear();
  return roof;
}

Roof roof_of(const Machine& machine, const Program& program, const Op& op) {
  return roof_of(machine, work_of(program, op));
}

double needed_matmul_flop(const Program& program) {
  double flop = 0;
  for (const Op& op : program.ops) {
    if (op.phase != program::Phase::setup) flop += work_of(program, op).needed_flop;
  }
  return flop;
}

std::vector<Roof> roofs_of(const Machine& machine, const Program& program) {
  const std::vector<double> own = own_weight_bytes(program);
  const double all = std::accumulate(own.begin(), own.end(), 0.0);
  double held = 0;
  for (const MemoryLevel& level : machine.levels) held = std::max(held, level.capacity_bytes);
  const double far_share = all > held ? 1 - held / all : 0;
  std::vector<Roof> roofs;
  roofs.reserve(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    Work work = work_of(program, program.ops[i]);
    work.far_bytes = std::min(work.bytes, far_share * own[i]);
    roofs.push_back(roof_of(machine, work));
  }
  return roofs;
}

std::vector<record::Prediction> predict_roofs(const Machine& machine, const std::vector<OpRoof>& roofs) {
  std::vector<record::Prediction> rows;
  std::map<std::string, Sum> phases;
  Sum step;
  double matmul_s = 0;
  double memory_s = 0;
  std::string dtype_bound;
  for (std::size_t begin = 0; begin < roofs.size();) {
    const bool is_one = begin + 1 == roofs.size() || roofs[begin + 1].op != roofs[begin].op;
    Sum of_op;
    std::size_t end = begin;
    for (; end < roofs.size() && roofs[end].op == roofs[begin].op; ++end) {
      const auto& [op, phase, roof, is_in_sum] = roofs[end];
      if (!is_one) of_op.add(roof);
      matmul_s += roof.matmul_s;
      memory_s += roof.memory_s;
      if (roof.bound.starts_with("matmul")) dtype_bound = roof.bound;
      if (!is_in_sum) continue;
      phases[phase].add(roof);
      step.add(roof);
    }
    const std::string subject = fmt::format("op:{}", roofs[begin].op);
    rows.push_back(is_one ? prediction_of(subject, roofs[begin].roof) : of_op.prediction(subject));
    begin = end;
  }
  step.raise(matmul_s, dtype_bound);
  step.raise(memory_s, machine.levels.empty() ? "" : machine.levels.back().name);
  for (const auto& [phase, sum] : phases) rows.push_back(sum.prediction("phase:" + phase));
  rows.push_back(step.prediction("step"));
  return rows;
}

std::vector<record::Prediction> predict_roofs(const Machine& machine, const Program& program) {
  const std::vector<Roof> all = roofs_of(machine, program);
  std::vector<OpRoof> roofs;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.phase == program::Phase::setup) continue;
    roofs.push_back({.op = static_cast<std::int64_t>(i),
                     .phase = std::string(program::name_of(op.phase)),
                     .roof = all[i],
                     .is_in_sum = op.lane == program::Lane::compute});
  }
  return predict_roofs(machine, roofs);
}

}  // namespace rooflm::perfmodel
