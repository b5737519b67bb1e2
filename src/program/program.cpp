// A training step as data: a list of ops on named tensors.
#include "program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "core/checked.h"
#include "core/error.h"

namespace rooflm::program {

using core::Count;

std::string_view name_of(Role role) {
  switch (role) {
    case Role::input:
      return "input";
    case Role::weight:
      return "weight";
    case Role::optimizer_state:
      return "optimizer_state";
    case Role::result:
      return "result";
    case Role::cache:
      return "cache";
    case Role::gradient:
      return "gradient";
    case Role::activation:
      return "activation";
    case Role::activation_gradient:
      return "activation_gradient";
    case Role::workspace:
      return "workspace";
    case Role::gathered_weight:
      return "gathered_weight";
  }
  return "?";
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::setup:
      return "setup";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
  }
  return "?";
}

std::string_view name_of(Lane lane) {
  constexpr std::array<std::string_view, kLanes> kNames{"compute", "background", "copy", "communication",
                                                        "host"};
  return kNames.at(static_cast<std::size_t>(lane));
}

std::string_view name_of(Work work) {
  constexpr std::array<std::string_view, 10> kNames{"matmul",    "attention", "norm",        "softmax",
                                                    "loss",      "embedding", "elementwise", "copy",
                                                    "optimizer", "collective"};
  return kNames.at(static_cast<std::size_t>(work));
}

Cost& Cost::operator+=(const Cost& other) {
  matmul_flop = Count(matmul_flop) + other.matmul_flop;
  elementwise_flop = Count(elementwise_flop) + other.elementwise_flop;
  bytes_read = Count(bytes_read) + other.bytes_read;
  bytes_written = Count(bytes_written) + other.bytes_written;
  launches = Count(launches) + other.launches;
  return *this;
}

TensorId Program::add_tensor(Tensor tensor) {
  static_cast<void>(tensor.shape.numel());  // refuses a shape that is too large before anything else uses it
  tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors.size() - 1);
}

TensorId Program::find(std::string_view name) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_persistent(tensors[i].role) && tensors[i].name == name) return static_cast<TensorId>(i);
  }
  return kNone;
}

const std::vector<TensorId>& Program::append(Op op, const std::string& name,
                                             const std::vector<core::Shape>& shapes) {
  auto specs = op.def->infer(*this, op);
  op.outputs.reserve(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].name = i == 0 ? name : name + "." + std::to_string(i);
    if (i < shapes.size()) {
      if (shapes[i].numel() != specs[i].shape.numel()) {
        throw std::logic_error(fmt::format("{}: {} cannot be viewed as {}", op.def->name,
                                           specs[i].shape.str(), shapes[i].str()));
      }
      specs[i].shape = shapes[i];
    }
    op.outputs.push_back(add_tensor(std::move(specs[i])));
  }
  ops.push_back(std::move(op));
  return ops.back().outputs;
}

void Program::append_to(Op op, std::vector<TensorId> outputs) {
  op.outputs = std::move(outputs);
  ops.push_back(std::move(op));
}

namespace {

Cost checked_cost(const Program& program, const Op& op) {
  Cost cost = op.def->cost(program, op);
  if (cost.bytes_read == 0 && cost.bytes_written == 0) {
    for (const TensorId id : op.inputs) {
      if (id != kNone) cost.bytes_read = Count(cost.bytes_read) + program.tensor(id).bytes();
    }
    for (const TensorId id : op.outputs) {
      if (id == kNone) continue;
      cost.bytes_written = Count(cost.bytes_written) + program.tensor(id).own_bytes();
      const bool adds_to_output = op.attrs.flag("accumulate") && program.tensor(id).role == Role::gradient;
      if (adds_to_output) cost.bytes_read = Count(cost.bytes_read) + program.tensor(id).bytes();
    }
  }
  return cost;
}

/// The first operands, which determine the op's size: "[256, 768] and [768, 3072]".
std::string operands_of(const Program& program, const Op& op) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(op.inputs.size(), kShown); ++i) {
    if (op.inputs[i] != kNone) text += (text.empty() ? "" : " and ") + program.shape(op.inputs[i]).str();
  }
  return text;
}

}  // namespace

Cost cost_of(const Program& program, const Op& op) {
  try {
    return checked_cost(program, op);
  } catch (const core::UsageError& error) {
    throw core::UsageError(fmt::format("{} of {}: {}", op.def->name, operands_of(program, op), error.what()));
  }
}

namespace {

std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

/// The index of the last op of each lane that is known to be done; -1 for none.
struct Progress {
  std::array<int, kLanes> done;
  Progress() { done.fill(-1); }
  void include(const Progress& other) {
    for (std::size_t i = 0; i < kLanes; ++i) done[i] = std::max(done[i], other.done[i]);
  }
};

}  // namespace

std::vector<int> done_by(const Program& program) {
  const auto count = static_cast<int>(program.ops.size());
  std::vector<int> by(program.ops.size(), count);
  std::vector<Progress> at_end(program.ops.size());  // by op: what is known to be done when it ends
  std::array<Progress, kLanes> lanes;
  std::array<std::vector<int>, kLanes> open;  // ops that nothing waits for yet
  std::array<std::size_t, kLanes> closed{};
  const auto& known = lanes[index_of(Lane::compute)].done;
  for (int i = 0; i < count; ++i) {
    const Op& op = program.ops[static_cast<std::size_t>(i)];
    const std::size_t lane = index_of(op.lane);
    Progress& progress = lanes[lane];
    for (const int wait : op.waits) progress.include(at_end.at(static_cast<std::size_t>(wait)));
    if (op.lane != Lane::compute) progress.include(lanes[index_of(Lane::compute)]);
    progress.done[lane] = i;
    at_end[static_cast<std::size_t>(i)] = progress;
    if (op.lane != Lane::compute) {
      open[lane].push_back(i);
      continue;
    }
    by[static_cast<std::size_t>(i)] = i;
    for (std::size_t other = 0; other < kLanes; ++other) {
      for (; closed[other] < open[other].size(); ++closed[other]) {
        const int beside = open[other][closed[other]];
        if (beside > known[other]) break;
        by[static_cast<std::size_t>(beside)] = i;
      }
    }
  }
  return by;
}

namespace {

void check_lanes(const Program& program) {
  for (std::size_t index = 0; index < program.ops.size(); ++index) {
    const Op& op = program.ops[index];
    for (const int wait : op.waits) {
      const bool is_earlier = wait >= 0 && static_cast<std::size_t>(wait) < index;
      const Lane lane = is_earlier ? program.ops[static_cast<std::size_t>(wait)].lane : op.lane;
      if (lane == Lane::compute || lane == op.lane) {
        throw std::logic_error(
            fmt::format("op {} ({}) on the lane {} waits for op {}, which is not an earlier "
                        "op of another lane than `compute` and its own",
                        index, op.def->name, name_of(op.lane), wait));
      }
    }
  }
  const std::vector<int> by = done_by(program);
  const auto open = std::find(by.begin(), by.end(), static_cast<int>(by.size()));
  if (open != by.end()) {
    const auto index = static_cast<std::size_t>(open - by.begin());
    throw std::logic_error(fmt::format("nothing waits for op {} ({} in {}) on the lane {}", index,
                                       program.ops[index].def->name, program.ops[index].scope,
                                       name_of(program.ops[index].lane)));
  }
}

void check_inputs(const Program& program, const Op& op, std::size_t index, const std::vector<bool>& written) {
  for (const TensorId id : op.inputs) {
    if (id == kNone) continue;
    const bool exists = id >= 0 && static_cast<std::size_t>(id) < program.tensors.size();
    if (!exists) throw std::logic_error(fmt::format("op {} ({}): no tensor {}", index, op.def->name, id));
    if (!is_persistent(program.tensor(id).role) && !written[static_cast<std::size_t>(id)]) {
      throw std::logic_error(fmt::format("op {} ({} in {}) reads {} before it is written", index,
                                         op.def->name, op.scope, program.tensor(id).name));
    }
  }
}

}  // namespace

void check_ops(const Program& program) {
  std::vector<bool> written(program.tensors.size(), false);
  for (std::size_t index = 0; index < program.ops.size(); ++index) {
    const Op& op = program.ops[index];
    check_inputs(program, op, index, written);
    const auto specs = op.def->infer(program, op);
    if (specs.size() != op.outputs.size()) {
      throw std::logic_error(fmt::format("op {} ({}): {} outputs, its definition says {}", index,
                                         op.def->name, op.outputs.size(), specs.size()));
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (op.outputs[i] == kNone) continue;
      const bool is_part = !op.output_offset.empty() || !op.input_offset.empty();
      if (!is_part && specs[i].shape.numel() != program.shape(op.outputs[i]).numel()) {
        throw std::logic_error(fmt::format("op {} ({} in {}): output {} is {}, its definition says {}", index,
                                           op.def->name, op.scope, i, program.shape(op.outputs[i]).str(),
                                           specs[i].shape.str()));
      }
      written[static_cast<std::size_t>(op.outputs[i])] = true;
    }
  }
}

void check(const Program& program) {
  check_ops(program);
  check_lanes(program);
}

}  // namespace rooflm::program
