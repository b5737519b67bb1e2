// Weights that no step changes as codes and scales.
#include "compile/passes/pack_weights.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "compile/passes/adapters.h"
#include "core/error.h"
#include "core/packed_weights.h"
#include "model/parameters.h"
#include "program/ops.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using program::Op;
using program::Program;
using program::TensorId;

/// The right factor of one plain matmul, or rows whose squares are summed.
bool reads_packed(const Op& op, std::size_t input) {
  if (op.is(ops::kRowSquares)) return true;
  return op.is(ops::kMatmul) && input == 1 && op.attrs.integer("batch") == 1 && op.input_offset.empty() &&
         !op.attrs.has("a_stride");
}

/// Copies of weights, and what they are of.
std::map<TensorId, TensorId> copies_of(const Program& p) {
  std::map<TensorId, TensorId> copies;
  for (const Op& op : p.ops)
    if (op.is(ops::kCast) && has_format(p.tensor(op.inputs[0]))) copies[op.outputs[0]] = op.inputs[0];
  return copies;
}

}  // namespace

bool has_format(const program::Tensor& weight) {
  return weight.role == program::Role::weight && weight.view_of == program::kNone &&
         model::is_layer_matrix(weight.name, weight.shape) && !is_adapter(weight.name);
}

void pack_weights(Program& program, core::WeightFormat format) {
  const core::DType dtype = core::dtype_of(format);
  const std::map<TensorId, TensorId> copies = copies_of(program);
  std::vector<bool> packs(program.tensors.size(), false);
  for (std::size_t id = 0; id < packs.size(); ++id) packs[id] = has_format(program.tensors[id]);
  for (const Op& op : program.ops) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId id = op.inputs[i];
      if (id == program::kNone || op.is(ops::kCast)) continue;
      const auto copy = copies.find(id);
      const TensorId weight = copy == copies.end() ? id : copy->second;
      if (!reads_packed(op, i)) packs[static_cast<std::size_t>(weight)] = false;
    }
  }
  const auto is_packed = [&](TensorId id) { return packs[static_cast<std::size_t>(id)]; };
  std::erase_if(program.ops, [&](const Op& op) {
    return op.is(ops::kCast) && has_format(program.tensor(op.inputs[0])) && is_packed(op.inputs[0]);
  });
  bool is_any = false;
  for (Op& op : program.ops) {
    if (!op.is(ops::kMatmul)) continue;
    const auto copy = copies.find(op.inputs[1]);
    const TensorId id = copy == copies.end() ? op.inputs[1] : copy->second;
    if (!is_packed(id)) continue;
    is_any = true;
    program::Tensor& weight = program.tensor(id);
    const std::string why = core::why_not_packed(dtype, weight.shape[0], weight.shape[1]);
    if (!why.empty())
      throw core::UsageError(fmt::format("--base {}: {}: {}", name_of(format), weight.name, why));
    if (id != op.inputs[1])
      program.tensor(op.inputs[1]).role = program::Role::activation;  // nothing reads it
    weight.dtype = dtype;
    op.inputs[1] = id;
  }
  if (!is_any)
    throw core::UsageError(
        fmt::format("--base {}: the model has no matrices that one matmul reads", name_of(format)));
}

}  // namespace rooflm::passes
