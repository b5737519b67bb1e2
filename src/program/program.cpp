// A training step as data: a list of ops on named tensors.
#include "program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace rooflm::program {

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
    case Role::gradient:
      return "gradient";
    case Role::activation:
      return "activation";
    case Role::activation_gradient:
      return "activation_gradient";
    case Role::workspace:
      return "workspace";
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

Cost& Cost::operator+=(const Cost& other) {
  matmul_flop += other.matmul_flop;
  elementwise_flop += other.elementwise_flop;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  launches += other.launches;
  return *this;
}

TensorId Program::add_tensor(Tensor tensor) {
  tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors.size() - 1);
}

TensorId Program::find(std::string_view name) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_persistent(tensors[i].role) && tensors[i].name == name) return static_cast<TensorId>(i);
  }
  return kNone;
}

std::vector<TensorId> Program::append(Op op, const std::string& name,
                                      const std::vector<core::Shape>& shapes) {
  auto specs = op.def->infer(*this, op);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].name = i == 0 ? name : fmt::format("{}.{}", name, i);
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

Cost cost_of(const Program& program, const Op& op) {
  Cost cost = op.def->cost(program, op);
  if (cost.bytes_read == 0 && cost.bytes_written == 0) {
    for (const TensorId id : op.inputs) {
      if (id != kNone) cost.bytes_read += program.tensor(id).bytes();
    }
    for (const TensorId id : op.outputs) {
      if (id == kNone) continue;
      cost.bytes_written += program.tensor(id).own_bytes();
      const bool adds_to_output = op.attrs.flag("accumulate") && program.tensor(id).role == Role::gradient;
      if (adds_to_output) cost.bytes_read += program.tensor(id).bytes();
    }
  }
  return cost;
}

namespace {

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

void check(const Program& program) {
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

}  // namespace rooflm::program
