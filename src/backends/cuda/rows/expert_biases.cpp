// Binds biases of experts, biases that balance their loads, and gates of whole rows to their ops.
#include "backends/cuda/kernels/experts/experts.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

}  // namespace

/// Inputs: x, bias, offsets.
Kernel make_grouped_bias_add(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, DType::f32) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, experts = v.in(1).shape[0], rows = rows_of(v.in(0)),
          cols = v.in(0).shape[-1]](const KernelArgs& args) {
    launch_grouped_bias_add(context->stream(), dtype, experts, rows, cols, args.in[0], floats(args.in[1]),
                            ids(args.in[2]), args.out[0]);
  };
}

/// Inputs: dy, offsets.
Kernel make_grouped_bias_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, DType::f32)) return {};
  return [context = v.context, dtype, experts = v.out(0).shape[0], cols = v.out(0).shape[-1],
          accumulate = v.accumulates()](const KernelArgs& args) {
    launch_grouped_bias_backward(context->stream(), dtype, experts, cols, args.in[0], ids(args.in[1]),
                                 floats(args.out[0]), accumulate);
  };
}

/// Inputs: bias, offsets of each micro-batch.
Kernel make_balance_bias(const OpView& v) {
  if (!v.inputs_are({0}, DType::f32) || !v.outputs_are({0}, DType::f32)) return {};
  const std::int64_t experts = v.out(0).shape.numel();
  const std::size_t bytes = static_cast<std::size_t>(experts) * sizeof(std::int64_t);
  auto* counts = static_cast<std::int64_t*>(v.context->scratch(bytes));
  const std::size_t inputs = v.op.inputs.size();
  const auto run = [=, context = v.context, rate = v.number("rate")](const KernelArgs& args) {
    for (std::size_t i = 1; i < inputs; ++i)
      launch_count_offsets(context->stream(), experts, ids(args.in[i]), counts, i > 1);
    launch_balance_bias(context->stream(), experts, rate, counts, floats(args.in[0]), floats(args.out[0]));
  };
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = static_cast<std::int64_t>(inputs)}};
}

/// Inputs: x, gate.
Kernel make_gate_rows(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, rows = rows_of(v.in(0)),
          cols = v.in(0).shape[-1]](const KernelArgs& args) {
    launch_gate_rows(context->stream(), dtype, rows, cols, args.in[0], args.in[1], args.out[0]);
  };
}

/// Inputs: dy, x, gate. Outputs: dx, dgate.
Kernel make_gate_rows_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1, 2}, dtype) || !v.outputs_are({0, 1}, dtype)) return {};
  return [context = v.context, dtype, rows = rows_of(v.in(1)),
          cols = v.in(1).shape[-1]](const KernelArgs& args) {
    launch_gate_rows_backward(context->stream(), dtype, rows, cols, args.in[0], args.in[1], args.in[2],
                              args.out[0], args.out[1]);
  };
}

MakerRows expert_biases_rows() {
  namespace ops = program::ops;
  return {{&ops::kGroupedBiasAdd, make_grouped_bias_add, "grouped_bias_add"},
          {&ops::kGroupedBiasBackward, make_grouped_bias_backward, "grouped_bias_backward"},
          {&ops::kBalanceBias, make_balance_bias, "balance_bias"},
          {&ops::kGateRows, make_gate_rows, "gate_rows"},
          {&ops::kGateRowsBackward, make_gate_rows_backward, "gate_rows_backward"}};
}

}  // namespace rooflm::backends::cuda
