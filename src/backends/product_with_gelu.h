// Products with GELU or its gradient behind them as the two ops that they stand for: every backend's plain
// kernel.
#pragma once

#include <array>
#include <utility>

#include "backends/op_view.h"

namespace rooflm::backends {

/// An op as `view` sees one, another in its place.
template <class Context>
OpView<Context> with_op(const OpView<Context>& view, const program::Op& op) {
  return {view.program, op, view.context};
}

/// matmul_gelu: the kernels of matmul and, on its result, of gelu; empty when one of them is missing. Inputs:
/// a, b, bias. Outputs: y, x.
template <class Context>
Kernel compose_matmul_gelu(const OpView<Context>& v, const MakerRow<Context>& product_row,
                           const MakerRow<Context>& gelu_row) {
  program::Op product = v.op;
  product.outputs = {v.op.outputs.at(1)};
  program::Op gelu = v.op;
  gelu.inputs = product.outputs;
  gelu.outputs.resize(1);
  Kernel run_product = make_named(product_row, with_op(v, product));
  Kernel run_gelu = make_named(gelu_row, with_op(v, gelu));
  if (!run_product || !run_gelu) return {};
  KernelInfo info = combined(std::array{run_product, run_gelu});
  const auto run = [run_product = std::move(run_product),
                    run_gelu = std::move(run_gelu)](const KernelArgs& args) {
    const auto x = args.out.subspan(1, 1);
    run_product({.in = args.in, .out = x});
    run_gelu({.in = x, .out = args.out.first(1)});
  };
  return {run, std::move(info)};
}

/// matmul_gelu_backward: matmul and, on its result, gelu_backward. Inputs: a, b, x. Output: dx.
template <class Context>
Kernel compose_matmul_gelu_backward(const OpView<Context>& v, const MakerRow<Context>& product_row,
                                    const MakerRow<Context>& gelu_row) {
  program::Op product = v.op;
  product.inputs.resize(2);
  program::Op gelu = v.op;
  gelu.inputs = {v.op.outputs.at(0), v.op.inputs.at(2)};
  Kernel run_product = make_named(product_row, with_op(v, product));
  Kernel run_gelu = make_named(gelu_row, with_op(v, gelu));
  if (!run_product || !run_gelu) return {};
  KernelInfo info = combined(std::array{run_product, run_gelu});
  const auto run = [run_product = std::move(run_product),
                    run_gelu = std::move(run_gelu)](const KernelArgs& args) {
    run_product({.in = args.in.first(2), .out = args.out});
    const std::array<void*, 2> operands{args.out[0], args.in[2]};
    run_gelu({.in = operands, .out = args.out});
  };
  return {run, std::move(info)};
}

}  // namespace rooflm::backends
