// Gradients of layernorm and rmsnorm in one pass over dy and x: a block takes every so manieth row and keeps
// its sums for the weights in registers; a second kernel adds up the blocks' sums.
#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/norm_shape.cuh"

namespace rooflm::backends::cuda {
namespace {

/// Blocks of the first kernel: as many as fit at a hundred registers per thread.
std::int64_t blocks_of(std::int64_t rows, std::int64_t cols) {
  constexpr int kThreadsPerMultiprocessor = 608;
  const int each = std::max(1, kThreadsPerMultiprocessor / NormShape(cols).threads);
  return std::clamp<std::int64_t>(std::int64_t{each} * multiprocessors(), 1, std::max<std::int64_t>(rows, 1));
}

/// What one row needs of memory.
template <class T, int kPacks>
struct RowInput {
  RowPart<kPacks> dy, x;
  float mean = 0, rstd = 0;

  template <Norm kNorm>
  __device__ void load(const NormBackward& a, std::int64_t row, bool aligned) {
    dy.load(static_cast<const T*>(a.dy) + row * a.cols, a.cols, aligned);
    x.load(static_cast<const T*>(a.x) + row * a.cols, a.cols, aligned);
    if constexpr (kNorm == Norm::layer) mean = a.mean[row];
    rstd = a.rstd[row];
  }
};

template <Norm kNorm, class T, int kPacks>
__global__ void __launch_bounds__(512) norm_backward(NormBackward a, bool aligned, float* partials) {
  using Part = RowPart<kPacks>;
  constexpr bool kPrefetch = kPacks == 1;  // longer parts leave no registers for the next row
  Part weight;
  weight.load(a.weight, a.cols, aligned);
  Part dweight{};
  Part dbias{};
  const float inverse_n = 1.0F / static_cast<float>(a.cols);
  RowInput<T, kPacks> next;
  if (kPrefetch) next.template load<kNorm>(a, blockIdx.x, aligned);
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    if (!kPrefetch) next.template load<kNorm>(a, row, aligned);
    RowInput<T, kPacks> now = next;
    if (kPrefetch && row + gridDim.x < a.rows) next.template load<kNorm>(a, row + gridDim.x, aligned);
    float2 sums{0, 0};  // of g, of g * xhat
    Part::for_each(a.cols, [&](int k, int i) {
      const float dy = now.dy.pack[k][i];
      const float xhat = (now.x.pack[k][i] - now.mean) * now.rstd;
      dweight.pack[k][i] += dy * xhat;
      if constexpr (kNorm == Norm::layer) dbias.pack[k][i] += dy;
      now.dy.pack[k][i] = dy * weight.pack[k][i];
      now.x.pack[k][i] = xhat;
      sums.x += now.dy.pack[k][i];
      sums.y += now.dy.pack[k][i] * xhat;
    });
    sums = block_sum(sums);
    const float mean_g = kNorm == Norm::layer ? sums.x * inverse_n : 0.0F;
    const float mean_g_xhat = sums.y * inverse_n;
    Part::for_each(a.cols, [&](int k, int i) {
      now.dy.pack[k][i] = now.rstd * (now.dy.pack[k][i] - mean_g - now.x.pack[k][i] * mean_g_xhat);
    });
    if (a.d_residual != nullptr) {
      now.x.load(static_cast<const T*>(a.d_residual) + row * a.cols, a.cols, aligned);
      Part::for_each(a.cols, [&](int k, int i) { now.dy.pack[k][i] += now.x.pack[k][i]; });
    }
    now.dy.store(static_cast<T*>(a.dx) + row * a.cols, a.cols, aligned);
  }
  constexpr int kArrays = kNorm == Norm::layer ? 2 : 1;
  float* own = partials + std::int64_t{blockIdx.x} * kArrays * a.cols;
  const bool aligned_partials = a.cols % kPack == 0;
  dweight.store(own, a.cols, aligned_partials);
  if constexpr (kNorm == Norm::layer) dbias.store(own + a.cols, a.cols, aligned_partials);
}

template <Norm kNorm>
void launch_backward(Stream stream, const NormBackward& a, const char* what) {
  const bool aligned =
      a.cols % kPack == 0 && are_aligned({a.dy, a.x, a.weight, a.d_residual, a.dx, a.workspace});
  const std::int64_t blocks = blocks_of(a.rows, a.cols);
  auto* partials = static_cast<float*>(a.workspace);
  with_element(a.dtype, what, [&]<class T>(T) {
    with_packs(a.cols, what, [&]<class Packs>(Packs) {
      norm_backward<kNorm, T, Packs::value>
          <<<grid_size(blocks, what), NormShape(a.cols).threads, 0, stream>>>(a, aligned, partials);
    });
  });
  check_launch(what);
  constexpr int kArrays = kNorm == Norm::layer ? 2 : 1;
  launch_sum_partials(stream, blocks, kArrays * a.cols, partials, a.cols, a.dweight, a.dbias, a.accumulate);
}

}  // namespace

void launch_layernorm_backward(Stream stream, const NormBackward& args) {
  launch_backward<Norm::layer>(stream, args, "layernorm_backward");
}

void launch_rmsnorm_backward(Stream stream, const NormBackward& args) {
  launch_backward<Norm::rms>(stream, args, "rmsnorm_backward");
}

std::size_t norm_backward_workspace_bytes(std::int64_t rows, std::int64_t cols) {
  constexpr int kMostArrays = 2;
  return static_cast<std::size_t>(blocks_of(rows, cols) * kMostArrays * cols) * sizeof(float);
}

}  // namespace rooflm::backends::cuda
