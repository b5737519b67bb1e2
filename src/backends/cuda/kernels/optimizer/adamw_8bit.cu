// AdamW with moments of 8 bits: a warp has a block of 256 elements, whose magnitudes have one largest.
#include "backends/cuda/kernels/optimizer/optimizer.h"
#include "backends/cuda/kernels/optimizer/update.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/tensor_list.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRounds = 4;  ///< blocks per warp: tables are copied once for all of them
constexpr int kFours = 2;   ///< groups of four neighbours per lane
static_assert(kFours * 4 * kWarp == core::kBlock8);
constexpr std::int64_t kPiece = kWarps * kRounds * core::kBlock8;

/// One kind of codes, in shared memory.
struct Codes {
  const float* values;
  const float* borders;
  const std::uint8_t* first_codes;

  __device__ Codes(const CodeTables& tables, int kind)
      : values(tables.values[kind]), borders(tables.borders[kind]), first_codes(tables.first_codes[kind]) {}
  /// The elements of a word of four codes.
  __device__ float4 decode(unsigned word, float size) const {
    return {size * values[word & 0xffU], size * values[word >> 8 & 0xffU], size * values[word >> 16 & 0xffU],
            size * values[word >> 24]};
  }
  /// core::Dynamic8Bit::code
  __device__ unsigned code(float x) const {
    using core::Dynamic8Bit;
    constexpr unsigned kLeast = Dynamic8Bit::kLeast, kMost = Dynamic8Bit::kMost;
    const unsigned upper = __float_as_uint(x) >> 16;
    const unsigned magnitude = min(max(upper & 0x7fffU, kLeast), kMost) - kLeast;
    const unsigned first = first_codes[magnitude + (upper >> 15) * Dynamic8Bit::kCells];
    return first + (borders[first] < x ? 1U : 0U);
  }
  __device__ unsigned encode(const float4& x, float size) const {
    const float whole = size > 0.0F ? size : 1.0F;
    return code(x.x / whole) | code(x.y / whole) << 8 | code(x.z / whole) << 16 | code(x.w / whole) << 24;
  }
};

__device__ float largest(const float4& x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

/// The first `count` elements; zeros after them.
__device__ float4 first_of(const float4& x, std::int64_t count) {
  return {count > 0 ? x.x : 0.0F, count > 1 ? x.y : 0.0F, count > 2 ? x.z : 0.0F, count > 3 ? x.w : 0.0F};
}

/// A moment of a block: its codes, of which a lane has two words, and its size.
struct Moment {
  unsigned* words;
  float* size;
  Codes codes;
  unsigned old[kFours];
  float4 values[kFours];

  __device__ Moment(void* codes_at, float* size_at, const Codes& kind)
      : words(static_cast<unsigned*>(codes_at)), size(size_at), codes(kind) {}

  __device__ void load(int i, const Four& four) {
    old[i] = four.first < four.tensor->count ? words[four.first / 4] : 0U;
  }
  __device__ void decode(int i) { values[i] = codes.decode(old[i], *size); }
  /// All lanes of the warp call it, after all of them have decoded.
  __device__ void store(const Four (&fours)[kFours]) {
    float most = 0.0F;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      values[i] = first_of(values[i], fours[i].tensor->count - fours[i].first);
      most = fmaxf(most, largest(values[i]));
    }
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const std::int64_t count = fours[i].tensor->count - fours[i].first;
      if (count <= 0) continue;
      const unsigned kept = count < 4 ? ~0U << (8 * count) : 0U;  // what follows the last element
      words[fours[i].first / 4] = (codes.encode(values[i], most) & ~kept) | (old[i] & kept);
    }
    if (threadIdx.x % kWarp == 0) *size = most;
  }
};

__global__ void __launch_bounds__(kThreads) adamw_8bit(UpdateStep step, const CodeTables* tables,
                                                       const __grid_constant__ TensorList<CodedTensor> list) {
  if (is_skipped(step)) return;
  __shared__ CodeTables shared;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof shared / sizeof(uint4));
       i += kThreads) {
    reinterpret_cast<uint4*>(&shared)[i] = reinterpret_cast<const uint4*>(tables)[i];
  }
  __syncthreads();
  const int index = list.find(blockIdx.x);
  const CodedTensor& tensor = list.tensors[index];
  const AdamWRule rule(step);
  const std::int64_t lane = threadIdx.x % kWarp;
  std::int64_t block =
      std::int64_t{blockIdx.x - list.first_block[index]} * (kWarps * kRounds) + threadIdx.x / kWarp;
  for (int round = 0; round < kRounds; ++round, block += kWarps) {
    const std::int64_t first = block * core::kBlock8;
    if (first >= tensor.count) return;  // of a whole warp
    const Four fours[kFours] = {{tensor, first + lane * 4}, {tensor, first + (lane + kWarp) * 4}};
    Moment m(tensor.moment1, tensor.size1 + block, {shared, 0});
    Moment v(tensor.moment2, tensor.size2 + block, {shared, 1});
    uint4 raw_p[kFours], raw_g[kFours];
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      raw_p[i] = fours[i].load_parameter();
      raw_g[i] = fours[i].load_gradient(0);
      m.load(i, fours[i]);
      v.load(i, fours[i]);
    }
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      m.decode(i);
      v.decode(i);
      float4 p = fours[i].parameter_from(raw_p[i]);
      for_four(rule, p, fours[i].gradient_from(raw_g[i]), m.values[i], v.values[i]);
      fours[i].store_parameter(p, step.copy_dtype);
    }
    __syncwarp();  // all lanes have read the sizes
    m.store(fours);
    v.store(fours);
  }
}

}  // namespace

std::int64_t adamw_8bit_launches(std::span<const std::int64_t> counts) {
  return lists_of<CodedTensor>(counts);
}

void launch_adamw_8bit(Stream stream, const UpdateStep& step, std::span<const CodedTensor> tensors,
                       const CodeTables* tables) {
  for_lists<kPiece>(tensors, "adamw_8bit",
                    [&](const TensorList<CodedTensor>& list, unsigned blocks, std::int64_t) {
                      adamw_8bit<<<blocks, kThreads, 0, stream>>>(step, tables, list);
                    });
}

}  // namespace rooflm::backends::cuda
