// Fast kernels, bound to ops: LayerNorm and RMSNorm.
#include "backends/cpu/fast/norm.h"
#include "backends/cpu/fast_kernels.h"

namespace rooflm::backends::cpu::fast {
namespace {

using core::DType;

/// Which kind of norm; LayerNorm has a bias and means, RMSNorm has neither.
enum class Norm { layer, rms };

/// y [, mean], rstd = norm(x; weight [, bias]), or r, y [, mean], rstd = norm(x + residual; ..).
template <Norm kNorm>
Kernel make_forward(const OpView& v, bool has_residual) {
  const DType dtype = v.in(0).dtype;
  const std::size_t weight = has_residual ? 2 : 1;
  const std::size_t y = has_residual ? 1 : 0;
  const std::size_t rstd = kNorm == Norm::layer ? y + 2 : y + 1;
  if (!inputs_are(v, {weight - 1}, dtype) || !inputs_are(v, {weight, weight + 1}, DType::f32) ||
      !outputs_are(v, {0, y}, dtype) || !outputs_are(v, {y + 1, rstd}, DType::f32)) {
    return {};
  }
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    NormForward<S> fixed;
    fixed.cols = v.in(0).shape[-1];
    fixed.rows = v.in(0).shape.numel() / fixed.cols;
    fixed.eps = static_cast<float>(v.op.attrs.number("eps"));
    return [=](const KernelArgs& args) {
      NormForward<S> a = fixed;
      a.x = static_cast<const S*>(args.in[0]);
      if (has_residual) {
        a.residual = static_cast<const S*>(args.in[1]);
        a.sum = static_cast<S*>(args.out[0]);
      }
      a.weight = static_cast<const float*>(args.in[weight]);
      a.y = static_cast<S*>(args.out[y]);
      a.rstd = static_cast<float*>(args.out[rstd]);
      if constexpr (kNorm == Norm::layer) {
        a.bias = static_cast<const float*>(args.in[weight + 1]);
        a.mean = static_cast<float*>(args.out[y + 1]);
        layernorm_forward(a);
      } else {
        rmsnorm_forward(a);
      }
    };
  });
}

/// Inputs: dy, x, weight [, mean], rstd [, residual gradient]; outputs: dx, dweight [, dbias].
template <Norm kNorm>
Kernel make_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const std::size_t rstd = kNorm == Norm::layer ? 4 : 3;
  const std::size_t last_weight = kNorm == Norm::layer ? 2 : 1;
  if (!inputs_are(v, {1, rstd + 1}, dtype) || !inputs_are(v, {2, 3, rstd}, DType::f32) ||
      !outputs_are(v, {0}, dtype) || !outputs_are(v, {1, last_weight}, DType::f32)) {
    return {};
  }
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    NormBackward<S> fixed;
    fixed.cols = v.in(1).shape[-1];
    fixed.rows = v.in(1).shape.numel() / fixed.cols;
    fixed.accumulate = v.accumulates();
    const bool has_residual = v.has_in(rstd + 1);
    v.resources->scratch().reserve(norm_backward_scratch_bytes(fixed.rows, fixed.cols));
    return [=, resources = v.resources](const KernelArgs& args) {
      NormBackward<S> a = fixed;
      a.dy = static_cast<const S*>(args.in[0]);
      a.x = static_cast<const S*>(args.in[1]);
      a.weight = static_cast<const float*>(args.in[2]);
      a.rstd = static_cast<const float*>(args.in[rstd]);
      if (has_residual) a.d_residual = static_cast<const S*>(args.in[rstd + 1]);
      a.dx = static_cast<S*>(args.out[0]);
      a.dweight = static_cast<float*>(args.out[1]);
      void* scratch = resources->scratch().data();
      if constexpr (kNorm == Norm::layer) {
        a.mean = static_cast<const float*>(args.in[3]);
        a.dbias = static_cast<float*>(args.out[2]);
        layernorm_backward(a, scratch);
      } else {
        rmsnorm_backward(a, scratch);
      }
    };
  });
}

}  // namespace

Kernel make_layernorm(const OpView& v) { return make_forward<Norm::layer>(v, false); }
Kernel make_add_layernorm(const OpView& v) { return make_forward<Norm::layer>(v, true); }
Kernel make_layernorm_backward(const OpView& v) { return make_backward<Norm::layer>(v); }
Kernel make_rmsnorm(const OpView& v) { return make_forward<Norm::rms>(v, false); }
Kernel make_add_rmsnorm(const OpView& v) { return make_forward<Norm::rms>(v, true); }
Kernel make_rmsnorm_backward(const OpView& v) { return make_backward<Norm::rms>(v); }

}  // namespace rooflm::backends::cpu::fast
