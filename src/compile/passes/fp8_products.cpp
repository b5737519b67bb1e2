// Products of layers that read fp8.
#include "compile/passes/fp8_products.h"

#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/scope.h"
#include "program/ops.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using core::DType;
using program::Op;
using program::Phase;
using program::Program;
using program::Role;
using program::TensorId;

bool is_product_of_layer(const Op& op) {
  const bool is_product = op.is(ops::kMatmul) || op.is(ops::kMatmulGelu) || op.is(ops::kMatmulGeluBackward);
  return is_product && op.attrs.integer("batch") == 1 && core::Scope(op.scope).layer().has_value();
}

std::vector<program::Tensor> infer_largest(const Program&, const Op&) {
  return {{.shape = {1}, .full_precision = true}};
}
program::Cost cost_largest(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * p.shape(op.inputs.at(0)).numel()};
}

class Caster {
 public:
  Caster(Program& step, Fp8Scales scales) : step_(&step), scales_(scales) {}

  void run() {
    std::vector<Op> rewritten;
    rewritten.reserve(step_->ops.size());
    for (Op& op : step_->ops) {
      if (is_product_of_layer(op)) {
        const bool along_k[] = {!op.attrs.flag("trans_a"), op.attrs.flag("trans_b")};
        for (const std::size_t i : {0U, 1U}) op.inputs[i] = copy_of(op, op.inputs[i], along_k[i], rewritten);
      }
      // What an op writes anew has no copies yet.
      for (const TensorId id : op.outputs) forget(id);
      rewritten.push_back(std::move(op));
    }
    step_->ops = std::move(rewritten);
  }

 private:
  using Key = std::tuple<TensorId, Phase, int, bool>;

  TensorId copy_of(const Op& op, TensorId id, bool along_k, std::vector<Op>& rewritten) {
    if (step_->tensor(id).dtype != DType::bf16) return id;
    const auto [entry, is_new] =
        copies_.try_emplace(Key{id, op.phase, op.micro_batch, along_k}, program::kNone);
    if (!is_new) return entry->second;
    const program::Tensor& from = step_->tensor(id);
    Op cast;
    cast.def = &ops::kCast;
    cast.inputs = {id};
    cast.phase = op.phase;
    cast.scope = op.scope;
    cast.micro_batch = op.micro_batch;
    cast.recomputed = op.recomputed;
    entry->second = step_->add_tensor({.name = from.name + (along_k ? ".fp8" : ".fp8_transposed"),
                                       .shape = from.shape,
                                       .dtype = DType::f8,
                                       .role = Role::workspace});
    cast.outputs = {entry->second};
    if (needs_scale(op, id)) rewritten.push_back(largest_value(cast));
    rewritten.push_back(std::move(cast));
    return entry->second;
  }

  /// Once for each tensor, where it is first cast.
  bool needs_scale(const Op& op, TensorId id) {
    if (scales_ == Fp8Scales::delayed) return false;
    const Role role = step_->tensor(id).role;
    if (role == Role::weight || role == Role::gathered_weight) return false;
    const bool is_forward = op.phase == Phase::forward || (op.recomputed && scales_ == Fp8Scales::own);
    return (is_forward || role == Role::activation_gradient) && scaled_.insert(id).second;
  }

  Op largest_value(const Op& cast) {
    Op op = cast;
    op.def = &kLargestValue;
    op.outputs = {
        step_->add_tensor({.name = "scale", .shape = {1}, .role = Role::workspace, .full_precision = true})};
    return op;
  }

  void forget(TensorId id) {
    const auto first = copies_.lower_bound(Key{id, Phase::setup, 0, false});
    auto last = first;
    while (last != copies_.end() && std::get<0>(last->first) == id) ++last;
    copies_.erase(first, last);
  }

  Program* step_;
  Fp8Scales scales_;
  std::map<Key, TensorId> copies_;
  std::set<TensorId> scaled_;
};

}  // namespace

const program::OpDef kLargestValue{.name = "largest_value", .infer = infer_largest, .cost = cost_largest};

void fp8_products(Program& step, Fp8Scales scales) { Caster(step, scales).run(); }

}  // namespace rooflm::passes
