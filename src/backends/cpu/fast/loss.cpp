// Softmax cross-entropy over rows of logits, forward, backward and both at once.
#include "backends/cpu/fast/loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec_math.h"
#include "backends/cpu/resources.h"
#include "backends/cpu/token_ids.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

// Elements that stay in L1 between their maximum and their exp.
constexpr std::int64_t kChunk = 1024;

float greatest(std::int64_t begin, std::int64_t end, const float* x) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Bundle best = splat_bundle(kLowest);
  std::int64_t i = begin;
  for (; i + Bundle::kElements <= end; i += Bundle::kElements)
    best = max(best, load_at(x + i, BundleGroup{}));
  Floats top = max_of(best);
  for_lanes(i, end,
            [&](auto j, auto count) { top = max(top, pad_at(load_at(x + j, count), count, kLowest)); });
  return max_lanes(top);
}

// Maps bf16 bits to integers in the same order, by flipping all bits but the sign of negative numbers. An
// involution.
template <class Integers>
ROOFLM_INLINE Integers ordered(Integers bits) {
  return bits ^ ((bits >> 15) & 0x7fff);
}

// Vectors hold twice as many elements as in fp32. A NaN without sign is the greatest.
float greatest(std::int64_t begin, std::int64_t end, const core::Bf16* x) {
  using Integers = std::int16_t __attribute__((vector_size(sizeof(Floats))));
  constexpr std::int64_t kCount = sizeof(Integers) / 2;
  Integers best[2] = {Integers{} + INT16_MIN, Integers{} + INT16_MIN};
  std::int64_t i = begin;
  for (; i + 2 * kCount <= end; i += 2 * kCount) {
    for (int k = 0; k < 2; ++k) {
      Integers bits;
      std::memcpy(&bits, x + i + k * kCount, sizeof bits);
      const Integers next = ordered(bits);
      best[k] = next > best[k] ? next : best[k];
    }
  }
  std::int16_t top = INT16_MIN;
  for (std::int64_t k = 0; k < kCount; ++k) top = std::max({top, best[0][k], best[1][k]});
  for (; i < end; ++i) top = std::max(top, ordered(static_cast<std::int16_t>(x[i].bits)));
  core::Bf16 number;
  number.bits = static_cast<std::uint16_t>(ordered(top));
  return static_cast<float>(number);
}

// log sum exp of a row, read once: the sum is rescaled when a chunk has a greater maximum.
template <Storage S>
float row_lse(std::int64_t valid, const S* logits) {
  float top = -std::numeric_limits<float>::infinity();
  Bundle sums = splat_bundle(0);
  Floats rest{};
  for (std::int64_t begin = 0; begin < valid; begin += kChunk) {
    const std::int64_t end = std::min(valid, begin + kChunk);
    if (const float next = greatest(begin, end, logits); !(next <= top)) {
      const float factor = std::exp(top - next);
      sums = sums * factor;
      rest *= factor;
      top = next;
    }
    std::int64_t i = begin;
    for (; i + Bundle::kElements <= end; i += Bundle::kElements) {
      // Prefetches the next chunk: memory would be idle while this one is computed.
      fetch(logits + i + kChunk, BundleGroup{});
      sums = sums + exp_below<S>(load_at(logits + i, BundleGroup{}), top);
    }
    for_lanes(i, end, [&](auto j, auto count) {
      rest += pad_at(exp_below<S>(load_at(logits + j, count), top), count, 0);
    });
  }
  return top + std::log(sum_lanes(sum_of(sums) + rest));
}

template <Storage S>
float row_loss(const S* logits, std::int32_t target, float lse) {
  return target < 0 ? 0.0F : lse - static_cast<float>(logits[target]);
}

template <Storage S>
void row_backward(const LossShape& shape, const S* logits, std::int32_t target, float lse, float scale,
                  S* dlogits, bool streams) {
  if (target < 0) scale = 0;
  // Read before the loop, which may overwrite it.
  const float at_target = target < 0 ? 0.0F : static_cast<float>(logits[target]);
  for_bundles_to(dlogits, streams, 0, shape.valid, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    store_at(dlogits + i, exp<S>(load_at(logits + i, group) - lse) * scale, group);
  });
  const S zero(0.0F);
  if (target < 0) std::fill(dlogits, dlogits + shape.valid, zero);  // explicit, because 0 * NaN is not 0
  std::fill(dlogits + shape.valid, dlogits + shape.cols, zero);
  if (target >= 0) dlogits[target] = S((std::exp(at_target - lse) - 1.0F) * scale);
}

template <Storage S>
bool streams_gradient(const LossShape& shape, const S* logits, const S* dlogits) {
  return dlogits != logits && is_streamed(shape.rows * shape.cols * static_cast<std::int64_t>(sizeof(S)));
}

// Least rows per thread.
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
  const bool streams = streams_gradient(shape, logits, dlogits);
  parallel_for(shape.rows, kGrain, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row * shape.cols;
      row_backward(shape, logits + at, targets[row], lse[row], scale, dlogits + at, streams);
    }
    if (streams) end_stream();
  });
}

template <Storage S>
void cross_entropy_with_gradient(const LossShape& shape, const S* logits, const std::int32_t* targets,
                                 float scale, float* losses, float* lse, S* dlogits) {
  const bool streams = streams_gradient(shape, logits, dlogits);
  parallel_for(shape.rows, kGrain, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row * shape.cols;
      lse[row] = row_lse(shape.valid, logits + at);
      losses[row] = row_loss(logits + at, targets[row], lse[row]);
      row_backward(shape, logits + at, targets[row], lse[row], scale, dlogits + at, streams);
    }
    if (streams) end_stream();
  });
}

template void cross_entropy_forward(const LossShape&, const float*, const std::int32_t*, float*, float*);
template void cross_entropy_forward(const LossShape&, const core::Bf16*, const std::int32_t*, float*, float*);
template void cross_entropy_backward(const LossShape&, const float*, const std::int32_t*, const float*, float,
                                     float*);
template void cross_entropy_backward(const LossShape&, const core::Bf16*, const std::int32_t*, const float*,
                                     float, core::Bf16*);
template void cross_entropy_with_gradient(const LossShape&, const float*, const std::int32_t*, float, float*,
                                          float*, float*);
template void cross_entropy_with_gradient(const LossShape&, const core::Bf16*, const std::int32_t*, float,
                                          float*, float*, core::Bf16*);

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

/// Inputs: logits, targets, lse. With loss scaling the reference kernel runs instead.
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

/// Inputs: logits, targets. Outputs: dlogits, losses, lse. With loss scaling the plain ops run instead.
Kernel make_cross_entropy_with_gradient(const OpView& v) {
  constexpr std::size_t kLossScale = 2;
  const DType dtype = v.in(0).dtype;
  if (v.has_in(kLossScale) || !v.outputs_are({0}, dtype) || !v.outputs_are({1, 2}, DType::f32)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const LossShape shape = loss_shape(v);
    const auto scale = static_cast<float>(v.op.attrs.number("grad_scale"));
    return [shape, scale](const KernelArgs& args) {
      check_ids(ids(args.in[1]), shape.rows, shape.valid, "target", true);
      cross_entropy_with_gradient(shape, static_cast<const S*>(args.in[0]), ids(args.in[1]), scale,
                                  static_cast<float*>(args.out[1]), static_cast<float*>(args.out[2]),
                                  static_cast<S*>(args.out[0]));
    };
  });
}

MakerRows loss_rows() {
  namespace ops = program::ops;
  return {{&ops::kCrossEntropy, make_cross_entropy, "cross_entropy_forward"},
          {&ops::kCrossEntropyBackward, make_cross_entropy_backward, "cross_entropy_backward"},
          {&ops::kCrossEntropyWithGradient, make_cross_entropy_with_gradient, "cross_entropy_with_gradient"}};
}

}  // namespace rooflm::backends::cpu::fast
