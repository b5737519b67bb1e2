// Mixed precision: which tensors have which dtype.
#include "compile/passes/cast.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

/// Inserts copies of weights in `dtype`, each cast where it is first needed.
void insert_weight_casts(Program& program, DType dtype) {
  std::unordered_map<TensorId, TensorId> copies;
  std::vector<Op> rewritten;
  rewritten.reserve(program.ops.size());
  for (Op& op : program.ops) {
    if (op.def->weights_in_compute_dtype) {
      for (TensorId& id : op.inputs) {
        if (id == program::kNone || program.tensor(id).role != Role::weight) continue;
        if (program.tensor(id).dtype == dtype) continue;
        const auto [entry, is_new] = copies.try_emplace(id, program::kNone);
        if (is_new) {
          const program::Tensor& weight = program.tensor(id);
          program::Tensor copy{.name = weight.name + "." + std::string(core::name_of(dtype)),
                               .shape = weight.shape,
                               .dtype = dtype,
                               .shards = weight.shards};
          Op cast;
          cast.def = &ops::kCast;
          cast.inputs = {id};
          entry->second = program.add_tensor(std::move(copy));
          cast.outputs = {entry->second};
          cast.scope = op.scope;
          cast.micro_batch = op.micro_batch;
          rewritten.push_back(std::move(cast));
        }
        id = entry->second;
      }
    }
    rewritten.push_back(std::move(op));
  }
  program.ops = std::move(rewritten);
}

}  // namespace

void cast(Program& program, DType dtype) {
  if (dtype == DType::f32) return;
  for (program::Tensor& tensor : program.tensors) {
    if (tensor.dtype != DType::f32) continue;
    const bool is_compute = tensor.role == Role::activation || tensor.role == Role::activation_gradient ||
                            tensor.role == Role::workspace || tensor.role == Role::gathered_weight ||
                            tensor.role == Role::cache;
    if (dtype == DType::f64 || (is_compute && !tensor.full_precision)) tensor.dtype = dtype;
  }
  if (dtype != DType::f64) insert_weight_casts(program, dtype);
}

}  // namespace rooflm::passes
