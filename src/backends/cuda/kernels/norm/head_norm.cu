// Norms of heads: a warp per head, or a block per row of all query or key heads. Sums of weight gradients:
// threads have columns, blocks a part of the rows; a second kernel adds up the parts.
#include <algorithm>

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/norm/head_norm.h"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPartRows = 64;  // of a block that sums, at least
constexpr std::int64_t kMostParts = 64;

/// The elements of a group. Behind the groups of a row its v is one more.
struct Span {
  std::int64_t begin, size;
  const float *weight, *bias;  // or null

  __device__ Span(const HeadNorm& n, std::int64_t group) {
    const std::int64_t d = n.head_dim;
    const std::int64_t queries = n.heads * d;
    if (group == n.groups) {
      begin = queries + n.kv_heads * d;
      size = n.kv_heads * d;
      weight = bias = nullptr;
      return;
    }
    const bool is_key = n.is_whole ? group == 1 : group >= n.heads;
    begin = n.is_whole ? (is_key ? queries : 0) : group * d;
    size = n.is_whole ? (is_key ? n.kv_heads : n.heads) * d : d;
    weight = is_key ? n.wk : n.wq;
    bias = is_key ? n.bk : n.bq;
    const std::int64_t elements = is_key ? n.k_weights : n.q_weights;
    if (elements <= size) return;
    const std::int64_t first = begin - (is_key ? queries : 0);
    if (weight != nullptr) weight += first;
    if (bias != nullptr) bias += first;
  }
};

/// Threads that share a group: a warp, or with kWhole the block.
template <bool kWhole>
struct Team {
  int thread, threads;
  std::int64_t index;  // of the team in the grid
  __device__ Team()
      : thread(kWhole ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) % kWarp),
        threads(kWhole ? kThreads : kWarp),
        index(kWhole ? std::int64_t{blockIdx.x}
                     : std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp) {}
  template <class T>
  __device__ T sum(T x) const {
    if constexpr (kWhole) return block_sum(x);
    return warp_sum(x);
  }
};

template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads) head_norm(HeadNorm n, const T* qkv, T* y, float* statistics) {
  const Team<kWhole> team;
  const std::int64_t row = team.index / (n.groups + 1);
  if (row >= n.rows) return;
  const std::int64_t group = team.index - row * (n.groups + 1);
  const Span span(n, group);
  const T* x = qkv + row * n.width + span.begin;
  T* to = y + row * n.width + span.begin;
  if (group == n.groups) {
    for (std::int64_t i = team.thread; i < span.size && to != x; i += team.threads) to[i] = x[i];
    return;
  }
  const auto size = static_cast<float>(span.size);
  float mean = 0;
  if (n.is_layer) {
    float sum = 0;
    for (std::int64_t i = team.thread; i < span.size; i += team.threads) sum += to_float(x[i]);
    mean = team.sum(sum) / size;
  }
  float square = 0;
  for (std::int64_t i = team.thread; i < span.size; i += team.threads) {
    const float centred = to_float(x[i]) - mean;
    square += centred * centred;
  }
  const float rstd = 1.0F / sqrtf(team.sum(square) / size + n.eps);
  for (std::int64_t i = team.thread; i < span.size; i += team.threads) {
    const float weight = span.weight == nullptr ? 1.0F : span.weight[i];
    const float bias = span.bias == nullptr ? 0.0F : span.bias[i];
    to[i] = from_float<T>((to_float(x[i]) - mean) * rstd * weight + bias);
  }
  if (team.thread > 0) return;
  statistics[row * n.groups + group] = mean;
  statistics[(n.rows + row) * n.groups + group] = rstd;
}

/// With g = dy * weight: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), mean(g) 0 unless is_layer.
template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    head_norm_backward(HeadNorm n, const T* dy, const T* qkv, const float* statistics, T* dx) {
  const Team<kWhole> team;
  const std::int64_t row = team.index / (n.groups + 1);
  if (row >= n.rows) return;
  const std::int64_t group = team.index - row * (n.groups + 1);
  const Span span(n, group);
  const std::int64_t at = row * n.width + span.begin;
  if (group == n.groups) {
    for (std::int64_t i = team.thread; i < span.size && dx != dy; i += team.threads) dx[at + i] = dy[at + i];
    return;
  }
  const float mean = statistics[row * n.groups + group];
  const float rstd = statistics[(n.rows + row) * n.groups + group];
  const auto gradient = [&](std::int64_t i) {
    return to_float(dy[at + i]) * (span.weight == nullptr ? 1.0F : span.weight[i]);
  };
  const auto xhat = [&](std::int64_t i) { return (to_float(qkv[at + i]) - mean) * rstd; };
  float sum_g = 0;
  float sum_g_xhat = 0;
  for (std::int64_t i = team.thread; i < span.size; i += team.threads) {
    const float g = gradient(i);
    sum_g += g;
    sum_g_xhat += g * xhat(i);
  }
  const auto size = static_cast<float>(span.size);
  const float mean_g_xhat = team.sum(sum_g_xhat) / size;
  const float mean_g = n.is_layer ? team.sum(sum_g) / size : 0.0F;
  for (std::int64_t i = team.thread; i < span.size; i += team.threads)
    dx[at + i] = from_float<T>(rstd * (gradient(i) - mean_g - xhat(i) * mean_g_xhat));
}

/// partials [parts, H D] of queries, then [parts, K D] of keys: sums of dy * xhat, or of dy for biases, over
/// a part of the rows.
template <class T, bool kBias>
__global__ void __launch_bounds__(kThreads)
    head_norm_sums(HeadNorm n, std::int64_t part_rows, const T* dy, const T* qkv, const float* statistics,
                   float* partials) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t queries = n.heads * n.head_dim;
  const std::int64_t keys = n.kv_heads * n.head_dim;
  if (col >= queries + keys) return;
  const bool is_key = col >= queries;
  const std::int64_t group = n.is_whole ? (is_key ? 1 : 0) : col / n.head_dim;
  const std::int64_t first = blockIdx.y * part_rows;
  const std::int64_t end = first + part_rows < n.rows ? first + part_rows : n.rows;
  float sum = 0;
#pragma unroll 4
  for (std::int64_t row = first; row < end; ++row) {
    const float mean = statistics[row * n.groups + group];
    const float rstd = statistics[(n.rows + row) * n.groups + group];
    const std::int64_t at = row * n.width + col;
    sum += to_float(dy[at]) * (kBias ? 1.0F : (to_float(qkv[at]) - mean) * rstd);
  }
  const std::int64_t part = blockIdx.y;
  if (is_key) {
    partials[gridDim.y * queries + part * keys + (col - queries)] = sum;
  } else {
    partials[part * queries + col] = sum;
  }
}

std::int64_t parts_of(const HeadNorm& n) {
  return std::clamp<std::int64_t>(n.rows / kPartRows, 1, kMostParts);
}

unsigned blocks_of(const HeadNorm& n, const char* what) {
  const std::int64_t teams = n.rows * (n.groups + 1);
  return grid_size(n.is_whole ? teams : ceil_div(teams, kThreads / kWarp), what);
}

bool has_weights(const HeadNorm& n) { return n.q_weights > 0; }

}  // namespace

void launch_head_norm(Stream stream, const HeadNorm& n, const void* qkv, void* y, float* statistics) {
  if (n.rows == 0) return;
  with_element(n.dtype, "head_norm", [&]<class T>(T) {
    auto* kernel = n.is_whole ? head_norm<T, true> : head_norm<T, false>;
    kernel<<<blocks_of(n, "head_norm"), kThreads, 0, stream>>>(n, static_cast<const T*>(qkv),
                                                               static_cast<T*>(y), statistics);
  });
  check_launch("head_norm");
}

void launch_head_norm_backward(Stream stream, const HeadNorm& n, const void* dy, const void* qkv,
                               const float* statistics, void* dqkv, const HeadNormSums& dw,
                               const HeadNormSums& db, float* workspace) {
  if (n.rows == 0) return;
  const std::int64_t queries = n.heads * n.head_dim;
  const std::int64_t keys = n.kv_heads * n.head_dim;
  const std::int64_t parts = parts_of(n);
  with_element(n.dtype, "head_norm_backward", [&]<class T>(T) {
    const auto* d = static_cast<const T*>(dy);
    const auto* x = static_cast<const T*>(qkv);
    const dim3 grid(grid_size(ceil_div(queries + keys, kThreads), "head_norm_backward"),
                    static_cast<unsigned>(parts));
    const auto sum = [&](auto* kernel, const HeadNormSums& to) {
      if (to.queries == nullptr) return;
      kernel<<<grid, kThreads, 0, stream>>>(n, ceil_div(n.rows, parts), d, x, statistics, workspace);
      // Heads that share a weight are parts of its sum.
      launch_sum_partials(stream, parts * (queries / n.q_weights), workspace,
                          {.cols = n.q_weights, .arrays = 1, .out = {to.queries}}, n.accumulate);
      launch_sum_partials(stream, parts * (keys / n.k_weights), workspace + parts * queries,
                          {.cols = n.k_weights, .arrays = 1, .out = {to.keys}}, n.accumulate);
    };
    sum(head_norm_sums<T, false>, dw);  // before dqkv, which may be dy
    sum(head_norm_sums<T, true>, db);
    auto* kernel = n.is_whole ? head_norm_backward<T, true> : head_norm_backward<T, false>;
    kernel<<<blocks_of(n, "head_norm_backward"), kThreads, 0, stream>>>(n, d, x, statistics,
                                                                        static_cast<T*>(dqkv));
  });
  check_launch("head_norm_backward");
}

std::size_t head_norm_workspace_bytes(const HeadNorm& n) {
  if (!has_weights(n)) return 0;
  return static_cast<std::size_t>(parts_of(n) * (n.heads + n.kv_heads) * n.head_dim) * sizeof(float);
}

int head_norm_backward_launches(const HeadNorm& n, bool has_biases) {
  constexpr int kOfSums = 3;  // partial sums, and sums of those of queries and of keys
  return 1 + (has_weights(n) ? kOfSums : 0) + (has_biases ? kOfSums : 0);
}

}  // namespace rooflm::backends::cuda
