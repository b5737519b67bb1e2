// Decode attention: one block per row, key/value head and part of the cache. The last block of a row and head
// to finish merges the parts.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backends/cuda/kernels/attention/decode_attention.cuh"
#include "backends/cuda/kernels/attention/decode_attention_mma.cuh"
#include "backends/cuda/kernels/chain.cuh"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kSharedHeads = 4;           // query heads of one key/value head per block of ThreadAttention
constexpr std::int64_t kFewestKeys = 64;  // least keys per part

template <int kHeads>
__device__ BlockWork work_of_block(const Decode& d) {
  const int chunks = (d.group() + kHeads - 1) / kHeads;
  const int kv_head = static_cast<int>(blockIdx.y) / chunks;
  const int chunk = static_cast<int>(blockIdx.y) - kv_head * chunks;
  return {.text = blockIdx.z,
          .kv_head = kv_head,
          .first_head = kv_head * d.group() + chunk * kHeads,
          .heads = min(kHeads, d.group() - chunk * kHeads)};
}

/// Writes the new token's row into the cache; done by the block whose part contains it.
template <class T>
__device__ void append(const Decode& d, const BlockWork& work, const T* row, std::int64_t to, T* k, T* v) {
  const T* key = row + std::int64_t{d.heads + work.kv_head} * d.dim;
  const T* value = key + std::int64_t{d.kv_heads} * d.dim;
  for (int i = static_cast<int>(threadIdx.x); i < d.dim; i += kDecodeThreads) {
    k[to + i] = key[i];
    v[to + i] = value[i];
  }
  __syncthreads();
}

/// Block (head, row) does so for rows of texts whose caches are in blocks.
template <class T>
__global__ void __launch_bounds__(kDecodeThreads)
    append_to_blocks(Decode d, const T* qkv, const std::int32_t* first, T* k, T* v) {
  follow_previous();
  const std::int64_t row = blockIdx.y;
  const BlockWork work{.text = row, .kv_head = static_cast<int>(blockIdx.x), .first_head = 0, .heads = 0};
  const CacheRows<true> rows(d, row, work.kv_head);
  append(d, work, qkv + row * (d.heads + 2 * d.kv_heads) * d.dim, rows.at(first[row]), k, v);
}

/// Any element and head size. Each thread holds eight elements of a row; a few neighbouring threads share a
/// row and keep their own maximum and sum.
template <class T, int kOwnHeads>
struct ThreadAttention {
  using Element = T;
  static constexpr int kHeads = kOwnHeads;
  static constexpr int kRows = 4;  // rows in flight per thread
  using Results = PartResults<kHeads, kDecodeThreads, kDecodeThreads * kPack>;

  __device__ static int parts(const Decode& d) { return kDecodeThreads / d.lanes; }
  __device__ static int part_elements(const Decode& d) { return d.lanes * kPack; }

  template <bool kRules, bool kPaged>
  __device__ static void attend(const Decode& d, const BlockWork& work, const DecodeRules& rules,
                                const CacheRows<kPaged>& rows, std::int64_t begin, std::int64_t end,
                                const T* queries, const T* k, const T* v, Results& results) {
    const int groups = parts(d);
    const int own = static_cast<int>(threadIdx.x) / d.lanes;
    const int column = static_cast<int>(threadIdx.x) % d.lanes * kPack;
    Pack q[kHeads], output[kHeads] = {};
    float slopes[kHeads], top[kHeads], sum[kHeads] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      top[h] = kNothing;
      slopes[h] = kRules ? DecodeRules::slope(d, work.first_head + h) : 0;
      q[h] = h < work.heads ? load_pack(queries + h * d.dim, column, d.dim, d.aligned) : Pack{};
#pragma unroll
      for (int i = 0; i < kPack; ++i) q[h][i] *= d.scale;
    }
    for (std::int64_t t = begin + own; t - own < end; t += groups * kRows) {
      Pack keys[kRows], values[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row = rows.at(min(t + r * groups, end - 1));
        keys[r] = load_pack(k + row, column, d.dim, d.aligned);
        values[r] = load_pack(v + row, column, d.dim, d.aligned);
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float scores[kRows];
        float most = top[h];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float score = 0;
#pragma unroll
          for (int i = 0; i < kPack; ++i) score += q[h][i] * keys[r][i];
          for (int step = d.lanes / 2; step > 0; step /= 2) score += __shfl_xor_sync(kAllLanes, score, step);
          if constexpr (kRules) score = rules.score(score, t + r * groups, slopes[h]);
          scores[r] = t + r * groups < end ? score : kNothing;
          most = fmaxf(most, scores[r]);
        }
        const float rescale = weight_of(top[h], most);
        top[h] = most;
        sum[h] *= rescale;
#pragma unroll
        for (int i = 0; i < kPack; ++i) output[h][i] *= rescale;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float p = t + r * groups < end ? weight_of(scores[r], most) : 0.0F;
          sum[h] += p;
#pragma unroll
          for (int i = 0; i < kPack; ++i) output[h][i] += p * values[r][i];
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) results.outputs[h][threadIdx.x * kPack + i] = output[h][i];
      if (column == 0) {
        results.tops[h][own] = top[h];
        results.sums[h][own] = sum[h];
      }
    }
  }
};

/// Merges `count` partial results: the maximum, the sum and the requested element.
struct Merged {
  float top, sum, value;
};
template <class Read>
__device__ Merged merge(int count, Read&& read) {
  Merged all{kNothing, 0, 0};
  for (int i = 0; i < count; ++i) {
    const Merged part = read(i);
    const float top = fmaxf(all.top, part.top);
    const float before = weight_of(all.top, top);
    const float now = weight_of(part.top, top);
    all = {top, all.sum * before + part.sum * now, all.value * before + part.value * now};
  }
  return all;
}

/// What values were summed to, by what their weights were and a sink of so many powers of two.
template <bool kRules>
__device__ float share_of(const Merged& all, const Decode& d, int head) {
  if constexpr (kRules) {
    if (d.sinks.data != nullptr) {
      const float sink = sink_of(d.sinks, head) * kLog2E;
      const float top = fmaxf(all.top, sink);
      const float kept = weight_of(all.top, top);
      return all.value * kept / (all.sum * kept + weight_of(sink, top));
    }
  }
  return all.value / all.sum;
}

/// Attention: ThreadAttention or TensorCoreAttention.
template <class Attention, bool kRules, bool kPaged, class T = Attention::Element>
__global__ void __launch_bounds__(kDecodeThreads)
    decode_attention(Decode d, const T* qkv, const std::int32_t* first, T* k, T* v, T* y, float* partial,
                     unsigned* counters) {
  follow_previous();
  const BlockWork work = work_of_block<Attention::kHeads>(d);
  const std::int64_t position = first[work.text];
  const DecodeRules rules(d, position);
  const std::int64_t before = kRules ? rules.begin : 0;  // rows that the query does not see
  const std::int64_t keys = position + 1 - before;
  // Rows are distributed evenly; parts beyond the last have none.
  const std::int64_t each = max((keys + d.parts - 1) / d.parts, kFewestKeys);
  const int parts = static_cast<int>((keys + each - 1) / each);
  const int part = static_cast<int>(blockIdx.x);
  if (part >= parts) return;
  const std::int64_t begin = before + part * each;
  const std::int64_t end = min(before + keys, begin + each);
  const T* row = qkv + work.text * (d.heads + 2 * d.kv_heads) * d.dim;
  const CacheRows<kPaged> rows(d, work.text, work.kv_head);
  if (!kPaged && part == parts - 1) append(d, work, row, rows.at(position), k, v);

  __shared__ typename Attention::Results results;
  Attention::template attend<kRules, kPaged>(d, work, rules, rows, begin, end,
                                             row + std::int64_t{work.first_head} * d.dim, k, v, results);
  __syncthreads();
  const int elements = work.heads * d.dim;
  const int part_size = d.dim + 2;
  const auto partial_of = [&](int head, int i) {
    return partial + ((work.text * d.heads + work.first_head + head) * d.parts + i) * part_size;
  };
  T* result = y + (work.text * d.heads + work.first_head) * d.dim;
  for (int e = static_cast<int>(threadIdx.x); e < elements; e += kDecodeThreads) {
    const int h = e / d.dim;
    const int i = e - h * d.dim;
    const Merged all = merge(Attention::parts(d), [&](int g) {
      return Merged{results.tops[h][g], results.sums[h][g],
                    results.outputs[h][g * Attention::part_elements(d) + i]};
    });
    if (parts == 1) {
      result[e] = from_float<T>(share_of<kRules>(all, d, work.first_head + h));
    } else {
      float* to = partial_of(h, part);
      to[2 + i] = all.value;
      if (i == 0) {
        to[0] = all.top;
        to[1] = all.sum;
      }
    }
  }
  if (parts == 1) return;

  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned* counter = counters + work.text * gridDim.y + blockIdx.y;
    is_last = atomicInc(counter, static_cast<unsigned>(parts - 1)) == static_cast<unsigned>(parts - 1);
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int e = static_cast<int>(threadIdx.x); e < elements; e += kDecodeThreads) {
    const int h = e / d.dim;
    const int i = e - h * d.dim;
    const Merged all = merge(parts, [&](int p) {
      const float* from = partial_of(h, p);
      return Merged{__ldcg(from), __ldcg(from + 1), __ldcg(from + 2 + i)};
    });
    result[e] = from_float<T>(share_of<kRules>(all, d, work.first_head + h));
  }
}

/// Blocks per part, of that many query heads each.
std::int64_t blocks_of(const DecodeShape& s, int heads = kSharedHeads) {
  return s.batch * s.kv_heads * ceil_div(s.heads / s.kv_heads, heads);
}

/// Neighbouring threads that share a row: a power of two.
int lanes_of(std::int64_t head_dim) {
  int lanes = 1;
  while (lanes * kPack < head_dim) lanes *= 2;
  return lanes;
}

/// `cache` of blocks, or none.
void launch_attention(Stream stream, core::DType dtype, const DecodeShape& shape, const CacheBlocks& cache,
                      int parts, const void* qkv, const std::int32_t* first, void* k, void* v, void* y,
                      void* workspace, void* counters, const Sinks& sinks) {
  const bool is_paged = cache.blocks != nullptr;
  const char* what = is_paged ? "paged_attention" : "decode_attention";
  const ScoreRules& rules = shape.rules;
  const bool has_rules = rules.window > 0 || rules.cap > 0 || rules.alibi || rules.sinks;
  const float scale =
      rules.scale > 0 ? kLog2E * rules.scale : kLog2E / std::sqrt(static_cast<float>(shape.head_dim));
  with_element(dtype, what, [&]<class T>(T) {
    const Decode d{.heads = static_cast<int>(shape.heads),
                   .kv_heads = static_cast<int>(shape.kv_heads),
                   .dim = static_cast<int>(shape.head_dim),
                   .lanes = lanes_of(shape.head_dim),
                   .parts = parts,
                   .positions = shape.positions,
                   .scale = scale,
                   .aligned = shape.head_dim % kPack == 0 && are_aligned({qkv, k, v}),
                   .rules = rules,
                   .sinks = sinks,
                   .cache = cache};
    const auto* rows = static_cast<const T*>(qkv);
    auto* const keys = static_cast<T*>(k);
    auto* const values = static_cast<T*>(v);
    if (is_paged) {
      launch_chained(stream, what, append_to_blocks<T>,
                     dim3(static_cast<unsigned>(shape.kv_heads), grid_size(shape.batch, what)),
                     kDecodeThreads, 0, d, rows, first, keys, values);
    }
    const auto launch_kernel = [&](int heads, auto kernel) {
      const dim3 grid(static_cast<unsigned>(parts),
                      static_cast<unsigned>(blocks_of(shape, heads) / shape.batch),
                      grid_size(shape.batch, what));
      launch_chained(stream, what, kernel, grid, kDecodeThreads, 0, d, rows, first, keys, values,
                     static_cast<T*>(y), static_cast<float*>(workspace), static_cast<unsigned*>(counters));
    };
    const auto launch = [&]<class Attention>(std::type_identity<Attention>) {
      if (is_paged) {
        launch_kernel(Attention::kHeads, has_rules ? decode_attention<Attention, true, true>
                                                   : decode_attention<Attention, false, true>);
      } else {
        launch_kernel(Attention::kHeads, has_rules ? decode_attention<Attention, true, false>
                                                   : decode_attention<Attention, false, false>);
      }
    };
    if constexpr (!std::is_same_v<T, float>) {
      // A query head per key/value head of 64 elements: threads measured 9 % faster (a step of 48 layers, 64
      // texts).
      const bool on_tensor_cores = d.aligned && d.dim <= 128 && (d.dim > 64 || d.heads != d.kv_heads);
      if (on_tensor_cores && d.dim <= 64) return launch(std::type_identity<TensorCoreAttention<T, 64>>{});
      if (on_tensor_cores) return launch(std::type_identity<TensorCoreAttention<T, 128>>{});
    }
    if (shape.heads == shape.kv_heads) return launch(std::type_identity<ThreadAttention<T, 1>>{});
    launch(std::type_identity<ThreadAttention<T, kSharedHeads>>{});
  });
}

}  // namespace

int decode_parts(const DecodeShape& shape, int multiprocessors) {
  constexpr std::int64_t kBlocks = 4;  // blocks per multiprocessor
  const std::int64_t wanted = ceil_div(kBlocks * multiprocessors, blocks_of(shape));
  const std::int64_t window = shape.rules.window;
  const std::int64_t keys = window > 0 ? std::min(window, shape.positions) : shape.positions;
  return static_cast<int>(std::min(wanted, ceil_div(keys, kFewestKeys)));
}

std::size_t decode_workspace_bytes(const DecodeShape& shape, int parts) {
  return static_cast<std::size_t>(shape.batch * shape.heads * parts * (shape.head_dim + 2)) * sizeof(float);
}

std::size_t decode_counter_bytes(const DecodeShape& shape) {
  return static_cast<std::size_t>(blocks_of(shape)) * sizeof(unsigned);
}

void launch_decode_attention(Stream stream, core::DType dtype, const DecodeShape& shape, int parts,
                             const void* qkv, const std::int32_t* first, void* k, void* v, void* y,
                             void* workspace, void* counters, const Sinks& sinks) {
  launch_attention(stream, dtype, shape, {}, parts, qkv, first, k, v, y, workspace, counters, sinks);
}

void launch_paged_attention(Stream stream, core::DType dtype, const DecodeShape& shape,
                            const CacheBlocks& cache, int parts, const void* qkv, const std::int32_t* first,
                            void* k, void* v, void* y, void* workspace, void* counters, const Sinks& sinks) {
  launch_attention(stream, dtype, shape, cache, parts, qkv, first, k, v, y, workspace, counters, sinks);
}

}  // namespace rooflm::backends::cuda
