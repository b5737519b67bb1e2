// Parameter updates in one pass over memory: AdamW, SGD, and the norm for clipping.
#include "backends/cpu/fast/optimizer.h"

#include <algorithm>
#include <array>

#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::int64_t kGrain = 4096;  // elements below which a second thread does not pay

using F64x8 = double __attribute__((vector_size(64)));

ROOFLM_INLINE F64x8 widen_half(F32x16 x, int half) {
  using F32x8 = float __attribute__((vector_size(32)));
  std::array<F32x8, 2> halves;
  std::memcpy(halves.data(), &x, sizeof x);
  return __builtin_convertvector(halves[static_cast<std::size_t>(half)], F64x8);
}

double sum_of_squares_part(std::int64_t begin, std::int64_t end, const float* g) {
  std::array<F64x8, 4> sums{};
  std::size_t turn = 0;
  for_lanes(begin, end, [&](auto i, auto count) {
    const F32x16 x = load_at(g + i, count);
    const F64x8 low = widen_half(x, 0);
    const F64x8 high = widen_half(x, 1);
    sums[turn] += low * low;
    sums[turn + 1] += high * high;
    turn ^= 2;
  });
  const F64x8 total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += total[i];
  return sum;
}

}  // namespace

void adamw_update(const AdamWStep& step, std::int64_t n, float* p, float* m, float* v, const float* g,
                  core::Bf16* p_bf16) {
  const float keep = 1.0F - step.lr * step.weight_decay;
  const float rate = step.lr / step.bias_correction1;
  const float variance_scale = 1.0F / step.bias_correction2;
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      const F32x16 grad = load_at(g + i, count) * step.grad_scale;
      const F32x16 mean = step.beta1 * load_at(m + i, count) + (1.0F - step.beta1) * grad;
      const F32x16 square = step.beta2 * load_at(v + i, count) + (1.0F - step.beta2) * (grad * grad);
      const F32x16 size = square_root(square * variance_scale) + step.eps;
      const F32x16 param = load_at(p + i, count) * keep - rate * mean / size;
      store_at(m + i, mean, count);
      store_at(v + i, square, count);
      store_at(p + i, param, count);
      if (p_bf16 != nullptr) store_at(p_bf16 + i, param, count);
    });
  });
}

void sgd_update(const SgdStep& step, std::int64_t n, float* p, float* velocity, const float* g,
                core::Bf16* p_bf16) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      const F32x16 old = load_at(p + i, count);
      F32x16 direction = load_at(g + i, count) * step.grad_scale + step.weight_decay * old;
      if (velocity != nullptr) {
        direction += step.momentum * load_at(velocity + i, count);
        store_at(velocity + i, direction, count);
      }
      const F32x16 param = old - step.lr * direction;
      store_at(p + i, param, count);
      if (p_bf16 != nullptr) store_at(p_bf16 + i, param, count);
    });
  });
}

double sum_of_squares(std::int64_t n, const float* g) {
  // Parts depend on n alone, and are added in order.
  constexpr std::int64_t kParts = 256;
  const std::int64_t part = std::max<std::int64_t>(16384, (n / kParts + kLanes) / kLanes * kLanes);
  const std::int64_t parts = (n + part - 1) / part;
  std::array<double, kParts> sums{};
  parallel_for(parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      sums[static_cast<std::size_t>(i)] = sum_of_squares_part(i * part, std::min(n, (i + 1) * part), g);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace rooflm::backends::cpu
