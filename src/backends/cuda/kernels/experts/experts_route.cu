// The choice of experts and its gradient: a warp for each token, its scores in shared memory.
#include <algorithm>

#include "backends/cuda/kernels/experts/experts.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/loss_scale.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kMostTokens = 8;           // of a block
constexpr int kSharedFloats = 48 * 256;  // of a block: 48 KiB, which any GPU gives
constexpr int kFloatsOfExpert = 2;       // per token; sums of groups are one more
constexpr float kLeastSum = 1e-20F;      // added to sums that are divided by: all sigmoids may be 0

/// Tokens of a block.
int tokens_at_once(std::int64_t floats_of_token, const char* what) {
  const std::int64_t fit = kSharedFloats / floats_of_token;
  if (fit < 1) throw core::Unavailable(std::string(what) + " on cuda: too many experts for shared memory");
  return static_cast<int>(std::min<std::int64_t>(fit, kMostTokens));
}

__host__ __device__ std::int64_t floats_of_token(const ExpertShape& shape, const RouteRule& rule) {
  return kFloatsOfExpert * shape.experts + (rule.groups > 1 ? rule.groups : 0);
}

/// The sum of `body(e)` over all experts, in all lanes.
template <class Body>
__device__ float sum_over(int experts, Body&& body) {
  float sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kWarp) sum += body(e);
  return warp_sum(sum);
}

template <class T>
__device__ float most_of(int experts, const T* logits) {
  float most = -INFINITY;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kWarp)
    most = fmaxf(most, to_float(logits[e]));
  return warp_max(most);
}

/// s [E] of logits [E]. Each lane writes its experts only.
template <class T>
__device__ void score(bool is_sigmoid, int experts, const T* logits, float* s) {
  const float most = is_sigmoid ? 0.0F : most_of(experts, logits);
  float sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kWarp) {
    const float x = to_float(logits[e]);
    s[e] = is_sigmoid ? 1.0F / (1.0F + expf(-x)) : expf(x - most);
    sum += s[e];
  }
  if (is_sigmoid) return;
  sum = warp_sum(sum);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kWarp) s[e] /= sum;
}

/// Numbers as integers of the same order, NaN lowest; none is 0, which stands for what cannot be chosen.
__device__ unsigned ranked(float x) {
  if (isnan(x)) return 1;
  const unsigned bits = __float_as_uint(x + 0.0F);  // -0 becomes 0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

__device__ std::uint64_t warp_most(std::uint64_t x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const std::uint64_t other = __shfl_xor_sync(kAllLanes, x, step);
    x = other > x ? other : x;
  }
  return x;
}

__device__ float number_of(unsigned rank) {
  return __uint_as_float((rank & 0x80000000U) != 0 ? rank & 0x7fffffffU : ~rank);
}

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

/// Of number i: keys have the order of the numbers, and of equal ones the lowest i has the greatest.
__device__ std::uint64_t key_of(unsigned rank, int i) {
  return std::uint64_t{rank} << 32U | (0xffffffffU - static_cast<unsigned>(i));
}
__device__ int index_of(std::uint64_t key) {
  return static_cast<int>(0xffffffffU - static_cast<unsigned>(key));
}

/// The greatest key below `limit`, in all lanes.
__device__ std::uint64_t most_below(std::uint64_t limit, int count, const unsigned* ranks) {
  std::uint64_t best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp) {
    const std::uint64_t own = key_of(ranks[i], i);
    if (own < limit && own > best) best = own;
  }
  return warp_most(best);
}

/// Experts of groups that are not chosen cannot be. `sums`: room for one rank per group.
__device__ void keep_groups(const RouteRule& rule, int experts, unsigned* ranks, unsigned* sums) {
  const int size = experts / rule.groups;
  const auto lane = static_cast<int>(threadIdx.x);
  for (int g = lane; g < rule.groups; g += kWarp) {
    float sum = 0;
    std::uint64_t last = kNoLimit;
    for (int i = 0; i < min(rule.group_best, size); ++i) {
      std::uint64_t best = 0;
      for (int e = g * size; e < (g + 1) * size; ++e) {
        const std::uint64_t own = key_of(ranks[e], e);
        if (own < last && own > best) best = own;
      }
      sum += number_of(static_cast<unsigned>(best >> 32U));
      last = best;
    }
    sums[g] = ranked(sum);
  }
  __syncwarp();
  std::uint64_t last = kNoLimit;
  for (int i = 0; i < rule.active_groups; ++i) last = most_below(last, rule.groups, sums);
  for (int e = lane; e < experts; e += kWarp) {
    if (key_of(sums[e / size], e / size) < last) ranks[e] = 0;
  }
  __syncwarp();
}

/// Of a sparse mixer: e^(logit - most), most the logit of the k-th choice, if expert e is near it and not an
/// earlier choice, else 0.
template <class T>
__device__ float mixed(float jitter, const T* logits, int e, const std::int32_t* chosen, int k) {
  const float most = to_float(logits[chosen[k]]);
  const float logit = to_float(logits[e]);
  if (most - logit > fmaxf(fabsf(logit), most) * (2 * jitter)) return 0;
  for (int i = 0; i < k; ++i) {
    if (chosen[i] == e) return 0;
  }
  return expf(logit - most);
}

template <class T>
__device__ float mixed_sum(float jitter, int experts, const T* logits, const std::int32_t* chosen, int k) {
  return sum_over(experts, [&](int e) { return mixed(jitter, logits, e, chosen, k); });
}

template <class T>
__global__ void route(ExpertShape shape, RouteRule rule, const T* logits, const float* bias, float* weights,
                      std::int32_t* chosen) {
  extern __shared__ float shared[];
  const std::int64_t token = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (token >= shape.tokens) return;
  const auto experts = static_cast<int>(shape.experts);
  const auto active = static_cast<int>(shape.active);
  const auto lane = static_cast<int>(threadIdx.x);
  float* s = shared + floats_of_token(shape, rule) * threadIdx.y;
  auto* ranks = reinterpret_cast<unsigned*>(s + experts);
  const bool is_mixer = rule.jitter >= 0;
  logits += token * experts;
  if (!is_mixer) score(rule.is_sigmoid, experts, logits, s);
  for (int e = lane; e < experts; e += kWarp) {
    const float number = is_mixer ? to_float(logits[e]) : s[e];
    ranks[e] = ranked(bias == nullptr ? number : number + bias[e]);
  }
  __syncwarp();
  if (rule.groups > 1) keep_groups(rule, experts, ranks, ranks + experts);
  weights += token * active;
  chosen += token * active;
  float sum = kLeastSum;
  std::uint64_t last = kNoLimit;
  for (int k = 0; k < active; ++k) {
    last = most_below(last, experts, ranks);
    const int expert = index_of(last);
    if (lane == k % kWarp) chosen[k] = expert;
    __syncwarp();
    const float weight = is_mixer ? 1.0F / mixed_sum(rule.jitter, experts, logits, chosen, k) : s[expert];
    sum += weight;
    if (lane == k % kWarp) weights[k] = weight;
  }
  const float divisor = rule.is_normalised && !is_mixer ? sum : 1.0F;
  for (int k = lane; k < active; k += kWarp) weights[k] = rule.scale * weights[k] / divisor;
}

/// Integers, whose sum is the same in any order; a block counts in shared memory first.
__global__ void count_rows(std::int64_t rows, int experts, const std::int32_t* chosen, std::int32_t* counts) {
  extern __shared__ std::int32_t own[];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  for (int e = thread; e < experts; e += threads) own[e] = 0;
  __syncthreads();
  for (std::int64_t i = blockIdx.x * std::int64_t{threads} + thread; i < rows;
       i += std::int64_t{gridDim.x} * threads) {
    atomicAdd(own + chosen[i], 1);
  }
  __syncthreads();
  for (int e = thread; e < experts; e += threads) {
    if (own[e] != 0) atomicAdd(counts + e, own[e]);
  }
}
__global__ void clear_counts(int experts, std::int32_t* counts) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) counts[e] = 0;
}

/// The gradient reaches the scores through the weights of the chosen experts and, by the balance loss,
/// through all shares of the scores: the scores themselves, or sigmoids over their sum.
template <class T>
__global__ void route_backward(ExpertShape shape, RouteRule rule, RouteBackward g, float balance,
                               float z_loss) {
  extern __shared__ float shared[];
  const std::int64_t token = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (token >= shape.tokens) return;
  const auto experts = static_cast<int>(shape.experts);
  const auto active = static_cast<int>(shape.active);
  const auto lane = static_cast<int>(threadIdx.x);
  float* s = shared + floats_of_token(shape, rule) * threadIdx.y;
  float* ds = s + experts;
  const T* logits = static_cast<const T*>(g.logits) + token * experts;
  const float* dweights = g.dweights + token * active;
  const std::int32_t* chosen = g.experts + token * active;
  const float scale = scale_of(g.loss_scale);
  score(rule.is_sigmoid, experts, logits, s);
  const auto spread = [&](int e) {
    return g.counts == nullptr ? 0.0F : static_cast<float>(g.counts[e]) * (balance * scale);
  };
  float all = 1.0F;
  float mean_spread = 0.0F;
  if (rule.is_sigmoid && g.counts != nullptr) {
    all = sum_over(experts, [&](int e) { return s[e]; }) + kLeastSum;
    mean_spread = sum_over(experts, [&](int e) { return spread(e) * s[e]; }) / all;
  }
  for (int e = lane; e < experts; e += kWarp) ds[e] = (spread(e) - mean_spread) / all;
  __syncwarp();
  float sum = 1.0F;
  float mean = 0.0F;
  if (rule.is_normalised) {
    sum = kLeastSum;
    for (int k = 0; k < active; ++k) sum += s[chosen[k]];
    for (int k = 0; k < active; ++k) mean += dweights[k] * s[chosen[k]] / sum;
  }
  const bool is_mixer = rule.jitter >= 0;
  for (int k = lane; k < active && !is_mixer; k += kWarp)
    ds[chosen[k]] += rule.scale * (dweights[k] - mean) / sum;
  __syncwarp();
  const float along = rule.is_sigmoid ? 0.0F : sum_over(experts, [&](int e) { return ds[e] * s[e]; });
  float log_sum = 0.0F;
  const float z = z_loss * scale;
  if (z != 0.0F) {
    const float most = most_of(experts, logits);
    log_sum = most + logf(sum_over(experts, [&](int e) { return expf(to_float(logits[e]) - most); }));
  }
  T* dlogits = static_cast<T*>(g.dlogits) + token * experts;
  for (int e = lane; e < experts; e += kWarp) {
    float d = rule.is_sigmoid ? ds[e] * s[e] * (1.0F - s[e]) : s[e] * (ds[e] - along);
    if (z != 0.0F) d += 2.0F * z * log_sum * expf(to_float(logits[e]) - log_sum);
    ds[e] = d;
  }
  for (int k = 0; k < active && is_mixer; ++k) {  // each lane changes its experts only
    const float total = mixed_sum(rule.jitter, experts, logits, chosen, k);
    const float d = rule.scale * dweights[k] / total;
    for (int e = lane; e < experts; e += kWarp) {
      const float share = mixed(rule.jitter, logits, e, chosen, k) / total;
      ds[e] += d * ((e == chosen[k] ? 1.0F : 0.0F) - share);
    }
  }
  for (int e = lane; e < experts; e += kWarp) dlogits[e] = from_float<T>(ds[e]);
}

/// Blocks of a warp for each token.
struct TokenGrid {
  dim3 threads;
  unsigned blocks;
  int bytes;

  TokenGrid(const ExpertShape& shape, const RouteRule& rule, const char* what) {
    const std::int64_t floats = floats_of_token(shape, rule);
    const int tokens = tokens_at_once(floats, what);
    threads = dim3(kWarp, static_cast<unsigned>(tokens));
    blocks = grid_size(ceil_div(shape.tokens, tokens), what);
    bytes = static_cast<int>(sizeof(float)) * static_cast<int>(floats) * tokens;
  }
};

}  // namespace

void launch_route(Stream stream, core::DType dtype, const ExpertShape& shape, const RouteRule& rule,
                  const void* logits, const float* bias, float* weights, std::int32_t* experts) {
  constexpr const char* kWhat = "route";
  const TokenGrid grid(shape, rule, kWhat);
  with_element(dtype, kWhat, [&]<class T>(T) {
    route<T><<<grid.blocks, grid.threads, grid.bytes, stream>>>(shape, rule, static_cast<const T*>(logits),
                                                                bias, weights, experts);
  });
  check_launch(kWhat);
}

void launch_route_backward(Stream stream, core::DType dtype, const ExpertShape& shape, const RouteRule& rule,
                           const RouteBackward& operands) {
  constexpr const char* kWhat = "route_backward";
  constexpr int kThreads = 256;
  constexpr std::int64_t kEach = 8;  // rows of a thread
  constexpr std::int64_t kMostBlocks = 512;
  const TokenGrid grid(shape, rule, kWhat);
  RouteBackward g = operands;
  if (rule.balance == 0) g.counts = nullptr;
  if (g.counts != nullptr) {
    const auto experts = static_cast<int>(shape.experts);
    const int bytes = experts * static_cast<int>(sizeof(std::int32_t));
    const auto blocks =
        static_cast<unsigned>(std::min(ceil_div(shape.rows(), kThreads * kEach), kMostBlocks));
    clear_counts<<<1, kThreads, 0, stream>>>(experts, g.counts);
    count_rows<<<blocks, kThreads, bytes, stream>>>(shape.rows(), experts, g.experts, g.counts);
    check_launch(kWhat);
  }
  const auto tokens = static_cast<double>(shape.tokens);
  const double of_token = rule.share / tokens;
  // balance E f_e / N, with f_e = rows of e / N
  const double balance = rule.balance * static_cast<double>(shape.experts) / tokens * of_token;
  with_element(dtype, kWhat, [&]<class T>(T) {
    route_backward<T><<<grid.blocks, grid.threads, grid.bytes, stream>>>(
        shape, rule, g, static_cast<float>(balance), static_cast<float>(rule.z_loss * of_token));
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
