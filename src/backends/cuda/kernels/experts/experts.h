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

/// drows[r] = weights[n, k] dy[n], dweights[n, k] = <dy[n], rows[r]>, where r = places[n, k].
struct CombineBackward {
  const void* dy = nullptr;              ///< [N, cols]
  const void* rows = nullptr;            ///< [R, cols]
  const float* weights = nullptr;        ///< [N, K]
  const std::int32_t* places = nullptr;  ///< [N, K]
  void* drows = nullptr;                 ///< [R, cols]; may be rows
  float* dweights = nullptr;             ///< [N, K]
};
void launch_combine_backward(Stream stream, core::DType dtype, const ExpertShape& shape, std::int64_t cols,
                             const CombineBackward& operands);

}  // namespace rooflm::backends::cuda
