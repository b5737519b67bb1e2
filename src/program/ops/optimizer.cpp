// The optimizer step: global_norm, adamw, sgd, lion. All update in place. If tensors are split over ranks,
// the norm is computed as square_sum of each rank's parts, a sum over ranks, and norm_of_squares.
//
// `hyper` [4] fp32, written by the host before each step: learning rate, 1 - beta1^t, 1 - beta2^t, and a
// factor that multiplies the gradients. The factor is read only with the attribute `scaled` and is then
// written by loss_scale; if it is 0 the update changes nothing.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/ops.h"
#include "program/plain_form.h"
#include "program/update.h"

namespace rooflm::program::ops {
namespace {

/// norm [1] = sqrt(sum over all inputs of g^2), summed in double.
std::vector<Tensor> infer_global_norm(const Program&, const Op&) {
  return {{.shape = {1}, .role = Role::result, .full_precision = true}};
}

/// 2 per gradient element.
Cost cost_global_norm(const Program& p, const Op& op) {
  Cost cost;
  for (const TensorId gradient : op.inputs) {
    cost.elementwise_flop = core::Count(cost.elementwise_flop) + 2 * p.shape(gradient).numel();
  }
  return cost;
}

/// square [1] fp64 = sum over all inputs of g^2. No inputs: 0.
std::vector<Tensor> infer_square_sum(const Program&, const Op&) {
  return {{.shape = {1}, .dtype = core::DType::f64, .full_precision = true}};
}

/// norm [1] = sqrt(sum over square [n])
Cost cost_norm_of_squares(const Program& p, const Op& op) {
  return {.elementwise_flop = p.shape(op.inputs.at(0)).numel()};
}

/// Updates have the operands of program/update.h, and the attributes weight_decay, max_norm, copies, scaled.
/// With the attribute `sums` and those of a collective, each gradient is that of one rank, whole, and the
/// update reads the sum over the ranks of the elements that belong to its weight, from the operand's offset
/// on (passes/sum_in_update.h).
std::vector<Tensor> infer_update(const Program& p, const Op& op) {
  const UpdateView update(op);
  expect(update.count() > 0 && op.inputs.size() == update.weight_in(update.count()), op, [&] {
    return fmt::format("expected hyper, norm and, per tensor, weight, gradient and {} moments, got {} inputs",
                       update.moments(), op.inputs.size());
  });
  std::vector<Tensor> outputs;
  outputs.reserve(update.count() * (2 + update.moments()));
  const auto add = [&](TensorId id) {
    const Tensor& tensor = p.tensor(id);
    outputs.push_back({.shape = tensor.shape, .role = tensor.role, .full_precision = tensor.full_precision});
  };
  for (std::size_t i = 0; i < update.count(); ++i) {
    add(update.weight(i));
    for (std::size_t k = 0; k < update.moments(); ++k) add(update.moment(i, k));
  }
  for (std::size_t i = 0; update.has_copies() && i < update.count(); ++i) add(update.weight(i));
  return outputs;
}

/// Of each rank's gradients an update reads as many elements as its weights have: here those of this rank are
/// counted as often as they are read by any, which is what its memory delivers. parts - 1 additions each.
/// With one part: gradients that are a range of a larger tensor.
void add_sums(Cost& cost, const Program& p, const Op& op) {
  const UpdateView update(op);
  const std::int64_t parts = op.attrs.flag("sums") ? op.attrs.integer("parts") : 1;
  for (std::size_t i = 0; i < update.count(); ++i) {
    const Tensor& gradient = p.tensor(update.gradient(i));
    const core::Count elements = p.shape(update.weight(i)).numel();
    cost.elementwise_flop = (parts - 1) * elements + cost.elementwise_flop;
    cost.bytes_read =
        parts * elements * static_cast<std::int64_t>(core::size_of(gradient.dtype)) + cost.bytes_read;
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool is_gradient =
        i >= update.weight_in(0) && (i - update.gradient_in(0)) % (2 + update.moments()) == 0;
    if (op.inputs[i] != kNone && !is_gradient)
      cost.bytes_read = core::Count(cost.bytes_read) + p.tensor(op.inputs[i]).bytes();
  }
  for (const TensorId id : op.outputs) {
    if (id != kNone) cost.bytes_written = core::Count(cost.bytes_written) + p.tensor(id).own_bytes();
  }
}

Cost cost_update(const Program& p, const Op& op, std::int64_t flop_per_parameter) {
  const UpdateView update(op);
  Cost cost{.launches = static_cast<std::int64_t>(update.count())};
  for (std::size_t i = 0; i < update.count(); ++i) {
    cost.elementwise_flop =
        flop_per_parameter * core::Count(p.shape(update.weight(i)).numel()) + cost.elementwise_flop;
  }
  if (op.attrs.flag("sums") || !op.input_offset.empty()) add_sums(cost, p, op);
  return cost;
}

/// An update of many tensors equals one update per tensor. Those that sum over ranks have no other form.
void plain_update(PlainForm& f) {
  if (f.op().attrs.flag("sums")) return;
  const std::size_t count = UpdateOperands(f.op()).count();
  for (std::size_t i = 0; count > 1 && i < count; ++i) f.emit(single_update(f.op(), i));
}

/// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019), for a list of tensors:
///   g *= min(1, max_norm / (norm + 1e-6)) if there is a norm (as torch.nn.utils.clip_grad_norm_)
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   p -= lr * weight_decay * p;  p -= lr * (m / c1) / (sqrt(v / c2) + eps),  c1, c2 from `hyper`
/// Moments: m, v. Further attributes: beta1, beta2, eps. 14 FLOP per parameter.
Cost cost_adamw(const Program& p, const Op& op) { return cost_update(p, op, 14); }

/// The same with moments of 8 bits (core/dynamic_8bit.h), dequantised, updated in fp32 and quantised again in
/// blocks of 256 elements. Moments: codes of m, packed by four [(n + 3) / 4] int32; the largest magnitudes of
/// m's blocks [(n + 255) / 256]; the same of v. 4 more per parameter: two products, two divisions.
Cost cost_adamw_8bit(const Program& p, const Op& op) { return cost_update(p, op, 18); }

/// p -= lr * (clip(g) + weight_decay * p), for a list of tensors. 4 FLOP per parameter.
Cost cost_sgd(const Program& p, const Op& op) { return cost_update(p, op, 4); }

/// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023), for a list of tensors:
///   u = sign(beta1 m + (1 - beta1) clip(g)),  p -= lr * (u + weight_decay * p)
///   m = beta2 m + (1 - beta2) clip(g)
/// Moment: m. Further attributes: beta1, beta2. 11 FLOP per parameter.
Cost cost_lion(const Program& p, const Op& op) { return cost_update(p, op, 11); }

}  // namespace

const OpDef kGlobalNorm{
    .name = "global_norm", .work = Work::optimizer, .infer = infer_global_norm, .cost = cost_global_norm};
const OpDef kSquareSum{
    .name = "square_sum", .work = Work::optimizer, .infer = infer_square_sum, .cost = cost_global_norm};
const OpDef kNormOfSquares{.name = "norm_of_squares",
                           .work = Work::optimizer,
                           .infer = infer_global_norm,
                           .cost = cost_norm_of_squares};
const OpDef kAdamW{.name = "adamw",
                   .work = Work::optimizer,
                   .infer = infer_update,
                   .cost = cost_adamw,
                   .update = UpdateLayout{.moments = 2},
                   .plain = plain_update};
const OpDef kAdamW8Bit{.name = "adamw_8bit",
                       .work = Work::optimizer,
                       .infer = infer_update,
                       .cost = cost_adamw_8bit,
                       .update = UpdateLayout{.moments = 4},
                       .plain = plain_update};
const OpDef kSgd{.name = "sgd",
                 .work = Work::optimizer,
                 .infer = infer_update,
                 .cost = cost_sgd,
                 .update = UpdateLayout{.moments = 0},
                 .plain = plain_update};
const OpDef kLion{.name = "lion",
                  .work = Work::optimizer,
                  .infer = infer_update,
                  .cost = cost_lion,
                  .update = UpdateLayout{.moments = 1},
                  .plain = plain_update};

}  // namespace rooflm::program::ops
