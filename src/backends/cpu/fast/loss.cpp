// Softmax cross-entropy over rows of logits, forward, backward and both at once.
#include "backends/cpu/fast/loss.h"

#include <cmath>
#include <limits>

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

// log of the sum of exp over a row. Two passes: the row is in cache for the second.
template <Storage S>
float row_lse(std::int64_t valid, const S* logits) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr std::int64_t kStep = 4 * kLanes;
  F32x16 best[4] = {splat(kLowest), splat(kLowest), splat(kLowest), splat(kLowest)};
  std::int64_t i = 0;
  for (; i + kStep <= valid; i += kStep) {
    for (int s = 0; s < 4; ++s) best[s] = max(best[s], load(logits + i + s * kLanes));
  }
  for_lanes(i, valid, [&](auto j, auto count) {
    best[0] = max(best[0], pad_at(load_at(logits + j, count), count, kLowest));
  });
  const float top = max_lanes(max(max(best[0], best[1]), max(best[2], best[3])));

  F32x16 sums[4] = {};
  for (i = 0; i + kStep <= valid; i += kStep) {
    for (int s = 0; s < 4; ++s) sums[s] += exp(load(logits + i + s * kLanes) - top);
  }
  for_lanes(i, valid,
            [&](auto j, auto count) { sums[0] += pad_at(exp(load_at(logits + j, count) - top), count, 0); });
  return top + std::log(sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])));
}

template <Storage S>
float row_loss(const S* logits, std::int32_t target, float lse) {
  return target < 0 ? 0.0F : lse - static_cast<float>(logits[target]);
}

template <Storage S>
void row_backward(const LossShape& shape, const S* logits, std::int32_t target, float lse, float scale,
                  S* dlogits) {
  if (target < 0) scale = 0;
  // Taken before the loop, which may overwrite it.
  const float at_target = target < 0 ? 0.0F : static_cast<float>(logits[target]);
  for_lanes(0, shape.valid, [=](auto i, auto count) {
    store_at(dlogits + i, exp(load_at(logits + i, count) - lse) * scale, count);
  });
  const S zero(0.0F);
  if (target < 0) std::fill(dlogits, dlogits + shape.valid, zero);  // also where 0 * NaN is not 0
  std::fill(dlogits + shape.valid, dlogits + shape.cols, zero);
  if (target >= 0) dlogits[target] = S((std::exp(at_target - lse) - 1.0F) * scale);
}

// Rows that a thread takes at least.
constexpr std::int64_t kGrain = 1;

}  // namespace

template <Storage S>
void cross_entropy_forward(const LossShape& shape, const S* logits, const std::int32_t* targets,
                           float* losses, float* lse) {
  parallel_for(shape.rows, kGrain, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const S* x = logits + row * shape.cols;
      lse[row] = row_lse(shape.valid, x);
      losses[row] = row_loss(x, targets[row], lse[row]);
    }
  });
}

template <Storage S>
void cross_entropy_backward(const LossShape& shape, const S* logits, const std::int32_t* targets,
                            const float* lse, float scale, S* dlogits) {
  parallel_for(shape.rows, kGrain, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row * shape.cols;
      row_backward(shape, logits + at, targets[row], lse[row], scale, dlogits + at);
    }
  });
}

template <Storage S>
void cross_entropy_forward_backward(const LossShape& shape, S* logits, const std::int32_t* targets,
                                    float scale, float* losses, float* lse) {
  parallel_for(shape.rows, kGrain, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      S* x = logits + row * shape.cols;
      lse[row] = row_lse<S>(shape.valid, x);
      losses[row] = row_loss<S>(x, targets[row], lse[row]);
      row_backward<S>(shape, x, targets[row], lse[row], scale, x);
    }
  });
}

template void cross_entropy_forward(const LossShape&, const float*, const std::int32_t*, float*, float*);
template void cross_entropy_forward(const LossShape&, const core::Bf16*, const std::int32_t*, float*, float*);
template void cross_entropy_backward(const LossShape&, const float*, const std::int32_t*, const float*, float,
                                     float*);
template void cross_entropy_backward(const LossShape&, const core::Bf16*, const std::int32_t*, const float*,
                                     float, core::Bf16*);
template void cross_entropy_forward_backward(const LossShape&, float*, const std::int32_t*, float, float*,
                                             float*);
template void cross_entropy_forward_backward(const LossShape&, core::Bf16*, const std::int32_t*, float,
                                             float*, float*);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

const std::int32_t* ids(const void* data) { return static_cast<const std::int32_t*>(data); }

LossShape loss_shape(const OpView& v) {
  return {.rows = v.integer("rows"), .cols = v.in(0).shape[-1], .valid = v.integer("valid")};
}

}  // namespace

Kernel make_cross_entropy(const OpView& v) {
  if (!v.outputs_are({0, 1}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const LossShape shape = loss_shape(v);
    return [shape](const KernelArgs& args) {
      check_ids(ids(args.in[1]), shape.rows, shape.valid, "target", true);
      cross_entropy_forward(shape, static_cast<const S*>(args.in[0]), ids(args.in[1]),
                            static_cast<float*>(args.out[0]), static_cast<float*>(args.out[1]));
    };
  });
}

/// Inputs: logits, targets, lse.
/// With loss scaling it is the reference's.
Kernel make_cross_entropy_backward(const OpView& v) {
  constexpr std::size_t kLossScale = 3;
  const DType dtype = v.in(0).dtype;
  if (v.has_in(kLossScale)) return {};
  if (!v.inputs_are({2}, DType::f32) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const LossShape shape = loss_shape(v);
    const auto scale = static_cast<float>(v.op.attrs.number("grad_scale"));
    return [shape, scale](const KernelArgs& args) {
      check_ids(ids(args.in[1]), shape.rows, shape.valid, "target", true);
      cross_entropy_backward(shape, static_cast<const S*>(args.in[0]), ids(args.in[1]),
                             static_cast<const float*>(args.in[2]), scale, static_cast<S*>(args.out[0]));
    };
  });
}

MakerRows loss_rows() {
  namespace ops = program::ops;
  return {{&ops::kCrossEntropy, make_cross_entropy, "cross_entropy_forward"},
          {&ops::kCrossEntropyBackward, make_cross_entropy_backward, "cross_entropy_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
