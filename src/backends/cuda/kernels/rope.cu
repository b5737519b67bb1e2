// Rotary positions: one block per position, one thread per up to eight pairs of a head.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <type_traits>

#include "backends/cuda/kernels/chain.cuh"
#include "backends/cuda/kernels/heads.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/token_places.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    rope_tables(std::int64_t seq, std::int64_t half, const double* frequencies, double amplitude,
                TokenPlaces places, float* cosines, float* sines) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= seq * half) return;
  const double angle = static_cast<double>(place_of(places, at / half)) * frequencies[at % half];
  cosines[at] = static_cast<float>(amplitude * cos(angle));
  sines[at] = static_cast<float>(amplitude * sin(angle));
}

struct Rope {
  std::int64_t seq, width;
  int rotated_heads, head_dim, begin, half;  ///< half: pairs of a head, of 2 half elements from `begin` on
  float sign;
  bool copies_rest;
};

/// N neighbours in one access, or in two of 16 bytes.
template <class T, int N>
struct alignas(std::min<std::size_t>(16, N * sizeof(T))) Run {
  T v[N];
};

template <int N, class T>
__device__ Run<T, N> load_run(const T* from) {
  return *reinterpret_cast<const Run<T, N>*>(from);
}

template <int N, class T>
__device__ void store_run(T* to, const Run<T, N>& run) {
  *reinterpret_cast<Run<T, N>*>(to) = run;
}

/// N divides the pairs of a head, its elements and those before them: heads of 40 have 20 pairs, so 4 at a
/// time.
template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    rope(Rope r, const T* x, const float* cosines, const float* sines, const std::int32_t* first, T* y) {
  follow_previous();
  const std::int64_t row = blockIdx.x;
  const std::int64_t position = row % r.seq + (first == nullptr ? 0 : first[row / r.seq]);
  const float* row_cosines = cosines + position * r.half;
  const float* row_sines = sines + position * r.half;
  const T* from = x + row * r.width;
  T* to = y + row * r.width;
  const int runs = r.half / N;
  for (int task = static_cast<int>(threadIdx.x); task < r.rotated_heads * runs;
       task += static_cast<int>(blockDim.x)) {
    const int head = task / runs;
    const int i = (task - head * runs) * N;
    const std::int64_t at = std::int64_t{head} * r.head_dim + r.begin + i;
    const Run<T, N> a = load_run<N>(from + at);
    const Run<T, N> b = load_run<N>(from + at + r.half);
    const Run<float, N> c = load_run<N>(row_cosines + i);
    const Run<float, N> s = load_run<N>(row_sines + i);
    Run<T, N> upper;
    Run<T, N> lower;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float first_of_pair = to_float(a.v[k]);
      const float second_of_pair = to_float(b.v[k]);
      upper.v[k] = from_float<T>(first_of_pair * c.v[k] - second_of_pair * r.sign * s.v[k]);
      lower.v[k] = from_float<T>(second_of_pair * c.v[k] + first_of_pair * r.sign * s.v[k]);
    }
    store_run<N>(to + at, upper);
    store_run<N>(to + at + r.half, lower);
  }
  if (!r.copies_rest) return;
  const int rests = r.head_dim / N - 2 * runs;  // of a head
  for (int task = static_cast<int>(threadIdx.x); task < r.rotated_heads * rests;
       task += static_cast<int>(blockDim.x)) {
    const int head = task / rests;
    const int place = (task - head * rests) * N;
    const std::int64_t at = std::int64_t{head} * r.head_dim + place + (place < r.begin ? 0 : 2 * r.half);
    store_run<N>(to + at, load_run<N>(from + at));
  }
  for (std::int64_t i = std::int64_t{r.rotated_heads} * r.head_dim + threadIdx.x * N; i < r.width;
       i += blockDim.x * N) {
    store_run<N>(to + i, load_run<N>(from + i));
  }
}

/// Calls `use` with the most neighbours, as a constant, that divide `elements`.
template <class Use>
void with_run(int elements, bool aligned, const Use& use) {
  if (aligned && elements % 8 == 0) return use(std::integral_constant<int, 8>{});
  if (aligned && elements % 4 == 0) return use(std::integral_constant<int, 4>{});
  if (aligned && elements % 2 == 0) return use(std::integral_constant<int, 2>{});
  use(std::integral_constant<int, 1>{});
}

}  // namespace

void launch_rope_tables(Stream stream, std::int64_t seq, std::int64_t half, const double* frequencies,
                        double amplitude, const TokenPlaces& places, float* cosines, float* sines) {
  rope_tables<<<grid_size(ceil_div(seq * half, kThreads), "rope_tables"), kThreads, 0, stream>>>(
      seq, half, frequencies, amplitude, places, cosines, sines);
  check_launch("rope_tables");
}

void launch_rope(Stream stream, core::DType dtype, const HeadsShape& shape, const RotaryPart& part,
                 const void* x, const float* cosines, const float* sines, bool inverse,
                 const std::int32_t* first, void* y) {
  const auto half = static_cast<int>(part.pairs);
  const auto begin = static_cast<int>(part.begin);
  const auto head_dim = static_cast<int>(shape.head_dim);
  const Rope r{.seq = shape.seq,
               .width = shape.width(),
               .rotated_heads = static_cast<int>(shape.heads + shape.kv_heads),
               .head_dim = head_dim,
               .begin = begin,
               .half = half,
               .sign = inverse ? -1.0F : 1.0F,
               .copies_rest = x != y};
  constexpr std::int64_t kWhole = 32;
  with_run(std::gcd(std::gcd(half, head_dim), begin), are_aligned({x, cosines, sines, y}),
           [&]<int N>(std::integral_constant<int, N>) {
             const std::int64_t tasks = std::int64_t{r.rotated_heads} * (half / N);
             const auto threads =
                 static_cast<int>(std::min<std::int64_t>(kThreads, ceil_div(tasks, kWhole) * kWhole));
             with_element(dtype, "rope", [&]<class T>(T) {
               launch_chained(stream, "rope", rope<N, T>, dim3(grid_size(shape.batch * shape.seq, "rope")),
                              threads, 0, r, static_cast<const T*>(x), cosines, sines, first,
                              static_cast<T*>(y));
             });
           });
}

}  // namespace rooflm::backends::cuda
