// layernorm, rmsnorm, and both after a residual addition: one block per row, the row in registers.
#include "backends/cuda/kernels/chain.cuh"
#include "backends/cuda/kernels/norm/norm_shape.cuh"

namespace rooflm::backends::cuda {
namespace {

/// The value of x after being stored.
template <class T>
__device__ float rounded_as(core::DType dtype, float x) {
  if constexpr (!std::is_same_v<T, Unaligned>) return rounded<T>(x);
  if (dtype == core::DType::f32) return x;
  return dtype == core::DType::bf16 ? rounded<bf16>(x) : rounded<fp16>(x);
}

template <Norm kNorm, class T, int kPacks>
__global__ void __launch_bounds__(kMostNormThreads) norm_forward(NormForward a) {
  using Weight = std::conditional_t<std::is_same_v<T, Unaligned>, Unaligned, float>;
  using Part = RowPart<kPacks>;
  follow_previous();
  const std::int64_t row = blockIdx.x;
  const std::int64_t at = row * a.cols;
  Part x;
  x.template load<T>(a.dtype, a.x, at, a.cols);
  if (a.addend != nullptr) {
    Part y;
    y.template load<T>(a.dtype, a.addend, at, a.cols);
    Part::for_each(a.cols,
                   [&](int k, int i) { x.pack[k][i] = rounded_as<T>(a.dtype, x.pack[k][i] + y.pack[k][i]); });
    x.template store<T>(a.dtype, a.sum, at, a.cols);
  }
  Part weight;
  weight.template load_or<Weight>(a.weight, 1, a.cols);
  const float n = static_cast<float>(a.cols);
  float mean = 0;
  if constexpr (kNorm == Norm::layer) {
    float sum = 0;
    Part::for_each(a.cols, [&](int k, int i) { sum += x.pack[k][i]; });
    mean = block_sum(sum) / n;
  }
  float square = 0;
  Part::for_each(a.cols, [&](int k, int i) {
    const float centred = x.pack[k][i] - mean;
    square += centred * centred;
  });
  const float rstd = inverse_root(block_sum(square) / n + a.eps);
  Part bias{};
  if constexpr (kNorm == Norm::layer) bias.template load_or<Weight>(a.bias, 0, a.cols);
  Part::for_each(a.cols, [&](int k, int i) {
    x.pack[k][i] = scaled(normalised(x.pack[k][i], mean, rstd), weight.pack[k][i], bias.pack[k][i]);
  });
  x.template store<T>(a.dtype, a.y, at, a.cols);
  if (threadIdx.x == 0) {
    if constexpr (kNorm == Norm::layer) a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

template <Norm kNorm>
void launch_forward(Stream stream, const NormForward& a, const char* what) {
  if (a.rows == 0) return;
  const bool aligned = a.cols % kPack == 0 && are_aligned({a.x, a.addend, a.weight, a.bias, a.sum, a.y});
  with_element(a.dtype, what, [&]<class T>(T) {
    with_packs(a.cols, what, [&]<class Packs>(Packs) {
      auto* kernel =
          aligned ? norm_forward<kNorm, T, Packs::value> : norm_forward<kNorm, Unaligned, Packs::value>;
      launch_chained(stream, what, kernel, dim3(grid_size(a.rows, what)), NormShape(a.cols).threads, 0, a);
    });
  });
}

}  // namespace

void launch_layernorm(Stream stream, const NormForward& args) {
  launch_forward<Norm::layer>(stream, args, args.addend != nullptr ? "add_layernorm" : "layernorm");
}

void launch_rmsnorm(Stream stream, const NormForward& args) {
  launch_forward<Norm::rms>(stream, args, args.addend != nullptr ? "add_rmsnorm" : "rmsnorm");
}

}  // namespace rooflm::backends::cuda
