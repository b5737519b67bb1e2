// Experts: choice, sorting, copies and sums of rows (program/ops/experts.cpp has the formulas).
//
// Activations are fp32, bf16 or fp16; the arithmetic is fp32, and every sum has one order. Launchers only
// submit, nothing depends on the host, so steps with them can be recorded. They throw core::Unavailable for
// another dtype, or for more experts than a block has shared memory for.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// K = `active` of E = `experts` for each of N = `tokens`; R = N K rows.
struct ExpertShape {
  std::int64_t tokens = 0, experts = 0, active = 0;
  [[nodiscard]] std::int64_t rows() const { return tokens * active; }
};

/// How scores become weights, and the losses of the router: the attributes of `route`.
struct RouteRule {
  bool is_sigmoid = false, is_normalised = false;
  float scale = 1;
  double balance = 0, z_loss = 0, share = 1;
  int groups = 1, active_groups = 1, group_best = 1;
  float jitter = -1;  ///< of a sparse mixer; below 0: none
};

/// logits [N, E] of `dtype`, bias fp32 [E] or null -> weights [N, K], experts [N, K].
void launch_route(Stream stream, core::DType dtype, const ExpertShape& shape, const RouteRule& rule,
                  const void* logits, const float* bias, float* weights, std::int32_t* experts);

struct RouteBackward {
  const float* dweights = nullptr;        ///< [N, K]
  const void* logits = nullptr;           ///< [N, E]
  const std::int32_t* experts = nullptr;  ///< [N, K]
  const float* loss_scale = nullptr;      ///< state of the loss scale, or null
  void* dlogits = nullptr;                ///< [N, E]
  std::int32_t* counts = nullptr;         ///< workspace [E], if there is a balance loss
};
void launch_route_backward(Stream stream, core::DType dtype, const ExpertShape& shape, const RouteRule& rule,
                           const RouteBackward& operands);

/// experts [N, K] -> order [R], places [N, K], offsets [E + 1]. `counts`: workspace of
/// devices::dispatch_bytes.
void launch_dispatch(Stream stream, const ExpertShape& shape, const std::int32_t* experts,
                     std::int32_t* order, std::int32_t* places, std::int32_t* offsets, std::int32_t* counts);

/// rows[places[n, k]] = x[n]: x [N, cols] of elements of `element_bytes`.
void launch_gather_rows(Stream stream, const ExpertShape& shape, std::int64_t cols, int element_bytes,
                        const void* x, const std::int32_t* places, void* rows);

/// y[n] = sum over k of weights[n, k] rows[places[n, k]], in the order of k; weights null: all are 1.
void launch_combine(Stream stream, core::DType dtype, const ExpertShape& shape, std::int64_t cols,
                    const void* rows, const float* weights, const std::int32_t* places, void* y);

/// drows[r] = weights[n, k] dy[n], dweights[n, k] = <dy[n], rows[r]>, where r = places[n, k]. Of a result
/// that is null, and of what it alone needs, nothing is read or written.
struct CombineBackward {
  const void* dy = nullptr;              ///< [N, cols]
  const void* rows = nullptr;            ///< [R, cols], of dweights
  const float* weights = nullptr;        ///< [N, K], of drows
  const std::int32_t* places = nullptr;  ///< [N, K]
  void* drows = nullptr;                 ///< [R, cols]; may be rows
  float* dweights = nullptr;             ///< [N, K]
};
void launch_combine_backward(Stream stream, core::DType dtype, const ExpertShape& shape, std::int64_t cols,
                             const CombineBackward& operands);

/// y[r] = x[r] + bias[e] of the rows r of each expert e, [R, cols]; y may be x. bias [E, cols] fp32.
void launch_grouped_bias_add(Stream stream, core::DType dtype, std::int64_t experts, std::int64_t rows,
                             std::int64_t cols, const void* x, const float* bias, const std::int32_t* offsets,
                             void* y);
/// db[e] (+)= sum of the rows of e of dy; zeros for an expert without rows, unless accumulated.
void launch_grouped_bias_backward(Stream stream, core::DType dtype, std::int64_t experts, std::int64_t cols,
                                  const void* dy, const std::int32_t* offsets, float* db, bool accumulate);

/// counts [E] (+)= the rows of each expert.
void launch_count_offsets(Stream stream, std::int64_t experts, const std::int32_t* offsets,
                          std::int64_t* counts, bool accumulate);
/// to[e] = bias[e] + rate sign(mean of counts - counts[e]); to may be bias.
void launch_balance_bias(Stream stream, std::int64_t experts, float rate, const std::int64_t* counts,
                         const float* bias, float* to);

/// y[r] = sigmoid(gate[r]) x[r]; y may be x.
void launch_gate_rows(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols, const void* x,
                      const void* gate, void* y);
/// dx[r] = s dy[r], dgate[r] = s (1 - s) <dy[r], x[r]>, s = sigmoid(gate[r]); dx may be dy.
void launch_gate_rows_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t cols,
                               const void* dy, const void* x, const void* gate, void* dx, void* dgate);

}  // namespace rooflm::backends::cuda
