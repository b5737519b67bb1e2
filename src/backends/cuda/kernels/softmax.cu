// Causal softmax: one warp per row. It reads the row twice; each lane overwrites only elements that it has
// read.
#include "backends/cuda/kernels/attention/attention_rules.cuh"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/softmax.h"

namespace rooflm::backends::cuda {
namespace {

constexpr int kRows = 4;  // rows per block
constexpr int kStep = kWarp * kPack;

/// The row of this warp.
struct Row {
  std::int64_t number, seen, first;
  __device__ explicit Row(std::int64_t seq)
      : number(std::int64_t{blockIdx.x} * kRows + threadIdx.y),
        seen(number % seq + 1),
        first(threadIdx.x * kPack) {}
};

__device__ std::int64_t head_of(const SoftmaxRules& r, const Row& row, std::int64_t seq) {
  return (r.first_row + row.number) / seq % r.heads;
}

/// The rules of the head of a row.
__device__ HeadRules<> rules_of(const SoftmaxRules& r, const Row& row, std::int64_t seq, float scale) {
  return {{.heads = r.heads, .rules = r.rules}, scale, head_of(r, row, seq)};
}

template <class T, bool kRules>
__global__ void __launch_bounds__(kWarp* kRows)
    causal_softmax(std::int64_t rows, std::int64_t seq, float scale, bool aligned, const T* s, T* p,
                   SoftmaxRules softmax) {
  const Row row(seq);
  if (row.number >= rows) return;
  const T* from = s + row.number * seq;
  const HeadRules<> rules = rules_of(softmax, row, seq, scale);
  const auto score = [&](const Pack& x, std::int64_t j, int i) {
    return kRules ? rules.score(x[i], static_cast<int>(row.seen - 1 - j) - i) : scale * x[i];
  };
  const std::int64_t begin = kRules ? rules.first_key(row.seen - 1) : 0;
  const auto sees = [&](std::int64_t j) { return j < row.seen && (!kRules || j >= begin); };
  LogSumExp total;
  for (std::int64_t j = begin / kStep * kStep + row.first; j < row.seen; j += kStep) {
    const Pack x = load_pack(from, j, seq, aligned);
    LogSumExp part;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (sees(j + i)) part.greatest = fmaxf(part.greatest, score(x, j, i));
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (sees(j + i)) part.sum += __expf(score(x, j, i) - part.greatest);
    }
    total.merge(part);
  }
  total = warp_merge(total);
  if (kRules && softmax.sinks.data != nullptr)
    total.merge({sink_of(softmax.sinks, head_of(softmax, row, seq)), 1});
  const float inverse = 1.0F / total.sum;
  for (std::int64_t j = row.first; j < seq; j += kStep) {
    Pack y{};
    if (j < row.seen) {
      const Pack x = load_pack(from, j, seq, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (sees(j + i)) y[i] = __expf(score(x, j, i) - total.greatest) * inverse;
      }
    }
    store_pack(p + row.number * seq, j, seq, aligned, y);
  }
}

template <class T, bool kRules>
__global__ void __launch_bounds__(kWarp* kRows)
    causal_softmax_backward(std::int64_t rows, std::int64_t seq, float scale, bool aligned, const T* dp,
                            const T* p, T* ds, SoftmaxRules softmax, const T* s, float* sink_rows) {
  const Row row(seq);
  if (row.number >= rows) return;
  const T* dps = dp + row.number * seq;
  const T* ps = p + row.number * seq;
  const HeadRules<> rules = rules_of(softmax, row, seq, scale);
  float dot = 0;
  float sum = 0;
  for (std::int64_t j = row.first; j < row.seen; j += kStep) {
    const Pack a = load_pack(dps, j, seq, aligned);
    const Pack b = load_pack(ps, j, seq, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (j + i < row.seen) {
        dot += a[i] * b[i];
        if (kRules) sum += b[i];
      }
    }
  }
  dot = warp_sum(dot);
  if (kRules && sink_rows != nullptr) {
    sum = warp_sum(sum);
    if (threadIdx.x == 0) sink_rows[row.number] = (1.0F - sum) * dot;  // p of the sink
  }
  for (std::int64_t j = row.first; j < seq; j += kStep) {
    Pack y{};
    if (j < row.seen) {
      const Pack a = load_pack(dps, j, seq, aligned);
      const Pack b = load_pack(ps, j, seq, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (j + i < row.seen) y[i] = scale * b[i] * (a[i] - dot);
      }
      if (kRules && rules.cap > 0) {
        const Pack x = load_pack(s + row.number * seq, j, seq, aligned);
#pragma unroll
        for (int i = 0; i < kPack; ++i) y[i] *= rules.derivative(rules.score(x[i], 0), 0);
      }
    }
    store_pack(ds + row.number * seq, j, seq, aligned, y);
  }
}

bool has_rules(const SoftmaxRules& r, std::int64_t seq) {
  return AttentionShape{.seq = seq, .rules = r.rules}.has_rules();
}

}  // namespace

void launch_causal_softmax(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq, float scale,
                           const void* s, void* p, const SoftmaxRules& rules) {
  const char* what = "causal_softmax";
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = seq % kPack == 0 && are_aligned({s, p});
    auto* kernel = has_rules(rules, seq) ? causal_softmax<T, true> : causal_softmax<T, false>;
    kernel<<<grid_size(ceil_div(rows, kRows), what), dim3(kWarp, kRows), 0, stream>>>(
        rows, seq, scale, aligned, static_cast<const T*>(s), static_cast<T*>(p), rules);
  });
  check_launch(what);
}

void launch_causal_softmax_backward(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t seq,
                                    float scale, const void* dp, const void* p, void* ds,
                                    const SoftmaxRules& rules, const void* s, float* sink_rows) {
  const char* what = "causal_softmax_backward";
  with_element(dtype, what, [&]<class T>(T) {
    const bool aligned = seq % kPack == 0 && are_aligned({dp, p, ds, s});
    auto* kernel =
        has_rules(rules, seq) ? causal_softmax_backward<T, true> : causal_softmax_backward<T, false>;
    kernel<<<grid_size(ceil_div(rows, kRows), what), dim3(kWarp, kRows), 0, stream>>>(
        rows, seq, scale, aligned, static_cast<const T*>(dp), static_cast<const T*>(p), static_cast<T*>(ds),
        rules, static_cast<const T*>(s), sink_rows);
  });
  check_launch(what);
}

}  // namespace rooflm::backends::cuda
