// cross_entropy_with_gradient as the two ops that it stands for.
#pragma once

#include <array>
#include <utility>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu {

/// The kernels of cross_entropy and cross_entropy_backward, one after the other: the same numbers. Inputs:
/// logits, targets [, state of the loss scale]. Outputs: dlogits, losses, lse.
inline Kernel compose_loss_with_gradient(const OpView& v, const MakerRow& loss_row,
                                         const MakerRow& gradient_row) {
  constexpr std::size_t kLossScale = 2;
  const bool is_scaled = v.has_in(kLossScale);
  program::Op loss = v.op;
  loss.inputs.resize(kLossScale);
  loss.outputs = {v.op.outputs.at(1), v.op.outputs.at(2)};
  program::Op gradient = v.op;
  gradient.inputs = loss.inputs;
  gradient.inputs.push_back(v.op.outputs.at(2));
  if (is_scaled) gradient.inputs.push_back(v.op.inputs[kLossScale]);
  gradient.outputs = {v.op.outputs.at(0)};
  Kernel run_loss = make_named(loss_row, {v.program, loss, v.context});
  Kernel run_gradient = make_named(gradient_row, {v.program, gradient, v.context});
  if (!run_loss || !run_gradient) return {};
  KernelInfo info = combined(std::array{run_loss, run_gradient});
  const auto run = [run_loss = std::move(run_loss), run_gradient = std::move(run_gradient),
                    is_scaled](const KernelArgs& args) {
    const std::array<void*, 2> losses{args.out[1], args.out[2]};
    run_loss({.in = args.in, .out = losses});
    const std::array<void*, 4> logits{args.in[0], args.in[1], args.out[2],
                                      is_scaled ? args.in[kLossScale] : nullptr};
    run_gradient({.in = logits, .out = args.out.first(1)});
  };
  return {run, std::move(info)};
}

}  // namespace rooflm::backends::cpu
