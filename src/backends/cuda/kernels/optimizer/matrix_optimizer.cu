// What optimizers of whole matrices need beside matmuls and sgd.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/optimizer/matrix_optimizer.h"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/tensor_list.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr std::int64_t kMomentumPiece = std::int64_t{kElementThreads} * kPack;
constexpr std::int64_t kNormPiece = 65536;

__device__ bool is_aligned(const void* a, const void* b, const void* c) {
  const auto bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                    reinterpret_cast<std::uintptr_t>(c);
  return bits % sizeof(uint4) == 0;
}

template <class D>
__global__ void __launch_bounds__(kElementThreads)
    momentum(MomentumStep step, const __grid_constant__ TensorList<MomentumTensor> list) {
  const int index = list.find(blockIdx.x);
  const MomentumTensor& t = list.tensors[index];
  const std::int64_t first =
      (std::int64_t{blockIdx.x - list.first_block[index]} * kElementThreads + threadIdx.x) * kPack;
  if (first >= t.count) return;
  float factor = 1.0F;
  if (step.norm != nullptr) {
    const float ratio = step.max_norm / (*step.norm + 1e-6F);
    factor = ratio >= 1.0F ? 1.0F : ratio;  // NaN stays NaN
  }
  if (step.squared) factor *= factor;
  const bool aligned = is_aligned(t.gradient, t.moment, t.direction);
  const auto load = [&]<class G>(const G* gradient) { return load_pack(gradient, first, t.count, aligned); };
  const Pack g = t.gradient_dtype == core::DType::bf16  ? load(static_cast<const bf16*>(t.gradient))
                 : t.gradient_dtype == core::DType::f16 ? load(static_cast<const fp16*>(t.gradient))
                                                        : load(static_cast<const float*>(t.gradient));
  Pack m = load_pack(static_cast<const float*>(t.moment), first, t.count, aligned);
  Pack d;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float fresh = step.beta.fresh * (factor * g[i]);
    m[i] = step.beta.old * m[i] + fresh;
    d[i] = step.nesterov ? step.beta.old * m[i] + fresh : m[i];
  }
  store_pack(t.moment, first, t.count, aligned, m);
  store_pack(static_cast<D*>(t.direction), first, t.count, aligned, d);
}

/// Block (piece, matrix): the sum of squares of a piece of a matrix; in fp32 within a pack, in double beyond
/// it.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    matrix_squares(std::int64_t n, bool aligned, const T* x, double* sums) {
  const T* matrix = x + blockIdx.y * n;
  const std::int64_t begin = blockIdx.x * kNormPiece;
  const std::int64_t end = min(begin + kNormPiece, n);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * kPack; i < end; i += std::int64_t{kElementThreads} * kPack) {
    const Pack values = load_pack(matrix, i, n, aligned);
    float square = 0;
#pragma unroll
    for (int k = 0; k < kPack; ++k) square += values[k] * values[k];
    sum += static_cast<double>(square);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = sum;
}

/// Block (piece, matrix): every block adds up the sums of its matrix.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    scale_matrices(std::int64_t n, bool aligned, double size, double eps, const T* x, const double* sums,
                   T* y) {
  double total = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kElementThreads)
    total += sums[std::int64_t{blockIdx.y} * gridDim.x + i];
  const auto factor = static_cast<float>(size / (sqrt(block_sum(total)) + eps));
  const T* from = x + blockIdx.y * n;
  T* to = y + blockIdx.y * n;
  const std::int64_t begin = blockIdx.x * kNormPiece;
  const std::int64_t end = min(begin + kNormPiece, n);
  for (std::int64_t i = begin + threadIdx.x * kPack; i < end; i += std::int64_t{kElementThreads} * kPack) {
    Pack values = load_pack(from, i, n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) values[k] *= factor;
    store_pack(to, i, n, aligned, values);
  }
}

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    matrix_polynomial(MatrixPolynomial p, bool aligned, const T* x, const T* square, T* y) {
  const Place at(own_pack(), p.n);
  if (at.row >= p.rows) return;
  Pack values = load_pack(x + at.row * p.n, at.col, p.n, aligned);
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] *= p.b;
  if (square != nullptr) {
    const Pack more = load_pack(square + at.row * p.n, at.col, p.n, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) values[i] += p.c * more[i];
  }
  const std::int64_t diagonal = at.row % p.n - at.col;
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] += i == diagonal ? p.a : 0.0F;
  store_pack(y + at.row * p.n, at.col, p.n, aligned, values);
}

}  // namespace

void launch_momentum(Stream stream, const MomentumStep& step, std::span<const MomentumTensor> tensors) {
  with_element(step.direction_dtype, "momentum", [&]<class D>(D) {
    for_lists<kMomentumPiece>(tensors, "momentum",
                              [&](const TensorList<MomentumTensor>& list, unsigned blocks, std::int64_t) {
                                momentum<D><<<blocks, kElementThreads, 0, stream>>>(step, list);
                              });
  });
}

std::int64_t momentum_launches(std::span<const std::int64_t> counts) {
  return lists_of<MomentumTensor>(counts);
}

std::size_t normalize_workspace_bytes(std::int64_t matrices, std::int64_t n) {
  return static_cast<std::size_t>(matrices * ceil_div(n, kNormPiece)) * sizeof(double);
}

void launch_normalize(Stream stream, core::DType dtype, const Normalize& p) {
  if (p.matrices == 0) return;
  const dim3 grid(grid_size(ceil_div(p.n, kNormPiece), "normalize"), static_cast<unsigned>(p.matrices));
  with_element(dtype, "normalize", [&]<class T>(T) {
    const bool aligned = p.n % kPack == 0 && are_aligned({p.x, p.y});
    const auto* x = static_cast<const T*>(p.x);
    auto* sums = static_cast<double*>(p.workspace);
    matrix_squares<<<grid, kElementThreads, 0, stream>>>(p.n, aligned, x, sums);
    scale_matrices<<<grid, kElementThreads, 0, stream>>>(p.n, aligned, p.size, p.eps, x, sums,
                                                         static_cast<T*>(p.y));
  });
  check_launch("normalize");
}

void launch_matrix_polynomial(Stream stream, core::DType dtype, const MatrixPolynomial& p) {
  if (p.rows == 0) return;
  with_element(dtype, "matrix_polynomial", [&]<class T>(T) {
    const bool aligned = p.n % kPack == 0 && are_aligned({p.x, p.square, p.y});
    matrix_polynomial<<<row_blocks(p.rows, p.n, "matrix_polynomial"), kElementThreads, 0, stream>>>(
        p, aligned, static_cast<const T*>(p.x), static_cast<const T*>(p.square), static_cast<T*>(p.y));
  });
  check_launch("matrix_polynomial");
}

}  // namespace rooflm::backends::cuda
