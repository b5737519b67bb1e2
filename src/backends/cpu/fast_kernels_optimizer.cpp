// Fast kernels, bound to ops: the optimizer step.
#include <cmath>
#include <vector>

#include "backends/cpu/fast/optimizer.h"
#include "backends/cpu/fast_kernels.h"

namespace rooflm::backends::cpu::fast {
namespace {

using core::DType;

/// Everything from input `first` on is plain fp32. Updates of weights in halves, with bf16 gradients or with
/// loss scaling are the reference's.
bool all_f32(const OpView& v, std::size_t first) {
  for (std::size_t i = first; i < v.op.inputs.size(); ++i) {
    if (!inputs_are(v, {i}, DType::f32) || (v.has_in(i) && v.in(i).halved)) return false;
  }
  return true;
}

/// Elements of every `stride`th input from `first` on.
std::vector<std::int64_t> sizes_of(const OpView& v, std::size_t first, std::size_t stride) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = first; i < v.op.inputs.size(); i += stride) sizes.push_back(v.in(i).shape.numel());
  return sizes;
}

/// What clipping multiplies gradients by: min(1, max_norm / (norm + 1e-6)), NaN for NaN; 1 without a norm.
float clip_scale(const void* norm, double max_norm) {
  if (norm == nullptr) return 1.0F;
  const double ratio = max_norm / (static_cast<double>(*static_cast<const float*>(norm)) + 1e-6);
  return ratio >= 1 ? 1.0F : static_cast<float>(ratio);
}

/// The bf16 copy of a tensor, `first` being the place of the first one among the outputs; 0: there are none.
core::Bf16* copy_of(const KernelArgs& args, std::size_t first, std::size_t tensor) {
  return first == 0 ? nullptr : static_cast<core::Bf16*>(args.out[first + tensor]);
}

}  // namespace

Kernel make_global_norm(const OpView& v) {
  if (!all_f32(v, 0) || !outputs_are(v, {0}, DType::f32)) return {};
  return [sizes = sizes_of(v, 0, 1)](const KernelArgs& args) {
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
  const auto sizes = sizes_of(v, 2, 4);
  const std::size_t first_copy = attrs.flag("copies") ? 3 * sizes.size() : 0;
  return [=](const KernelArgs& args) {
    const auto* hyper = static_cast<const float*>(args.in[0]);
    AdamWStep step = fixed;
    step.lr = hyper[0];
    step.bias_correction1 = hyper[1];
    step.bias_correction2 = hyper[2];
    step.grad_scale = clip_scale(args.in[1], max_norm);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      adamw_update(step, sizes[i], static_cast<float*>(args.out[3 * i]),
                   static_cast<float*>(args.out[3 * i + 1]), static_cast<float*>(args.out[3 * i + 2]),
                   static_cast<const float*>(args.in[2 + 4 * i + 1]), copy_of(args, first_copy, i));
    }
  };
}

Kernel make_sgd(const OpView& v) {
  if (!all_f32(v, 0) || v.op.attrs.flag("scaled")) return {};
  const SgdStep fixed{.weight_decay = static_cast<float>(v.op.attrs.number("weight_decay"))};
  const double max_norm = v.op.attrs.number("max_norm");
  const auto sizes = sizes_of(v, 2, 2);
  const std::size_t first_copy = v.op.attrs.flag("copies") ? sizes.size() : 0;
  return [=](const KernelArgs& args) {
    SgdStep step = fixed;
    step.lr = static_cast<const float*>(args.in[0])[0];
    step.grad_scale = clip_scale(args.in[1], max_norm);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sgd_update(step, sizes[i], static_cast<float*>(args.out[i]), nullptr,
                 static_cast<const float*>(args.in[2 + 2 * i + 1]), copy_of(args, first_copy, i));
    }
  };
}

}  // namespace rooflm::backends::cpu::fast
