// layernorm, rmsnorm, and both after a residual addition: a block per row, the row in registers.
#include "backends/cuda/kernels/norm_shape.cuh"

namespace rooflm::backends::cuda {
namespace {

/// 1 / sqrt(x), rounded once more than rsqrtf, which is off by two units in the last place.
__device__ inline float inverse_root(float x) { return 1.0F / sqrtf(x); }

template <Norm kNorm, class T, int kPacks>
__global__ void __launch_bounds__(kMostNormThreads) norm_forward(NormForward a, bool aligned) {
  using Part = RowPart<kPacks>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t at = row * a.cols;
  Part x;
  x.load(static_cast<const T*>(a.x) + at, a.cols, aligned);
  if (a.addend != nullptr) {
    Part y;
    y.load(static_cast<const T*>(a.addend) + at, a.cols, aligned);
    Part::for_each(a.cols, [&](int k, int i) { x.pack[k][i] = rounded<T>(x.pack[k][i] + y.pack[k][i]); });
    x.store(static_cast<T*>(a.sum) + at, a.cols, aligned);
  }
  Part weight;
  weight.load(a.weight, a.cols, aligned);
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
  Part::for_each(a.cols,
                 [&](int k, int i) { x.pack[k][i] = (x.pack[k][i] - mean) * rstd * weight.pack[k][i]; });
  if constexpr (kNorm == Norm::layer) {
    Part bias;
    bias.load(a.bias, a.cols, aligned);
    Part::for_each(a.cols, [&](int k, int i) { x.pack[k][i] += bias.pack[k][i]; });
  }
  x.store(static_cast<T*>(a.y) + at, a.cols, aligned);
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
      norm_forward<kNorm, T, Packs::value>
          <<<grid_size(a.rows, what), NormShape(a.cols).threads, 0, stream>>>(a, aligned);
    });
  });
  check_launch(what);
}

}  // namespace

void launch_layernorm(Stream stream, const NormForward& args) {
  launch_forward<Norm::layer>(stream, args, args.addend != nullptr ? "add_layernorm" : "layernorm");
}

void launch_rmsnorm(Stream stream, const NormForward& args) {
  launch_forward<Norm::rms>(stream, args, args.addend != nullptr ? "add_rmsnorm" : "rmsnorm");
}

}  // namespace rooflm::backends::cuda
