// cross_entropy_with_gradient as the two ops that it stands for.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu {

/// The kernels of cross_entropy and cross_entropy_backward, one after the other: the same numbers. Inputs:
/// logits, targets [, state of the loss scale]. Outputs: dlogits, losses, lse.
inline Kernel compose_loss_with_gradient(const OpView& v, Maker make_loss, Maker make_gradient) {
  constexpr std::size_t kLossInputs = 2;
  program::Op loss = v.op;
  loss.inputs.resize(kLossInputs);
  loss.outputs = {v.op.outputs.at(1), v.op.outputs.at(2)};
  program::Op gradient = v.op;
  gradient.inputs.insert(gradient.inputs.begin() + kLossInputs, v.op.outputs.at(2));
  gradient.outputs = {v.op.outputs.at(0)};
  Kernel run_loss = make_loss({v.program, loss, v.resources});
  Kernel run_gradient = make_gradient({v.program, gradient, v.resources});
  if (!run_loss || !run_gradient) return {};
  return [run_loss = std::move(run_loss), run_gradient = std::move(run_gradient)](const KernelArgs& args) {
    const std::array<void*, 2> losses{args.out[1], args.out[2]};
    run_loss({.in = args.in.first(kLossInputs), .out = losses});
    void* scale = args.in.size() > kLossInputs ? args.in[kLossInputs] : nullptr;
    const std::array<void*, 4> logits{args.in[0], args.in[1], args.out[2], scale};
    run_gradient({.in = std::span(logits).first(args.in.size() + 1), .out = args.out.first(1)});
  };
}

}  // namespace rooflm::backends::cpu
