// Parameter updates in one pass over memory: AdamW, SGD, and the norm for clipping.
#include "backends/cpu/fast/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "program/ops.h"
#include "program/update.h"

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

namespace rooflm::backends::cpu::fast {
namespace {

/// Everything from input `first` on is plain fp32. Updates of weights in halves, with bf16 gradients or with
/// loss scaling are the reference's.
bool all_f32(const OpView& v, std::size_t first) {
  for (std::size_t i = first; i < v.op.inputs.size(); ++i) {
    if (!v.inputs_are({i}, DType::f32) || (v.has_in(i) && v.in(i).halved)) return false;
  }
  return true;
}

/// The tensors of an update: where their operands are, and the elements of each.
struct Update : program::UpdateOperands {
  std::vector<std::int64_t> sizes;

  explicit Update(const OpView& v) : UpdateOperands(v.op) {
    for (std::size_t i = 0; i < count(); ++i) sizes.push_back(v.in(weight_in(i)).shape.numel());
  }
  [[nodiscard]] float* weight(const KernelArgs& args, std::size_t i) const {
    return static_cast<float*>(args.out[weight_out(i)]);
  }
  [[nodiscard]] float* moment(const KernelArgs& args, std::size_t i, std::size_t k) const {
    return static_cast<float*>(args.out[moment_out(i, k)]);
  }
  [[nodiscard]] const float* gradient(const KernelArgs& args, std::size_t i) const {
    return static_cast<const float*>(args.in[gradient_in(i)]);
  }
  [[nodiscard]] core::Bf16* copy(const KernelArgs& args, std::size_t i) const {
    return has_copies() ? static_cast<core::Bf16*>(args.out[copy_out(i)]) : nullptr;
  }
};

/// What clipping multiplies gradients by: min(1, max_norm / (norm + 1e-6)), NaN for NaN; 1 without a norm.
float clip_scale(const void* norm, double max_norm) {
  if (norm == nullptr) return 1.0F;
  const double ratio = max_norm / (static_cast<double>(*static_cast<const float*>(norm)) + 1e-6);
  return ratio >= 1 ? 1.0F : static_cast<float>(ratio);
}

}  // namespace

Kernel make_global_norm(const OpView& v) {
  if (!all_f32(v, 0) || !v.outputs_are({0}, DType::f32)) return {};
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < v.op.inputs.size(); ++i) sizes.push_back(v.in(i).shape.numel());
  return [sizes](const KernelArgs& args) {
    double square = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      square += sum_of_squares(sizes[i], static_cast<const float*>(args.in[i]));
    }
    *static_cast<float*>(args.out[0]) = static_cast<float>(std::sqrt(square));
  };
}

Kernel make_adamw(const OpView& v) {
  if (!all_f32(v, 0) || v.op.attrs.flag("scaled")) return {};
  const auto& attrs = v.op.attrs;
  const AdamWStep fixed{.beta1 = static_cast<float>(attrs.number("beta1")),
                        .beta2 = static_cast<float>(attrs.number("beta2")),
                        .eps = static_cast<float>(attrs.number("eps")),
                        .weight_decay = static_cast<float>(attrs.number("weight_decay"))};
  const double max_norm = attrs.number("max_norm");
  return [=, update = Update(v)](const KernelArgs& args) {
    const auto* hyper = static_cast<const float*>(args.in[Update::kHyper]);
    AdamWStep step = fixed;
    step.lr = hyper[0];
    step.bias_correction1 = hyper[1];
    step.bias_correction2 = hyper[2];
    step.grad_scale = clip_scale(args.in[Update::kNorm], max_norm);
    for (std::size_t i = 0; i < update.count(); ++i) {
      adamw_update(step, update.sizes[i], update.weight(args, i), update.moment(args, i, 0),
                   update.moment(args, i, 1), update.gradient(args, i), update.copy(args, i));
    }
  };
}

Kernel make_sgd(const OpView& v) {
  if (!all_f32(v, 0) || v.op.attrs.flag("scaled")) return {};
  const SgdStep fixed{.weight_decay = static_cast<float>(v.op.attrs.number("weight_decay"))};
  const double max_norm = v.op.attrs.number("max_norm");
  return [=, update = Update(v)](const KernelArgs& args) {
    SgdStep step = fixed;
    step.lr = static_cast<const float*>(args.in[Update::kHyper])[0];
    step.grad_scale = clip_scale(args.in[Update::kNorm], max_norm);
    for (std::size_t i = 0; i < update.count(); ++i) {
      sgd_update(step, update.sizes[i], update.weight(args, i), nullptr, update.gradient(args, i),
                 update.copy(args, i));
    }
  };
}

MakerRows optimizer_rows() {
  namespace ops = program::ops;
  return {{&ops::kGlobalNorm, make_global_norm, "sum_of_squares"},
          {&ops::kAdamW, make_adamw, "adamw_update"},
          {&ops::kSgd, make_sgd, "sgd_update"}};
}

}  // namespace rooflm::backends::cpu::fast
