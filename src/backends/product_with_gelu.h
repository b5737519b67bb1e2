// Products with GELU or its gradient behind them as the two ops that they stand for: every backend's plain
// kernel.
#pragma once

#include <array>
#include <utility>

#include "backends/backend.h"

namespace rooflm::backends {

/// An op as `view` sees one, another in its place. `View`: program, op, what the kernels share.
template <class View>
View with_op(const View& view, const program::Op& op) {
  const auto& [program, own, shared] = view;
  return {program, op, shared};
}

/// matmul_gelu: the kernels of matmul and, on its result, of gelu; empty when one of them is missing. Inputs:
/// a, b, bias. Outputs: y, x.
template <class View, class Maker>
Kernel compose_matmul_gelu(const View& v, Maker make_product, Maker make_gelu) {
  program::Op product = v.op;
  product.outputs = {v.op.outputs.at(1)};
  program::Op gelu = v.op;
  gelu.inputs = product.outputs;
  gelu.outputs.resize(1);
  Kernel run_product = make_product(with_op(v, product));
  Kernel run_gelu = make_gelu(with_op(v, gelu));
  if (!run_product || !run_gelu) return {};
  return [run_product = std::move(run_product), run_gelu = std::move(run_gelu)](const KernelArgs& args) {
    const auto x = args.out.subspan(1, 1);
    run_product({.in = args.in, .out = x});
    run_gelu({.in = x, .out = args.out.first(1)});
  };
}

/// matmul_gelu_backward: matmul and, on its result, gelu_backward. Inputs: a, b, x. Output: dx.
template <class View, class Maker>
Kernel compose_matmul_gelu_backward(const View& v, Maker make_product, Maker make_gelu) {
  program::Op product = v.op;
  product.inputs.resize(2);
  program::Op gelu = v.op;
  gelu.inputs = {v.op.outputs.at(0), v.op.inputs.at(2)};
  Kernel run_product = make_product(with_op(v, product));
  Kernel run_gelu = make_gelu(with_op(v, gelu));
  if (!run_product || !run_gelu) return {};
  return [run_product = std::move(run_product), run_gelu = std::move(run_gelu)](const KernelArgs& args) {
    run_product({.in = args.in.first(2), .out = args.out});
    const std::array<void*, 2> operands{args.out[0], args.in[2]};
    run_gelu({.in = operands, .out = args.out});
  };
}

}  // namespace rooflm::backends
