// Binds the choice, the sort, the copies, the sums and the matmuls of experts to their ops.
#include "backends/cuda/kernels/experts/experts.h"

#include "backends/cuda/kernels/experts/grouped_gemm.h"
#include "backends/cuda/rows/rows.h"
#include "devices/cuda_workspaces.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

ExpertShape shape_of(const OpView& v, std::int64_t tokens) {
  const program::Attributes& attrs = v.op.attrs;
  return {.tokens = tokens, .experts = attrs.integer("experts"), .active = attrs.integer("active")};
}

RouteRule rule_of(const OpView& v) {
  const program::Attributes& attrs = v.op.attrs;
  const auto number_of = [&](const char* name) { return static_cast<int>(attrs.integer(name)); };
  return {.is_sigmoid = attrs.flag("sigmoid"),
          .is_normalised = attrs.flag("normalised"),
          .scale = v.number("scale"),
          .balance = attrs.number("balance"),
          .z_loss = attrs.number("z_loss"),
          .share = attrs.number("share"),
          .groups = attrs.has("groups") ? number_of("groups") : 1,
          .active_groups = attrs.has("groups") ? number_of("active_groups") : 1,
          .group_best = attrs.has("groups") ? number_of("group_best") : 1,
          .jitter = attrs.has("jitter") ? v.number("jitter") : -1.0F};
}

std::int32_t* ids_out(void* data) { return static_cast<std::int32_t*>(data); }

/// Shape and variant of a grouped matmul, as that of the batched matmul of equally many rows.
KernelInfo grouped_info(const OpView& v) {
  return {.variant = matmul_variant(v.integer("batch"), v.integer("m"), v.integer("n"), v.integer("k"),
                                    v.in(0).dtype, v.out(0).dtype)};
}

bool takes_factors(const OpView& v) {
  const DType factors = v.in(0).dtype;
  const DType result = v.out(0).dtype;
  return is_storage(factors) && v.inputs_are({1}, factors) && (result == DType::f32 || result == factors);
}

}  // namespace

/// Inputs: logits [, bias]. Outputs: weights, experts.
Kernel make_route(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, DType::f32)) return {};
  const bool has_bias = v.has_in(1);
  if (has_bias && v.in(1).dtype != DType::f32) return {};
  return [context = v.context, dtype, has_bias, shape = shape_of(v, rows_of(v.in(0))),
          rule = rule_of(v)](const KernelArgs& args) {
    launch_route(context->stream(), dtype, shape, rule, args.in[0], has_bias ? floats(args.in[1]) : nullptr,
                 floats(args.out[0]), ids_out(args.out[1]));
  };
}

/// Inputs: dweights, logits, experts [, state of the loss scale].
Kernel make_route_backward(const OpView& v) {
  constexpr std::size_t kLossScale = 3;
  const DType dtype = v.in(1).dtype;
  if (!is_storage(dtype) || !v.inputs_are({0, kLossScale}, DType::f32) || !v.outputs_are({0}, dtype))
    return {};
  const RouteRule rule = rule_of(v);
  const ExpertShape shape = shape_of(v, rows_of(v.in(1)));
  const std::int64_t bytes = rule.balance == 0 ? 0 : devices::route_gradient_bytes(shape.experts);
  auto* counts = bytes == 0 ? nullptr : ids_out(v.context->scratch(static_cast<std::size_t>(bytes)));
  const bool is_scaled = v.has_in(kLossScale);
  const auto run = [=, context = v.context](const KernelArgs& args) {
    launch_route_backward(context->stream(), dtype, shape, rule,
                          {.dweights = floats(args.in[0]),
                           .logits = args.in[1],
                           .experts = ids(args.in[2]),
                           .loss_scale = is_scaled ? floats(args.in[kLossScale]) : nullptr,
                           .dlogits = args.out[0],
                           .counts = counts});
  };
  constexpr std::int64_t kOfCounts = 2;
  return {run, {.workspace_bytes = bytes, .launches = 1 + (counts == nullptr ? 0 : kOfCounts)}};
}

Kernel make_dispatch(const OpView& v) {
  const ExpertShape shape = shape_of(v, v.in(0).shape[0]);
  const std::int64_t bytes = devices::dispatch_bytes(shape.rows(), shape.experts);
  auto* counts = ids_out(v.context->scratch(static_cast<std::size_t>(bytes)));
  const auto run = [=, context = v.context](const KernelArgs& args) {
    launch_dispatch(context->stream(), shape, ids(args.in[0]), ids_out(args.out[0]), ids_out(args.out[1]),
                    ids_out(args.out[2]), counts);
  };
  constexpr std::int64_t kLaunches = 3;
  return {run, {.workspace_bytes = bytes, .launches = kLaunches}};
}

/// Inputs: x, order, places [, weights].
Kernel make_gather_rows(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype) || !v.inputs_are({3}, DType::f32)) return {};
  const ExpertShape shape = shape_of(v, v.in(2).shape[0]);
  const std::int64_t cols = v.out(0).shape[-1];
  if (v.has_in(3)) {
    return [=, context = v.context](const KernelArgs& args) {
      launch_combine_backward(
          context->stream(), dtype, shape, cols,
          {.dy = args.in[0], .weights = floats(args.in[3]), .places = ids(args.in[2]), .drows = args.out[0]});
    };
  }
  return [=, context = v.context, bytes = static_cast<int>(core::size_of(dtype))](const KernelArgs& args) {
    launch_gather_rows(context->stream(), shape, cols, bytes, args.in[0], ids(args.in[2]), args.out[0]);
  };
}

/// Inputs: drows, places; or drows, weights, places, x. Outputs: dx [, dweights].
Kernel make_gather_rows_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const bool is_weighted = v.op.attrs.flag("weighs_input");
  const std::size_t places = is_weighted ? 2 : 1;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  const bool takes_weights = !is_weighted || (v.inputs_are({1}, DType::f32) && v.inputs_are({3}, dtype) &&
                                              v.outputs_are({1}, DType::f32));
  if (!takes_weights) return {};
  const auto run = [=, context = v.context, shape = shape_of(v, v.in(places).shape[0]),
                    cols = v.in(0).shape[-1]](const KernelArgs& args) {
    launch_combine(context->stream(), dtype, shape, cols, args.in[0],
                   is_weighted ? floats(args.in[1]) : nullptr, ids(args.in[places]), args.out[0]);
    if (!is_weighted) return;
    launch_combine_backward(context->stream(), dtype, shape, cols,
                            {.dy = args.in[3],
                             .rows = args.in[0],
                             .places = ids(args.in[places]),
                             .dweights = floats(args.out[1])});
  };
  return {run, {.launches = is_weighted ? 2 : 1}};
}

/// Inputs: rows, weights or none, places.
Kernel make_combine(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, DType::f32) || !v.outputs_are({0}, dtype)) return {};
  return [context = v.context, dtype, shape = shape_of(v, v.in(2).shape[0]), cols = v.in(0).shape[-1],
          has_weights = v.has_in(1)](const KernelArgs& args) {
    launch_combine(context->stream(), dtype, shape, cols, args.in[0],
                   has_weights ? floats(args.in[1]) : nullptr, ids(args.in[2]), args.out[0]);
  };
}

/// Inputs: dy, rows, weights or none, places. Outputs: drows [, dweights].
Kernel make_combine_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const bool has_weights = v.has_in(2);
  const bool takes_dtypes = is_storage(dtype) && v.inputs_are({1}, dtype) && v.inputs_are({2}, DType::f32) &&
                            v.outputs_are({0}, dtype) && (!has_weights || v.outputs_are({1}, DType::f32));
  if (!takes_dtypes) return {};
  const ExpertShape shape = shape_of(v, v.in(3).shape[0]);
  const std::int64_t cols = v.in(1).shape[-1];
  if (!has_weights) {
    return [=, context = v.context, bytes = static_cast<int>(core::size_of(dtype))](const KernelArgs& args) {
      launch_gather_rows(context->stream(), shape, cols, bytes, args.in[0], ids(args.in[3]), args.out[0]);
    };
  }
  return [=, context = v.context](const KernelArgs& args) {
    launch_combine_backward(context->stream(), dtype, shape, cols,
                            {.dy = args.in[0],
                             .rows = args.in[1],
                             .weights = floats(args.in[2]),
                             .places = ids(args.in[3]),
                             .drows = args.out[0],
                             .dweights = floats(args.out[1])});
  };
}

/// Inputs: rows, weights, offsets.
Kernel make_grouped_matmul(const OpView& v) {
  if (!takes_factors(v)) return {};
  const GroupedMatmul product{.factors = v.in(0).dtype,
                              .result = v.out(0).dtype,
                              .experts = v.in(1).shape[0],
                              .rows = v.out(0).shape.numel() / v.integer("n"),
                              .n = v.integer("n"),
                              .k = v.integer("k"),
                              .trans_b = v.op.attrs.flag("trans_b")};
  const auto run = [product, context = v.context](const KernelArgs& args) {
    GroupedMatmul each = product;
    each.a = args.in[0];
    each.b = args.in[1];
    each.offsets = ids(args.in[2]);
    each.c = args.out[0];
    each.multiprocessors = context->matmul_multiprocessors();
    launch_grouped_matmul(context->stream(), each);
  };
  return {run, grouped_info(v)};
}

/// Inputs: rows, rows, offsets. Output: the gradients of all experts' weights.
Kernel make_grouped_matmul_weight(const OpView& v) {
  if (!takes_factors(v)) return {};
  const GroupedMatmulWeight product{.factors = v.in(0).dtype,
                                    .result = v.out(0).dtype,
                                    .experts = v.in(2).shape.numel() - 1,
                                    .rows = v.in(0).shape.numel() / v.integer("m"),
                                    .m = v.integer("m"),
                                    .n = v.integer("n"),
                                    .accumulate = v.accumulates()};
  const auto run = [product, context = v.context, lane = v.op.lane](const KernelArgs& args) {
    GroupedMatmulWeight each = product;
    each.a = args.in[0];
    each.b = args.in[1];
    each.offsets = ids(args.in[2]);
    each.c = args.out[0];
    each.multiprocessors = context->matmul_multiprocessors();
    launch_grouped_matmul_weight(context->stream_of(lane), each);
  };
  return {run, grouped_info(v)};
}

MakerRows experts_rows() {
  namespace ops = program::ops;
  return {{&ops::kRoute, make_route, "route"},
          {&ops::kRouteBackward, make_route_backward, "route_backward"},
          {&ops::kDispatch, make_dispatch, "place_choices"},
          {&ops::kGatherRows, make_gather_rows, "gather_rows"},
          {&ops::kGatherRowsBackward, make_gather_rows_backward, "combine"},
          {&ops::kCombine, make_combine, "combine"},
          {&ops::kCombineBackward, make_combine_backward, "combine_backward"},
          {&ops::kGroupedMatmul, make_grouped_matmul, "grouped_matmul"},
          {&ops::kGroupedMatmulWeight, make_grouped_matmul_weight, "grouped_matmul_weight"}};
}

}  // namespace rooflm::backends::cuda
