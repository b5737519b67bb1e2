// The optimizer step: global_norm, adamw, sgd. All update in place.
//
// Runtime scalars `hyper` [4] fp32, written by the host before each step: learning rate, 1 - beta1^t,
// 1 - beta2^t, and what gradients are multiplied by first: read only with the attribute `scaled`, and written
// by loss_scale then; 0 there: the op leaves everything as it is.
#include <fmt/format.h>

#include "program/ops.h"

namespace rooflm::program::ops {
namespace {

/// norm [1] = sqrt(sum over all inputs of g^2), summed in double.
std::vector<Tensor> infer_global_norm(const Program&, const Op&) {
  return {{.shape = {1}, .role = Role::result, .full_precision = true}};
}

std::int64_t numel_of_inputs(const Program& p, const Op& op, std::size_t first, std::size_t stride) {
  std::int64_t n = 0;
  for (std::size_t i = first; i < op.inputs.size(); i += stride) n += p.shape(op.inputs[i]).numel();
  return n;
}

/// 2 per gradient element.
Cost cost_global_norm(const Program& p, const Op& op) {
  return {.elementwise_flop = 2 * numel_of_inputs(p, op, 0, 1)};
}

/// AdamW with decoupled decay (Loshchilov and Hutter, 2019), for a list of tensors:
///   g *= min(1, max_norm / (norm + 1e-6)) when a norm is given (as torch.nn.utils.clip_grad_norm_)
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   p -= lr * weight_decay * p;  p -= lr * (m / c1) / (sqrt(v / c2) + eps),  c1, c2 from `hyper`
/// Inputs: hyper, norm or kNone, then p, g, m, v of each tensor. Outputs: p, m, v of each tensor, then, with
/// the attribute `copies`, the copies of p in the compute dtype (kNone where a tensor has none). Attributes:
/// beta1, beta2, eps, weight_decay, max_norm, copies, scaled.
std::vector<Tensor> infer_adamw(const Program& p, const Op& op) {
  expect(op.inputs.size() >= 6 && (op.inputs.size() - 2) % 4 == 0, op,
         fmt::format("wants hyper, norm and p, g, m, v per tensor, got {} inputs", op.inputs.size()));
  std::vector<Tensor> outputs;
  const std::size_t count = (op.inputs.size() - 2) / 4;
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t operand : {0, 2, 3}) outputs.push_back(p.tensor(op.inputs[2 + 4 * i + operand]));
  }
  if (op.attrs.flag("copies")) {
    for (std::size_t i = 0; i < count; ++i) outputs.push_back(p.tensor(op.inputs[2 + 4 * i]));
  }
  return outputs;
}

/// 14 per parameter.
Cost cost_adamw(const Program& p, const Op& op) {
  return {.elementwise_flop = 14 * numel_of_inputs(p, op, 2, 4),
          .launches = static_cast<std::int64_t>(op.inputs.size() - 2) / 4};
}

/// p -= lr * (clip(g) + weight_decay * p). Inputs: hyper, norm or kNone, then p, g of each tensor. Outputs: p
/// of each, then the copies as in adamw.
std::vector<Tensor> infer_sgd(const Program& p, const Op& op) {
  std::vector<Tensor> outputs;
  for (std::size_t i = 2; i < op.inputs.size(); i += 2) outputs.push_back(p.tensor(op.inputs[i]));
  if (op.attrs.flag("copies")) {
    for (std::size_t i = 2; i < op.inputs.size(); i += 2) outputs.push_back(p.tensor(op.inputs[i]));
  }
  return outputs;
}

/// 4 per parameter.
Cost cost_sgd(const Program& p, const Op& op) {
  return {.elementwise_flop = 4 * numel_of_inputs(p, op, 2, 2),
          .launches = static_cast<std::int64_t>(op.inputs.size() - 2) / 2};
}

}  // namespace

const OpDef kGlobalNorm{.name = "global_norm", .infer = infer_global_norm, .cost = cost_global_norm};
const OpDef kAdamW{.name = "adamw", .infer = infer_adamw, .cost = cost_adamw};
const OpDef kSgd{.name = "sgd", .infer = infer_sgd, .cost = cost_sgd};

}  // namespace rooflm::program::ops
