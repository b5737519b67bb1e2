// Rows of experts: the sort by expert, the copies of tokens to rows, and the sums of rows to tokens.
#include <algorithm>

#include "backends/cuda/kernels/experts/experts.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "devices/cuda_workspaces.h"

namespace rooflm::backends::cuda {
namespace {

constexpr int kScanThreads = 1024;
constexpr int kMostWarpsOfSort = 8;    // of a block
constexpr int kSharedInts = 48 * 256;  // of a block: 48 KiB, which any GPU gives
constexpr int kRowThreads = 256;

/// A warp sorts a part of all choices; it counts each expert's.
struct Part {
  std::int64_t index, begin, end;

  __device__ explicit Part(std::int64_t rows)
      : index(std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y),
        begin(index * devices::kChoicesOfWarp),
        end(min(begin + devices::kChoicesOfWarp, rows)) {}
};

/// counts[e, part] = choices of expert e in the part.
__global__ void count_choices(std::int64_t rows, int experts, std::int64_t parts, const std::int32_t* chosen,
                              std::int32_t* counts) {
  extern __shared__ int shared[];
  const Part part(rows);
  if (part.index >= parts) return;
  int* own = shared + experts * static_cast<int>(threadIdx.y);
  const auto lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < experts; e += kWarp) own[e] = 0;
  __syncwarp();
  for (std::int64_t i = part.begin + lane; i < part.end; i += kWarp) atomicAdd(own + chosen[i], 1);
  __syncwarp();
  for (int e = lane; e < experts; e += kWarp) counts[e * parts + part.index] = own[e];
}

/// The sum of the lanes before this one; `all` is that of all lanes.
__device__ int sum_before(int x, int& all) {
  int sum = x;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, step);
    if (static_cast<int>(threadIdx.x) % kWarp >= step) sum += other;
  }
  all = __shfl_sync(kAllLanes, sum, kWarp - 1);
  return sum - x;
}

/// Makes of counts[e, part] the rows of e before that part, and offsets [E + 1]. One block.
__global__ void __launch_bounds__(kScanThreads)
    scan_counts(int experts, std::int64_t parts, std::int32_t* counts, std::int32_t* offsets) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int e = warp; e < experts; e += kScanThreads / kWarp) {
    int before = 0;
    std::int32_t* own = counts + e * parts;
    for (std::int64_t first = 0; first < parts; first += kWarp) {
      const bool exists = first + lane < parts;
      int all;
      const int sum = before + sum_before(exists ? own[first + lane] : 0, all);
      if (exists) own[first + lane] = sum;
      before += all;
    }
    if (lane == 0) offsets[e + 1] = before;
  }
  __syncthreads();
  if (warp != 0) return;
  int before = 0;
  for (int first = 0; first < experts; first += kWarp) {
    const bool exists = first + lane < experts;
    int all;
    const int own = exists ? offsets[first + lane + 1] : 0;
    const int sum = before + sum_before(own, all) + own;
    if (exists) offsets[first + lane + 1] = sum;
    before += all;
  }
  if (lane == 0) offsets[0] = 0;
}

/// In the order of choices: lanes with the same expert take its next rows from the lowest lane on.
__global__ void place_choices(std::int64_t rows, int experts, std::int64_t parts, const std::int32_t* chosen,
                              const std::int32_t* counts, const std::int32_t* offsets, std::int32_t* order,
                              std::int32_t* places) {
  extern __shared__ int shared[];
  const Part part(rows);
  if (part.index >= parts) return;
  int* next = shared + experts * static_cast<int>(threadIdx.y);
  const auto lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < experts; e += kWarp) next[e] = offsets[e] + counts[e * parts + part.index];
  __syncwarp();
  for (std::int64_t first = part.begin; first < part.end; first += kWarp) {
    const std::int64_t i = first + lane;
    const int expert = i < part.end ? chosen[i] : -1;
    const unsigned same = __match_any_sync(kAllLanes, expert);
    const int before = __popc(same & ((1U << static_cast<unsigned>(lane)) - 1U));
    const int row = expert < 0 ? 0 : next[expert] + before;
    __syncwarp();  // all have read
    if (expert >= 0) {
      places[i] = row;
      order[row] = static_cast<std::int32_t>(i);
      if (before == 0) next[expert] += __popc(same);
    }
    __syncwarp();
  }
}

/// A block for each token: its row, of `chunks` of type Chunk, to its K places.
template <class Chunk>
__global__ void gather_rows(int active, std::int64_t chunks, const Chunk* x, const std::int32_t* places,
                            Chunk* rows) {
  const std::int64_t token = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < chunks; i += blockDim.x) {
    const Chunk own = x[token * chunks + i];
    for (int k = 0; k < active; ++k) rows[places[token * active + k] * chunks + i] = own;
  }
}

/// A block for each token.
template <class T>
__global__ void combine(int active, std::int64_t cols, bool aligned, const T* rows, const float* weights,
                        const std::int32_t* places, T* y) {
  const std::int64_t token = blockIdx.x;
  for (std::int64_t i = threadIdx.x * std::int64_t{kPack}; i < cols; i += blockDim.x * std::int64_t{kPack}) {
    Pack sum{};
#pragma unroll 4
    for (int k = 0; k < active; ++k) {
      const std::int64_t row = places[token * active + k];
      const float weight = weights == nullptr ? 1.0F : weights[token * active + k];
      const Pack own = load_pack(rows + row * cols, i, cols, aligned);
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[j] += weight * own[j];
    }
    store_pack(y + token * cols, i, cols, aligned, sum);
  }
}

/// A block for each token, a warp for each of its rows.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    combine_backward(int active, std::int64_t cols, bool aligned, CombineBackward g) {
  const std::int64_t token = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* dy = static_cast<const T*>(g.dy) + token * cols;
  for (int k = static_cast<int>(threadIdx.x) / kWarp; k < active; k += static_cast<int>(blockDim.x) / kWarp) {
    const std::int64_t row = g.places[token * active + k];
    const float weight = g.drows == nullptr ? 0.0F : g.weights[token * active + k];
    const T* from = static_cast<const T*>(g.rows) + row * cols;
    T* to = static_cast<T*>(g.drows) + row * cols;
    float dot = 0;
    for (std::int64_t i = lane * std::int64_t{kPack}; i < cols; i += kWarp * std::int64_t{kPack}) {
      Pack own{};
      if (g.dweights != nullptr) own = load_pack(from, i, cols, aligned);
      Pack d = load_pack(dy, i, cols, aligned);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        dot += d[j] * own[j];
        d[j] *= weight;
      }
      if (g.drows != nullptr) store_pack(to, i, cols, aligned, d);
    }
    dot = warp_sum(dot);
    if (lane == 0 && g.dweights != nullptr) g.dweights[token * active + k] = dot;
  }
}

/// Threads for a row of so many packs.
int threads_for(std::int64_t packs) {
  return static_cast<int>(std::min<std::int64_t>(ceil_div(packs, kWarp) * kWarp, kRowThreads));
}

}  // namespace

void launch_dispatch(Stream stream, const ExpertShape& shape, const std::int32_t* experts,
                     std::int32_t* order, std::int32_t* places, std::int32_t* offsets, std::int32_t* counts) {
  constexpr const char* kWhat = "dispatch";
  const std::int64_t parts = ceil_div(shape.rows(), devices::kChoicesOfWarp);
  if (shape.experts > kSharedInts) throw core::Unavailable("dispatch on cuda: more than 12288 experts");
  const auto count = static_cast<int>(shape.experts);
  const int warps = std::min(kSharedInts / count, kMostWarpsOfSort);
  const dim3 threads(kWarp, static_cast<unsigned>(warps));
  const unsigned blocks = grid_size(ceil_div(parts, warps), kWhat);
  const int bytes = static_cast<int>(sizeof(int)) * count * warps;
  count_choices<<<blocks, threads, bytes, stream>>>(shape.rows(), count, parts, experts, counts);
  scan_counts<<<1, kScanThreads, 0, stream>>>(count, parts, counts, offsets);
  place_choices<<<blocks, threads, bytes, stream>>>(shape.rows(), count, parts, experts, counts, offsets,
                                                    order, places);
  check_launch(kWhat);
}

void launch_gather_rows(Stream stream, const ExpertShape& shape, std::int64_t cols, int element_bytes,
                        const void* x, const std::int32_t* places, void* rows) {
  constexpr const char* kWhat = "gather_rows";
  const auto active = static_cast<int>(shape.active);
  const std::int64_t bytes = cols * element_bytes;
  const auto launch = [&]<class Chunk>(Chunk) {
    const std::int64_t chunks = bytes / static_cast<std::int64_t>(sizeof(Chunk));
    gather_rows<Chunk><<<grid_size(shape.tokens, kWhat), threads_for(chunks), 0, stream>>>(
        active, chunks, static_cast<const Chunk*>(x), places, static_cast<Chunk*>(rows));
  };
  if (are_aligned({x, rows}) && bytes % static_cast<std::int64_t>(sizeof(uint4)) == 0) {
    launch(uint4{});
  } else if (element_bytes == sizeof(float)) {
    launch(float{});
  } else {
    launch(std::uint16_t{});
  }
  check_launch(kWhat);
}

void launch_combine(Stream stream, core::DType dtype, const ExpertShape& shape, std::int64_t cols,
                    const void* rows, const float* weights, const std::int32_t* places, void* y) {
  constexpr const char* kWhat = "combine";
  const bool aligned = are_aligned({rows, y}) && cols % kPack == 0;
  with_element(dtype, kWhat, [&]<class T>(T) {
    combine<T><<<grid_size(shape.tokens, kWhat), threads_for(ceil_div(cols, kPack)), 0, stream>>>(
        static_cast<int>(shape.active), cols, aligned, static_cast<const T*>(rows), weights, places,
        static_cast<T*>(y));
  });
  check_launch(kWhat);
}

void launch_combine_backward(Stream stream, core::DType dtype, const ExpertShape& shape, std::int64_t cols,
                             const CombineBackward& operands) {
  constexpr const char* kWhat = "combine_backward";
  const bool aligned = are_aligned({operands.dy, operands.rows, operands.drows}) && cols % kPack == 0;
  const auto threads = static_cast<int>(std::min<std::int64_t>(shape.active * kWarp, kRowThreads));
  with_element(dtype, kWhat, [&]<class T>(T) {
    combine_backward<T><<<grid_size(shape.tokens, kWhat), threads, 0, stream>>>(
        static_cast<int>(shape.active), cols, aligned, operands);
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
