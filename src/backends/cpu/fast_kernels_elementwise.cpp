// Fast kernels, bound to ops: addition, casts, GELU and SwiGLU.
#include "backends/cpu/fast/activation.h"
#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast_kernels.h"

namespace rooflm::backends::cpu::fast {

using core::DType;

Kernel make_add(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!inputs_are(v, {1}, dtype) || !outputs_are(v, {0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n](const KernelArgs& args) {
      add(n, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
          static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_cast(const OpView& v) {
  const std::int64_t n = v.in(0).shape.numel();
  if (inputs_are(v, {0}, DType::f32) && outputs_are(v, {0}, DType::bf16)) {
    return [n](const KernelArgs& args) {
      cast(n, static_cast<const float*>(args.in[0]), static_cast<core::Bf16*>(args.out[0]));
    };
  }
  if (inputs_are(v, {0}, DType::bf16) && outputs_are(v, {0}, DType::f32)) {
    return [n](const KernelArgs& args) {
      cast(n, static_cast<const core::Bf16*>(args.in[0]), static_cast<float*>(args.out[0]));
    };
  }
  return {};
}

Kernel make_gelu(const OpView& v) {
  if (!outputs_are(v, {0}, v.in(0).dtype)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n](const KernelArgs& args) {
      gelu_forward(n, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_gelu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!inputs_are(v, {1}, dtype) || !outputs_are(v, {0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n](const KernelArgs& args) {
      gelu_backward(n, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                    static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_swiglu(const OpView& v) {
  if (!outputs_are(v, {0}, v.in(0).dtype)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t width = v.in(0).shape[-1] / 2;
    const std::int64_t rows = v.in(0).shape.numel() / (2 * width);
    return [=](const KernelArgs& args) {
      swiglu_forward(rows, width, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_swiglu_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!inputs_are(v, {1}, dtype) || !outputs_are(v, {0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t width = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / width;
    return [=](const KernelArgs& args) {
      swiglu_backward(rows, width, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                      static_cast<S*>(args.out[0]));
    };
  });
}

}  // namespace rooflm::backends::cpu::fast
