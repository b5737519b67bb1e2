// layernorm_backward that also sums its result over rows, as the two ops that it stands for.
#pragma once

#include <utility>

#include "backends/cpu/resources.h"

namespace rooflm::backends::cpu {

/// `norm`, a kernel of layernorm_backward, and, where the op asks for the sum, bias_backward of what it
/// wrote.
inline Kernel compose_norm_with_sum(const OpView& v, Kernel norm, Maker make_sum) {
  if (!v.op.attrs.flag("sum_dx") || !norm) return norm;
  constexpr std::size_t kSum = 3;
  program::Op sum = v.op;
  sum.inputs = {v.op.outputs.at(0)};
  sum.outputs = {v.op.outputs.at(kSum)};
  Kernel run_sum = make_sum({v.program, sum, v.resources});
  if (!run_sum) return {};
  return [norm = std::move(norm), run_sum = std::move(run_sum)](const KernelArgs& args) {
    norm(args);
    run_sum({.in = args.out.first(1), .out = args.out.subspan(kSum, 1)});
  };
}

}  // namespace rooflm::backends::cpu
