// layernorm, rmsnorm, and both after a residual addition: a warp per row, or a block where rows are long,
// with the row in registers.
#include "backends/cuda/kernels/norm_shape.cuh"

namespace rooflm::backends::cuda {
namespace {

/// 1 / sqrt(x), rounded once more than rsqrtf, which is off by two units in the last place.
__device__ inline float inverse_root(float x) { return 1.0F / sqrtf(x); }

constexpr int kRowsOfBlock = 4;    // where a row is one warp's
constexpr int kMostWarpPacks = 4;  // of a lane, then

/// Threads along x share a row; rows of a block are along y.
template <Norm kNorm, class T, int kPacks, bool kOneWarp>
__global__ void __launch_bounds__(kOneWarp ? kRowsOfBlock* kWarp : kMostNormThreads)
    norm_forward(NormForward a, bool aligned) {
  using Part = RowPart<kPacks>;
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= a.rows) return;
  const auto row_sum = [](float sum) {
    if constexpr (kOneWarp) {
      return warp_sum(sum);
    } else {
      return block_sum(sum);
    }
  };
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
    mean = row_sum(sum) / n;
  }
  float square = 0;
  Part::for_each(a.cols, [&](int k, int i) {
    const float centred = x.pack[k][i] - mean;
    square += centred * centred;
  });
  const float rstd = inverse_root(row_sum(square) / n + a.eps);
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

/// Calls body with the number of packs per lane as a type: 1 to kMostWarpPacks.
template <class Body>
void with_warp_packs(std::int64_t packs, Body&& body) {
  switch (packs) {
    case 1:
      return body(std::integral_constant<int, 1>{});
    case 2:
      return body(std::integral_constant<int, 2>{});
    case 3:
      return body(std::integral_constant<int, 3>{});
    default:
      return body(std::integral_constant<int, kMostWarpPacks>{});
  }
}

template <Norm kNorm>
void launch_forward(Stream stream, const NormForward& a, const char* what) {
  if (a.rows == 0) return;
  const bool aligned = a.cols % kPack == 0 && are_aligned({a.x, a.addend, a.weight, a.bias, a.sum, a.y});
  const std::int64_t warp_packs = ceil_div(a.cols, std::int64_t{kPack} * kWarp);
  with_element(a.dtype, what, [&]<class T>(T) {
    if (aligned && warp_packs <= kMostWarpPacks) {
      with_warp_packs(warp_packs, [&]<class Packs>(Packs) {
        norm_forward<kNorm, T, Packs::value, true>
            <<<grid_size(ceil_div(a.rows, kRowsOfBlock), what), dim3(kWarp, kRowsOfBlock), 0, stream>>>(a,
                                                                                                        true);
      });
      return;
    }
    with_packs(a.cols, what, [&]<class Packs>(Packs) {
      norm_forward<kNorm, T, Packs::value, false>
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
