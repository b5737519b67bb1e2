// Decoding with latent attention: a block for each head of each text. Keys and values are never made: scores
// are those of latents with what the head's query becomes by its rows of w, and the sum of latents becomes
// the result by the other rows.
#include "backends/cuda/kernels/attention/latent_attention.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;  // also the cached rows that are read at a time
constexpr int kWarps = kThreads / kWarp;
constexpr int kSharedBytes = 48 * 1024;  // of a block, which any GPU gives

template <class T>
__global__ void __launch_bounds__(kThreads)
    append_rows(std::int64_t seq, std::int64_t positions, std::int64_t cols, const T* from,
                const std::int32_t* slots, T* cache) {
  const std::int64_t b = blockIdx.x / seq;
  const std::int64_t slot = slots == nullptr ? b : std::int64_t{slots[b]};
  const std::int64_t to = slot * positions + blockIdx.x - b * seq;
  for (std::int64_t i = threadIdx.x; i < cols; i += kThreads)
    cache[to * cols + i] = from[blockIdx.x * cols + i];
}

/// <x, row> of the lanes' elements; x in shared memory.
template <class T>
__device__ float lane_product(const float* x, const T* row, int count, bool aligned) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) % kWarp * kPack; i < count; i += kWarp * kPack) {
    const Pack own = load_pack(row, i, count, aligned);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      if (i + j < count) sum += x[i + j] * own[j];
    }
  }
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) decode_latent_attention(LatentDecode d, bool aligned) {
  extern __shared__ float shared[];  // query [R + Dr], sums [R], scores [kThreads]
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const std::int64_t head = blockIdx.x;
  const std::int64_t b = blockIdx.y;
  const auto rank = static_cast<int>(d.rank);
  const auto rotary = static_cast<int>(d.rotary);
  float* query = shared;
  float* sums = query + rank + rotary;
  float* scores = sums + rank;
  const T* q = static_cast<const T*>(d.q) + (b * d.heads + head) * (d.plain + d.rotary);
  const T* w = static_cast<const T*>(d.w) + head * (d.plain + d.v_dim) * d.rank;
  const T* latent = static_cast<const T*>(d.latent) + b * d.rank;
  const T* key = static_cast<const T*>(d.rotary_key) + b * d.rotary;
  T* latents = static_cast<T*>(d.latents) + b * d.positions * d.rank;
  T* keys = static_cast<T*>(d.keys) + b * d.positions * d.rotary;
  const std::int64_t last = min(max(std::int64_t{d.first[b]}, std::int64_t{0}), d.positions - 1);

  for (int r = thread; r < rank; r += kThreads) {
    float sum = 0;
    for (std::int64_t i = 0; i < d.plain; ++i) sum += to_float(q[i]) * to_float(w[i * d.rank + r]);
    query[r] = sum;
    sums[r] = 0;
    if (head == 0) latents[last * d.rank + r] = latent[r];
  }
  for (int r = thread; r < rotary; r += kThreads) {
    query[rank + r] = to_float(q[d.plain + r]);
    if (head == 0) keys[last * d.rotary + r] = key[r];
  }
  __syncthreads();

  // The last row is read from where it comes from: another block writes it to the caches meanwhile.
  const auto latent_of = [&](std::int64_t row) { return row == last ? latent : latents + row * d.rank; };
  const auto key_of = [&](std::int64_t row) { return row == last ? key : keys + row * d.rotary; };
  float greatest = -INFINITY;
  float total = 0;
  for (std::int64_t begin = 0; begin <= last; begin += kThreads) {
    const int count = static_cast<int>(min(std::int64_t{kThreads}, last + 1 - begin));
    for (int j = warp; j < count; j += kWarps) {
      const float product = warp_sum(lane_product(query, latent_of(begin + j), rank, aligned) +
                                     lane_product(query + rank, key_of(begin + j), rotary, aligned));
      if (lane == 0) scores[j] = d.scale * product;
    }
    __syncthreads();
    float most = greatest;  // each warp finds the same
    for (int j = lane; j < count; j += kWarp) most = fmaxf(most, scores[j]);
    most = warp_max(most);
    __syncthreads();
    if (thread < count) scores[thread] = expf(scores[thread] - most);
    __syncthreads();
    const float kept = expf(greatest - most);
    float sum = 0;
    for (int j = lane; j < count; j += kWarp) sum += scores[j];
    total = total * kept + warp_sum(sum);
    greatest = most;
    for (int r = thread; r < rank; r += kThreads) {
      float own = sums[r] * kept;
      for (int j = 0; j < count; ++j) own += scores[j] * to_float(latent_of(begin + j)[r]);
      sums[r] = own;
    }
    __syncthreads();
  }
  T* y = static_cast<T*>(d.y) + (b * d.heads + head) * d.v_dim;
  for (std::int64_t i = warp; i < d.v_dim; i += kWarps) {
    const float sum = warp_sum(lane_product(sums, w + (d.plain + i) * d.rank, rank, aligned));
    if (lane == 0) y[i] = from_float<T>(sum / total);
  }
}

}  // namespace

void launch_append_rows(Stream stream, core::DType dtype, std::int64_t batch, std::int64_t seq,
                        std::int64_t positions, std::int64_t cols, const void* from,
                        const std::int32_t* slots, void* cache) {
  constexpr const char* kWhat = "append_latents";
  with_element(dtype, kWhat, [&]<class T>(T) {
    append_rows<T><<<grid_size(batch * seq, kWhat), kThreads, 0, stream>>>(
        seq, positions, cols, static_cast<const T*>(from), slots, static_cast<T*>(cache));
  });
  check_launch(kWhat);
}

void launch_decode_latent_attention(Stream stream, core::DType dtype, const LatentDecode& d) {
  constexpr const char* kWhat = "decode_latent_attention";
  const std::int64_t floats = 2 * d.rank + d.rotary + kThreads;
  if (floats * static_cast<std::int64_t>(sizeof(float)) > kSharedBytes)
    throw core::Unavailable("decode_latent_attention on cuda: latents are too long for shared memory");
  const bool aligned = d.rank % kPack == 0 && d.rotary % kPack == 0 &&
                       are_aligned({d.latent, d.rotary_key, d.w, d.latents, d.keys});
  const dim3 grid(grid_size(d.heads, kWhat), static_cast<unsigned>(d.batch));
  const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
  with_element(dtype, kWhat, [&]<class T>(T) {
    decode_latent_attention<T><<<grid, kThreads, bytes, stream>>>(d, aligned);
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
