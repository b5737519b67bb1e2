// Parameter updates in one pass over memory: AdamW, SGD, and the norm for clipping.
#include "backends/cpu/fast/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::backends::cpu {
namespace {

// Least elements per thread: with fewer a second thread does not pay off.
constexpr std::int64_t kGrain = 4096;

using Doubles = double __attribute__((vector_size(kLanes * 4)));

ROOFLM_INLINE Doubles widen_half(Floats x, int half) {
  using HalfFloats = float __attribute__((vector_size(kLanes * 2)));
  std::array<HalfFloats, 2> halves;
  std::memcpy(halves.data(), &x, sizeof x);
  return __builtin_convertvector(halves[static_cast<std::size_t>(half)], Doubles);
}

ROOFLM_INLINE void add_squares(Floats x, Doubles& low, Doubles& high) {
  const Doubles a = widen_half(x, 0);
  const Doubles b = widen_half(x, 1);
  low += a * a;
  high += b * b;
}

template <GradientStorage G>
double sum_of_squares_part(std::int64_t begin, std::int64_t end, const G* g) {
  // The hardware prefetcher alone does not saturate the memory bandwidth.
  constexpr std::int64_t kAhead = 2048 / sizeof(G);
  Doubles sums[4] = {};
  std::int64_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    for (std::size_t line = 0; line < 4 * kLanes * sizeof(G); line += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(g + i + kAhead) + line);
    }
    add_squares(load(g + i), sums[0], sums[1]);
    add_squares(load(g + i + kLanes), sums[2], sums[3]);
    add_squares(load(g + i + 2 * kLanes), sums[0], sums[1]);
    add_squares(load(g + i + 3 * kLanes), sums[2], sums[3]);
  }
  for_lanes(i, end, [&](auto j, auto count) { add_squares(load_at(g + j, count), sums[0], sums[1]); });
  const Doubles total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = 0;
  for (std::size_t k = 0; k < sizeof total / sizeof(double); ++k) sum += total[k];
  return sum;
}

/// The weights from element i on.
template <Half H>
ROOFLM_INLINE Floats weights_at(const WholeWeights<H>& w, std::int64_t i, auto count) {
  return load_at(w.p + i, count);
}
template <Half H>
ROOFLM_INLINE void store_weights(const WholeWeights<H>& w, std::int64_t i, Floats x, auto count) {
  store_at(w.p + i, x, count);
  if (w.copy != nullptr) store_at(w.copy + i, x, count);
}
template <Half H>
ROOFLM_INLINE Floats weights_at(const HalvedWeights<H>& w, std::int64_t i, auto count) {
  return join_halves<H>(load_at(w.upper + i, count), load_at(w.lower + i, count));
}
template <Half H>
ROOFLM_INLINE void store_weights(const HalvedWeights<H>& w, std::int64_t i, Floats x, auto count) {
  const auto [upper, lower] = split_halves<H>(x);
  store_at(w.upper + i, upper, count);
  store_at(w.lower + i, lower, count);
}

}  // namespace

template <WeightMemory W, GradientStorage G>
void adamw_update(const AdamWStep& step, std::int64_t n, W weights, float* m, float* v, const G* g) {
  const float keep = 1.0F - step.lr * step.weight_decay;
  const float rate = step.lr / step.bias_correction1;
  const float variance_scale = 1.0F / step.bias_correction2;
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      const Floats grad = load_at(g + i, count) * step.grad_scale;
      const Floats mean = step.beta1.old * load_at(m + i, count) + step.beta1.fresh * grad;
      const Floats square = step.beta2.old * load_at(v + i, count) + step.beta2.fresh * (grad * grad);
      const Floats size = square_root(square * variance_scale) + step.eps;
      const Floats param = weights_at(weights, i, count) * keep - rate * mean / size;
      store_at(m + i, mean, count);
      store_at(v + i, square, count);
      store_weights(weights, i, param, count);
    });
  });
}

template <WeightMemory W, GradientStorage G>
void sgd_update(const SgdStep& step, std::int64_t n, W weights, const G* g) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      const Floats old = weights_at(weights, i, count);
      const Floats direction = load_at(g + i, count) * step.grad_scale + step.weight_decay * old;
      store_weights(weights, i, old - step.lr * direction, count);
    });
  });
}

template <GradientStorage G>
double sum_of_squares(std::int64_t n, const G* g) {
  // Parts depend only on n and are summed in order.
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

template void adamw_update(const AdamWStep&, std::int64_t, WholeWeights<core::Bf16>, float*, float*,
                           const float*);
template void adamw_update(const AdamWStep&, std::int64_t, WholeWeights<core::Bf16>, float*, float*,
                           const core::Bf16*);
template void adamw_update(const AdamWStep&, std::int64_t, HalvedWeights<core::Bf16>, float*, float*,
                           const float*);
template void adamw_update(const AdamWStep&, std::int64_t, HalvedWeights<core::Bf16>, float*, float*,
                           const core::Bf16*);
template void adamw_update(const AdamWStep&, std::int64_t, WholeWeights<core::F16>, float*, float*,
                           const float*);
template void adamw_update(const AdamWStep&, std::int64_t, WholeWeights<core::F16>, float*, float*,
                           const core::F16*);
template void adamw_update(const AdamWStep&, std::int64_t, HalvedWeights<core::F16>, float*, float*,
                           const float*);
template void adamw_update(const AdamWStep&, std::int64_t, HalvedWeights<core::F16>, float*, float*,
                           const core::F16*);
template void sgd_update(const SgdStep&, std::int64_t, WholeWeights<core::Bf16>, const float*);
template void sgd_update(const SgdStep&, std::int64_t, WholeWeights<core::Bf16>, const core::Bf16*);
template void sgd_update(const SgdStep&, std::int64_t, HalvedWeights<core::Bf16>, const float*);
template void sgd_update(const SgdStep&, std::int64_t, HalvedWeights<core::Bf16>, const core::Bf16*);
template void sgd_update(const SgdStep&, std::int64_t, WholeWeights<core::F16>, const float*);
template void sgd_update(const SgdStep&, std::int64_t, WholeWeights<core::F16>, const core::F16*);
template void sgd_update(const SgdStep&, std::int64_t, HalvedWeights<core::F16>, const float*);
template void sgd_update(const SgdStep&, std::int64_t, HalvedWeights<core::F16>, const core::F16*);
template double sum_of_squares(std::int64_t, const float*);
template double sum_of_squares(std::int64_t, const core::Bf16*);
template double sum_of_squares(std::int64_t, const core::F16*);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

/// Calls with(G*) on the gradient at `data`, fp32 or 16 bits.
template <class With>
auto with_gradient(const void* data, DType dtype, With&& with) {
  if (dtype == DType::bf16) return with(static_cast<const core::Bf16*>(data));
  if (dtype == DType::f16) return with(static_cast<const core::F16*>(data));
  return with(static_cast<const float*>(data));
}

/// The tensors of an update: their operands, and how weights are stored.
class Update : public program::UpdateOperands {
 public:
  explicit Update(const OpView& v) : UpdateOperands(v.op) {
    for (std::size_t i = 0; i < count(); ++i) {
      const program::Tensor& weight = v.in(weight_in(i));
      tensors_.push_back({.size = weight.shape.numel(),
                          .is_halved = weight.halves.has_value(),
                          .has_copy = has_copies() && v.op.outputs.at(copy_out(i)) != program::kNone,
                          .half = half_of(v, i),
                          .gradient = v.in(gradient_in(i)).dtype});
    }
  }

  /// Otherwise the reference kernel runs.
  static bool is_fast(const OpView& v) {
    const Update at(v);
    if (!v.inputs_are({kHyper, kNorm}, DType::f32)) return false;
    for (std::size_t i = 0; i < at.count(); ++i) {
      const Kept& tensor = at.tensors_[i];
      if (tensor.half != DType::bf16 && tensor.half != DType::f16) return false;
      if (tensor.gradient != DType::f32 && tensor.gradient != tensor.half) return false;
      if (v.in(at.weight_in(i)).dtype != DType::f32) return false;
      for (std::size_t k = 0; k < at.moments(); ++k) {
        if (!v.inputs_are({at.moment_in(i, k)}, DType::f32)) return false;
      }
    }
    return true;
  }

  [[nodiscard]] float* moment(const KernelArgs& args, std::size_t i, std::size_t k) const {
    return static_cast<float*>(args.out[moment_out(i, k)]);
  }

  /// Calls update(n, weights, gradient) on tensor i.
  template <class Run>
  void run(const KernelArgs& args, std::size_t i, Run&& update) const {
    const Kept& tensor = tensors_[i];
    if (tensor.half == DType::f16) return run_as<core::F16>(args, i, update);
    run_as<core::Bf16>(args, i, update);
  }

 private:
  struct Kept {
    std::int64_t size;
    bool is_halved;
    bool has_copy;  ///< for whole weights; halves contain their own
    DType half;     ///< of what of it has 16 bits; bf16 if nothing has
    DType gradient;
  };

  [[nodiscard]] DType half_of(const OpView& v, std::size_t i) const {
    const std::optional<DType> halves = v.in(weight_in(i)).halves;
    if (halves) return *halves;
    const program::TensorId copy = has_copies() ? v.op.outputs.at(copy_out(i)) : program::kNone;
    if (copy != program::kNone) return v.program.tensor(copy).dtype;
    const DType gradient = v.in(gradient_in(i)).dtype;
    return gradient == DType::f32 ? DType::bf16 : gradient;
  }

  template <Half H, class Run>
  void run_as(const KernelArgs& args, std::size_t i, Run&& update) const {
    const Kept& tensor = tensors_[i];
    const auto with = [&](const auto* gradient) {
      void* data = args.out[weight_out(i)];
      if (tensor.is_halved) {
        auto* upper = static_cast<std::uint16_t*>(data);
        return update(tensor.size, HalvedWeights<H>{upper, upper + tensor.size}, gradient);
      }
      void* copy = tensor.has_copy ? args.out[copy_out(i)] : nullptr;
      update(tensor.size, WholeWeights<H>{static_cast<float*>(data), static_cast<H*>(copy)}, gradient);
    };
    const void* gradient = args.in[gradient_in(i)];
    if (tensor.gradient == DType::f32) return with(static_cast<const float*>(gradient));
    with(static_cast<const H*>(gradient));
  }

  std::vector<Kept> tensors_;
};

/// The factor of gradients: min(1, max_norm / (norm + 1e-6)) (NaN for NaN; 1 without a norm), times the
/// inverse of the loss scale.
float factor_of(const KernelArgs& args, double max_norm, bool is_scaled) {
  const auto* hyper = static_cast<const float*>(args.in[Update::kHyper]);
  const double inverse_scale = is_scaled ? static_cast<double>(hyper[3]) : 1;
  const void* norm = args.in[Update::kNorm];
  if (norm == nullptr) return static_cast<float>(inverse_scale);
  const double ratio = max_norm / (static_cast<double>(*static_cast<const float*>(norm)) + 1e-6);
  return static_cast<float>(ratio >= 1 ? inverse_scale : ratio * inverse_scale);
}

/// Whether a step with loss scaling changes nothing: gradients were not finite.
bool is_skipped(const KernelArgs& args, bool is_scaled) {
  return is_scaled && static_cast<const float*>(args.in[Update::kHyper])[3] == 0;
}

}  // namespace

/// The sum of squares of all inputs in fp64, or its root in fp32.
Kernel make_square_sum(const OpView& v) {
  const bool is_root = v.op.is(program::ops::kGlobalNorm);
  if (!v.outputs_are({0}, is_root ? DType::f32 : DType::f64)) return {};
  struct Gradient {
    std::int64_t size;
    DType dtype;
  };
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < v.op.inputs.size(); ++i) {
    gradients.push_back({v.in(i).shape.numel(), v.in(i).dtype});
    if (gradients.back().dtype != DType::f32 && core::size_of(gradients.back().dtype) != 2) return {};
  }
  return [gradients, is_root](const KernelArgs& args) {
    double square = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      square += with_gradient(args.in[i], gradients[i].dtype,
                              [&](const auto* g) { return sum_of_squares(gradients[i].size, g); });
    }
    if (is_root) {
      *static_cast<float*>(args.out[0]) = static_cast<float>(std::sqrt(square));
    } else {
      *static_cast<double*>(args.out[0]) = square;
    }
  };
}

Kernel make_adamw(const OpView& v) {
  if (!Update::is_fast(v)) return {};
  const auto& attrs = v.op.attrs;
  const AdamWStep fixed{.beta1 = core::MovingAverage(attrs.number("beta1")),
                        .beta2 = core::MovingAverage(attrs.number("beta2")),
                        .eps = static_cast<float>(attrs.number("eps")),
                        .weight_decay = static_cast<float>(attrs.number("weight_decay"))};
  const double max_norm = attrs.number("max_norm");
  const bool is_scaled = attrs.flag("scaled");
  return [=, update = Update(v)](const KernelArgs& args) {
    if (is_skipped(args, is_scaled)) return;
    const auto* hyper = static_cast<const float*>(args.in[Update::kHyper]);
    AdamWStep step = fixed;
    step.lr = hyper[0];
    step.bias_correction1 = hyper[1];
    step.bias_correction2 = hyper[2];
    step.grad_scale = factor_of(args, max_norm, is_scaled);
    for (std::size_t i = 0; i < update.count(); ++i) {
      update.run(args, i, [&](std::int64_t n, auto weights, const auto* gradient) {
        adamw_update(step, n, weights, update.moment(args, i, 0), update.moment(args, i, 1), gradient);
      });
    }
  };
}

/// With loss scaling the reference kernel runs: this one's last bits differ, and with them some copies in
/// fp16.
Kernel make_sgd(const OpView& v) {
  if (!Update::is_fast(v) || v.op.attrs.flag("scaled")) return {};
  const SgdStep fixed{.weight_decay = static_cast<float>(v.op.attrs.number("weight_decay"))};
  const double max_norm = v.op.attrs.number("max_norm");
  return [=, update = Update(v)](const KernelArgs& args) {
    SgdStep step = fixed;
    step.lr = static_cast<const float*>(args.in[Update::kHyper])[0];
    step.grad_scale = factor_of(args, max_norm, false);
    for (std::size_t i = 0; i < update.count(); ++i) {
      update.run(args, i, [&](std::int64_t n, auto weights, const auto* gradient) {
        sgd_update(step, n, weights, gradient);
      });
    }
  };
}

MakerRows optimizer_rows() {
  namespace ops = program::ops;
  return {{&ops::kGlobalNorm, make_square_sum, "sum_of_squares"},
          {&ops::kSquareSum, make_square_sum, "sum_of_squares"},
          {&ops::kAdamW, make_adamw, "adamw_update"},
          {&ops::kSgd, make_sgd, "sgd_update"}};
}

}  // namespace rooflm::backends::cpu::fast
