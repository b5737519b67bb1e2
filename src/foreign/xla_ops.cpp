// Kernels of a JAX program and the instructions that XLA made of it.
#include "foreign/xla_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "foreign/kernel_work.h"
#include "foreign/module_ops.h"

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::Row;
using inject::RowKind;

struct Instruction {
  std::string name{}, base{}, op_name{};
  bool is_call = false;  ///< of a library, whose kernels have names of their own
  std::string place{};   ///< "train.py:12"
  record::KernelWork work{};
  std::int64_t op = -1, number = -1;  ///< once it is known to run
};

struct Program {
  std::string name{};
  std::vector<Instruction> instructions{};
  bool has_gradients = false;
};

/// "loop_add_fusion" of "loop_add_fusion_12".
std::string base_of(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1])) != 0) --end;
  return std::string(end > 1 && end < name.size() && name[end - 1] == '_' ? name.substr(0, end - 1) : name);
}

std::optional<Instruction> read_instruction(const std::string& text) {
  try {
    const nlohmann::json row = core::parse_json_object(text, "the stream", "an instruction");
    Instruction made{.name = row.at("name").get<std::string>(), .op_name = row.at("op").get<std::string>()};
    const auto call = row.at("call").get<std::string>();
    made.base = base_of(made.name);
    made.is_call = call.starts_with("__") || call == "convolution" || call == "custom-call";
    made.place = row.at("at").get<std::string>();
    made.work = {.call = core::printable("hlo::" + call),
                 .shapes = core::printable(row.at("shapes").get<std::string>()),
                 .dtype = core::printable(row.at("dtype").get<std::string>()),
                 .matmul_flop = row.at("flop").get<double>(),
                 .needed_flop = row.at("needed").get<double>(),
                 .bytes = row.at("bytes").get<double>()};
    constexpr double kMost = 0x1p60;
    for (const double value : {made.work.matmul_flop, made.work.needed_flop, made.work.bytes}) {
      if (!(value >= 0 && value <= kMost)) return std::nullopt;
    }
    return made;
  } catch (const core::Error&) {
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

std::vector<Program> read_programs(const std::map<std::string, std::string>& facts) {
  std::vector<Program> programs;
  for (;;) {
    const std::string key = fmt::format("hlo {}", programs.size());
    const auto name = facts.find(key);
    if (name == facts.end()) return programs;
    Program& program = programs.emplace_back(Program{.name = name->second});
    for (std::size_t i = 0;; ++i) {
      const auto fact = facts.find(fmt::format("{} {}", key, i));
      if (fact == facts.end()) break;
      std::optional<Instruction> one = read_instruction(fact->second);
      if (!one) continue;
      program.has_gradients = program.has_gradients || one->op_name.find("transpose(") != std::string::npos;
      program.instructions.push_back(std::move(*one));
    }
  }
}

/// "jit_step" of "TSL:XlaModule:#hlo_module=jit_step,program_id=3#"; "" of other ranges.
std::string program_of_range(const std::string& text) {
  constexpr std::string_view kKey = "hlo_module=";
  if (text.find("XlaModule:#") == std::string::npos) return "";
  const std::size_t at = text.find(kKey);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + kKey.size();
  return text.substr(begin, text.find_first_of(",#", begin) - begin);
}

/// Which instruction each kernel of an execution runs: the alignment of both, in order, that fits best.
struct Alignment {
  std::vector<std::optional<std::size_t>> instructions{};
  int score = 0;
};

int fit(const Instruction& instruction, const std::string& kernel, const std::string& base) {
  if (instruction.name == kernel) return 6;
  if (instruction.base == base) return 4;
  return instruction.is_call ? rank_of(kernel) : 0;
}

Alignment align(const Program& program, const std::vector<std::string>& kernels) {
  constexpr std::size_t kMostCells = 16'000'000;
  const std::size_t n = program.instructions.size();
  const std::size_t m = kernels.size();
  Alignment best{.instructions = std::vector<std::optional<std::size_t>>(m)};
  if (n == 0 || m == 0) return best;
  if (n > kMostCells / m) {  // then by whole names alone
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (std::size_t i = 0; i < n; ++i) by_name.try_emplace(program.instructions[i].name, i);
    for (std::size_t k = 0; k < m; ++k) {
      const auto found = by_name.find(kernels[k]);
      if (found != by_name.end()) best.instructions[k] = found->second;
      best.score += found != by_name.end() ? 1 : 0;
    }
    return best;
  }
  std::vector<std::string> bases;
  for (const std::string& kernel : kernels) bases.push_back(base_of(kernel));
  std::vector<int> scores((n + 1) * (m + 1));
  const auto at = [&](std::size_t i, std::size_t k) -> int& { return scores[i * (m + 1) + k]; };
  for (std::size_t i = 1; i <= n; ++i) {
    for (std::size_t k = 1; k <= m; ++k) {
      at(i, k) = std::max(at(i - 1, k), at(i, k - 1));
      const int here = fit(program.instructions[i - 1], kernels[k - 1], bases[k - 1]);
      if (here > 0) at(i, k) = std::max(at(i, k), at(i - 1, k - 1) + here);
    }
  }
  best.score = at(n, m);
  for (std::size_t i = n, k = m; i > 0 && k > 0;) {
    if (at(i, k) == at(i - 1, k)) {
      --i;
    } else if (at(i, k) == at(i, k - 1)) {
      --k;
    } else {
      best.instructions[--k] = --i;
    }
  }
  return best;
}

class Finder {
 public:
  Finder(const std::vector<Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts,
         std::vector<Program> programs, std::span<const Launch> launches)
      : texts_(texts), programs_(std::move(programs)), launches_(launches) {
    for (const Row& row : rows) {
      if (row.kind != RowKind::range || row.range != RangeKind::user) continue;
      const auto text = texts.find(row.name);
      const std::string program = text == texts.end() ? "" : program_of_range(text->second);
      if (!program.empty()) ranges_[row.place].push_back({row.start_ns, row.end_ns, program});
    }
    for (auto& [thread, ranges] : ranges_) std::ranges::stable_sort(ranges, {}, &Range::start_ns);
    found_.op_of.resize(launches.size());
    found_.work_of.resize(launches.size());
  }

  XlaOps find() {
    std::map<const Range*, std::vector<std::size_t>> executions;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      if (const Range* range = range_at(launches_[i])) executions[range].push_back(i);
    }
    for (const auto& [range, launches] : executions) take(range->program, launches);
    return std::move(found_);
  }

 private:
  struct Range {
    std::uint64_t start_ns = 0, end_ns = 0;
    std::string program{};
  };

  [[nodiscard]] const Range* range_at(const Launch& launch) const {
    const auto of_thread = ranges_.find(launch.thread);
    if (of_thread == ranges_.end()) return nullptr;
    const auto after = std::ranges::upper_bound(of_thread->second, launch.call_ns, {}, &Range::start_ns);
    if (after == of_thread->second.begin() || std::prev(after)->end_ns < launch.call_ns) return nullptr;
    return &*std::prev(after);
  }

  void take(const std::string& name, const std::vector<std::size_t>& launches) {
    std::vector<std::string> kernels;
    for (const std::size_t i : launches) {
      const auto text = texts_.find(launches_[i].name);
      kernels.push_back(text == texts_.end() ? "" : text->second);
    }
    const auto [entry, is_new] = aligned_.try_emplace({name, kernels});
    auto& [program, alignment] = entry->second;
    if (is_new) {
      for (Program& one : programs_) {
        if (one.name != name) continue;
        Alignment other = align(one, kernels);
        if (program != nullptr && other.score <= alignment.score) continue;
        program = &one;
        alignment = std::move(other);
      }
    }
    if (program == nullptr) return;
    std::optional<std::int64_t> last;
    for (std::size_t k = 0; k < launches.size(); ++k) {
      const auto& instruction = alignment.instructions[k];
      if (instruction) {
        Instruction& one = program->instructions[*instruction];
        if (one.op < 0) add(*program, one);
        found_.work_of[launches[k]] = one.number;
        last = one.op;
      }
      found_.op_of[launches[k]] = last;  // what a call of a library launches more is its own
    }
  }

  void add(const Program& program, Instruction& one) {
    const bool is_backward = one.op_name.find("transpose(") != std::string::npos;
    const bool is_forward = one.op_name.find("jvp(") != std::string::npos || !program.has_gradients;
    const std::string phase = is_backward ? "backward" : is_forward ? "forward" : "optimizer";
    const bool is_again = is_backward && one.op_name.find("remat") != std::string::npos;
    const std::string path = path_of_name_scopes(one.op_name);
    const std::string scope = path.empty() && !one.place.empty() ? one.place : scope_of_module(path);
    const auto [entry, is_new] =
        ops_.try_emplace({phase, scope, is_again}, static_cast<std::int64_t>(found_.ops.size()));
    if (is_new) {
      found_.ops.push_back({.op = entry->second,
                            .kind = "XLA",
                            .name = core::printable(path.empty() ? one.op_name : path),
                            .phase = phase,
                            .scope = core::printable(scope),
                            .recomputed = is_again,
                            .launches = 0});
    }
    record::Op& op = found_.ops[static_cast<std::size_t>(entry->second)];
    if (one.work.matmul_flop > 0 && op.matmul_flop == 0) {
      op.dtype = one.work.dtype;
      op.shapes = one.work.shapes;
    }
    op.matmul_flop += static_cast<std::int64_t>(one.work.matmul_flop);
    op.bytes_read += static_cast<std::int64_t>(one.work.bytes);
    one.op = entry->second;
    one.number = one.work.work = static_cast<std::int64_t>(found_.works.size());
    found_.works.push_back(one.work);
    if (one.work.bytes <= 0) return;
    found_.work.push_back({.op = one.op,
                           .phase = phase,
                           .dtype = one.work.dtype,
                           .needed_flop = one.work.needed_flop,
                           .bytes = one.work.bytes});
  }

  const std::unordered_map<std::uint32_t, std::string>& texts_;
  std::vector<Program> programs_;
  std::span<const Launch> launches_;
  std::map<std::uint32_t, std::vector<Range>> ranges_;  ///< of programs that run, by thread
  std::map<std::pair<std::string, std::vector<std::string>>, std::pair<Program*, Alignment>> aligned_;
  std::map<std::tuple<std::string, std::string, bool>, std::int64_t> ops_;
  XlaOps found_;
};

}  // namespace

std::string path_of_name_scopes(const std::string& op_name) {
  // What JAX itself puts around names.
  constexpr auto kNoNames = std::to_array<std::string_view>(
      {"", "while", "body", "cond", "closed_call", "checkpoint", "remat", "rematted_computation",
       "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "pjit", "shard_map", "main"});
  std::vector<std::string> parts;
  std::istringstream text(op_name);
  for (std::string part; std::getline(text, part, '/');) parts.push_back(part);
  if (parts.empty()) return "";
  parts.pop_back();  // the operation
  std::string path;
  for (std::string part : parts) {
    if (part.starts_with("jit(") || part.starts_with("branch_")) continue;
    if (const std::size_t open = part.rfind('('); open != std::string::npos)
      part = part.substr(open + 1, part.find(')', open) - open - 1);
    if (std::ranges::find(kNoNames, part) != kNoNames.end()) continue;
    // "layers_3" is layer 3.
    const std::string base = base_of(part);
    if (base != part) part = fmt::format("{}.{}", base, part.substr(base.size() + 1));
    path += (path.empty() ? "" : ".") + part;
  }
  return path;
}

XlaOps find_xla_ops(const std::vector<Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts,
                    const std::map<std::string, std::string>& facts, std::span<const Launch> launches) {
  std::vector<Program> programs = read_programs(facts);
  if (programs.empty()) return {};
  XlaOps found = Finder(rows, texts, std::move(programs), launches).find();
  std::ranges::stable_sort(found.work, {}, &OpWork::op);
  return found;
}

}  // namespace rooflm::foreign
