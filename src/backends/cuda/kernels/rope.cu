// Rotary positions: one block per position, one thread per eight pairs of a head.
#include <algorithm>

#include "backends/cuda/kernels/heads.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/token_places.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) rope_tables(std::int64_t seq, std::int64_t half, double theta,
                                                        TokenPlaces places, float* cosines, float* sines) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= seq * half) return;
  const double frequency = pow(theta, -static_cast<double>(at % half) / static_cast<double>(half));
  const double angle = static_cast<double>(place_of(places, at / half)) * frequency;
  cosines[at] = static_cast<float>(cos(angle));
  sines[at] = static_cast<float>(sin(angle));
}

struct Rope {
  std::int64_t seq, width;
  int rotated_heads, half;
  float sign;
  bool aligned, copies_values;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    rope(Rope r, const T* x, const float* cosines, const float* sines, const std::int32_t* first, T* y) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t position = row % r.seq + (first == nullptr ? 0 : first[row / r.seq]);
  const float* row_cosines = cosines + position * r.half;
  const float* row_sines = sines + position * r.half;
  const T* from = x + row * r.width;
  T* to = y + row * r.width;
  const int packs = (r.half + kPack - 1) / kPack;
  for (int task = static_cast<int>(threadIdx.x); task < r.rotated_heads * packs;
       task += static_cast<int>(blockDim.x)) {
    const int head = task / packs;
    const int i = (task - head * packs) * kPack;
    const std::int64_t at = std::int64_t{head} * 2 * r.half;
    const Pack a = load_pack(from + at, i, r.half, r.aligned);
    const Pack b = load_pack(from + at + r.half, i, r.half, r.aligned);
    const Pack c = load_pack(row_cosines, i, r.half, r.aligned);
    const Pack s = load_pack(row_sines, i, r.half, r.aligned);
    Pack first;
    Pack second;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      first[k] = a[k] * c[k] - b[k] * r.sign * s[k];
      second[k] = b[k] * c[k] + a[k] * r.sign * s[k];
    }
    store_pack(to + at, i, r.half, r.aligned, first);
    store_pack(to + at + r.half, i, r.half, r.aligned, second);
  }
  if (!r.copies_values) return;
  for (std::int64_t i = std::int64_t{r.rotated_heads} * 2 * r.half + threadIdx.x * kPack; i < r.width;
       i += blockDim.x * kPack) {
    store_pack(to, i, r.width, r.aligned, load_pack(from, i, r.width, r.aligned));
  }
}

}  // namespace

void launch_rope_tables(Stream stream, std::int64_t seq, std::int64_t head_dim, double theta,
                        const TokenPlaces& places, float* cosines, float* sines) {
  const std::int64_t half = head_dim / 2;
  rope_tables<<<grid_size(ceil_div(seq * half, kThreads), "rope_tables"), kThreads, 0, stream>>>(
      seq, half, theta, places, cosines, sines);
  check_launch("rope_tables");
}

void launch_rope(Stream stream, core::DType dtype, const HeadsShape& shape, const void* x,
                 const float* cosines, const float* sines, bool inverse, const std::int32_t* first, void* y) {
  const int half = static_cast<int>(shape.head_dim / 2);
  const Rope r{.seq = shape.seq,
               .width = shape.width(),
               .rotated_heads = static_cast<int>(shape.heads + shape.kv_heads),
               .half = half,
               .sign = inverse ? -1.0F : 1.0F,
               .aligned = half % kPack == 0 && are_aligned({x, cosines, sines, y}),
               .copies_values = x != y};
  constexpr std::int64_t kWhole = 32;
  const std::int64_t tasks = std::int64_t{r.rotated_heads} * ceil_div(half, kPack);
  const auto threads = static_cast<int>(std::min<std::int64_t>(kThreads, ceil_div(tasks, kWhole) * kWhole));
  with_element(dtype, "rope", [&]<class T>(T) {
    rope<<<grid_size(shape.batch * shape.seq, "rope"), threads, 0, stream>>>(
        r, static_cast<const T*>(x), cosines, sines, first, static_cast<T*>(y));
  });
  check_launch("rope");
}

}  // namespace rooflm::backends::cuda
