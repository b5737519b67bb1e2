// Less memory and traffic for the persistent state and the updates of steps in 16 bits.
#include "compile/passes/compact_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compile/passes/adapters.h"
#include "compile/passes/words.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

using program::is_update;

/// Planes begin at multiples of this many elements, so kernels can read them 16 bytes at a time.
constexpr std::int64_t kPlaneUnit = 8;

/// The input that the op adds to every row, or kNone.
TensorId bias_of(const Op& op) {
  const auto input = static_cast<std::size_t>(op.def->bias_input);
  return op.def->bias_input >= 0 && input < op.inputs.size() ? op.inputs[input] : program::kNone;
}

/// For each tensor, whether an op other than an update, a `cast`, a matmul's bias or row_squares, which reads
/// any dtype, reads it in fp32.
std::vector<bool> needed_whole(const Program& p) {
  std::vector<bool> needed(p.tensors.size(), false);
  for (const Op& op : p.ops) {
    if (is_update(op) || op.is(ops::kCast) || op.is(ops::kRowSquares)) continue;
    for (const TensorId id : op.inputs) {
      if (id != program::kNone && id != bias_of(op)) needed[static_cast<std::size_t>(id)] = true;
    }
  }
  return needed;
}

/// Nor parts of what as a whole cannot be: halves round ties otherwise than casts, and ZeRO changes no bit.
bool can_be_halved(const Tensor& weight) {
  return weight.role == Role::weight && weight.dtype == DType::f32 && weight.view_of == program::kNone &&
         weight.shape.numel() % kPlaneUnit == 0 && program::whole_shape(weight).numel() % kPlaneUnit == 0;
}

/// Matmuls read their biases as views of the upper halves.
void share_biases(Program& program, DType dtype, const std::vector<bool>& needed) {
  std::map<TensorId, TensorId> views;
  for (Op& op : program.ops) {
    const TensorId bias = bias_of(op);
    if (bias == program::kNone) continue;
    if (!can_be_halved(program.tensor(bias)) || needed[static_cast<std::size_t>(bias)]) continue;
    const auto [entry, is_new] = views.try_emplace(bias, program::kNone);
    if (is_new) {
      Tensor view = program.tensor(bias);
      view.name += fmt::format(".{}", core::name_of(dtype));
      view.dtype = dtype;
      view.view_of = bias;
      entry->second = program.add_tensor(std::move(view));
    }
    op.inputs[static_cast<std::size_t>(op.def->bias_input)] = entry->second;
  }
  for (const auto& [bias, view] : views) program.tensor(bias).halves = dtype;
}

/// The ops that write and read each gradient.
struct Uses {
  int matmuls = 0;  ///< number of matmuls that write all of it
  bool others = false;
};

bool writes_whole(const Op& op) {
  return ops::is_matmul(op) && !op.attrs.flag("accumulate") && op.output_offset.empty();
}

/// Whether the op only sums its operand over ranks that have the same ops. Stages that share a tied weight
/// have not: one has the head's gradient, the other the embedding's.
bool passes_on(const Op& op) {
  if (op.is(ops::kAllReduce)) return program::group_of(op) != program::Group::tied;
  return op.is(ops::kReduceScatter) && !op.attrs.flag("accumulate");
}

/// Whether its owner, maybe another rank, multiplies it with itself.
bool is_squared(const Tensor& part, OptimizerKind optimizer) {
  return program::is_owned(part) && optimizer == OptimizerKind::shampoo;
}

std::vector<Uses> uses_of_gradients(const Program& p, OptimizerKind optimizer) {
  std::vector<Uses> uses(p.tensors.size());
  for (const Op& op : p.ops) {
    // Ranks sum gradients in the gradients' own dtype.
    if (passes_on(op)) continue;
    for (const TensorId id : op.outputs) {
      if (id == program::kNone) continue;
      Uses& use = uses[static_cast<std::size_t>(id)];
      if (writes_whole(op)) {
        ++use.matmuls;
      } else {
        use.others = true;
      }
    }
    if (is_update(op) || op.is(ops::kGlobalNorm) || op.is(ops::kMomentum)) continue;
    for (const TensorId id : op.inputs) {
      if (id != program::kNone) uses[static_cast<std::size_t>(id)].others = true;
    }
  }
  // A part has the dtype of the whole, so the whole is also used as its part is: later micro-batches may be
  // added to that, or another stage's gradient.
  for (std::size_t at = p.ops.size(); at-- > 0;) {
    const Op& op = p.ops[at];
    if (!op.is(ops::kReduceScatter) || !passes_on(op)) continue;
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (uses[static_cast<std::size_t>(op.outputs[i])].others ||
          is_squared(p.tensor(op.outputs[i]), optimizer))
        uses[static_cast<std::size_t>(op.inputs[i])].others = true;
  }
  return uses;
}

}  // namespace

void share_halves(Program& program, DType dtype) {
  const std::vector<bool> needed = needed_whole(program);
  const auto shares = [&](const Op& op) {
    if (!op.is(ops::kCast) || op.phase != program::Phase::setup) return false;
    return can_be_halved(program.tensor(op.inputs[0])) && program.tensor(op.outputs[0]).dtype == dtype &&
           !needed[static_cast<std::size_t>(op.inputs[0])];
  };
  for (const Op& op : program.ops) {
    if (!shares(op)) continue;
    program.tensor(op.inputs[0]).halves = dtype;
    program.tensor(op.outputs[0]).view_of = op.inputs[0];
  }
  std::erase_if(program.ops, shares);
  share_biases(program, dtype, needed);
}

void narrow_weights(Program& program, DType dtype, bool biases, bool frozen) {
  const std::vector<bool> needed = needed_whole(program);
  const auto narrows = [&](TensorId id) {
    const Tensor& weight = program.tensor(id);
    return weight.role == Role::weight && weight.view_of == program::kNone &&
           !needed[static_cast<std::size_t>(id)] && !(frozen && is_adapter(weight.name));
  };
  std::map<TensorId, TensorId> weight_of;  // by copy
  std::erase_if(program.ops, [&](const Op& op) {
    if (!op.is(ops::kCast) || !narrows(op.inputs[0]) || program.tensor(op.outputs[0]).dtype != dtype)
      return false;
    weight_of[op.outputs[0]] = op.inputs[0];
    return true;
  });
  for (Op& op : program.ops) {
    for (TensorId& id : op.inputs) {
      if (const auto found = weight_of.find(id); found != weight_of.end()) id = found->second;
    }
    const TensorId bias = bias_of(op);
    if (biases && bias != program::kNone && narrows(bias)) program.tensor(bias).dtype = dtype;
  }
  for (const auto& [copy, weight] : weight_of) {
    program.tensor(weight).dtype = dtype;
    program.tensor(copy).role = Role::activation;  // nothing reads it
  }
}

void cast_weights_once(Program& program) {
  const auto is_once = [&](const Op& op) {
    return op.is(ops::kFp8Cast) && program.tensor(op.inputs[0]).role == Role::weight;
  };
  std::stable_partition(program.ops.begin(), program.ops.end(), is_once);
  for (Op& op : program.ops) {
    if (!is_once(op)) break;
    op.phase = program::Phase::setup;
    for (const TensorId id : op.outputs)
      if (id != program::kNone) program.tensor(id).role = Role::weight;
  }
}

void narrow_gradients(Program& program, DType dtype, OptimizerKind optimizer) {
  const std::vector<Uses> uses = uses_of_gradients(program, optimizer);
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    Tensor& tensor = program.tensors[id];
    if (tensor.role != Role::gradient || tensor.shape.rank() < 2) continue;
    if (uses[id].matmuls == 1 && !uses[id].others) tensor.dtype = dtype;
  }
  for (const Op& op : program.ops) {
    if (!op.is(ops::kReduceScatter) || !passes_on(op)) continue;
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      program.tensor(op.outputs[i]).dtype = program.tensor(op.inputs[i]).dtype;
  }
}

}  // namespace rooflm::passes
