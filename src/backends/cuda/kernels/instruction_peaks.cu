// Loops of multiply-adds on registers: CUDA cores, tensor cores by warps, tensor cores by warp groups.
//
// Operands are not zeros: switching transistors draw power, and a GPU at its power limit lowers its clock.
// With zeros the loops would run at a clock that no real matmul reaches.
#include "backends/cuda/kernels/instruction_peaks.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/wgmma_wide.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr const char* kWhat = "an instruction loop";
constexpr int kThreads = 256;
constexpr int kPasses = 4;  ///< passes per round: so many that the loop counter costs nothing

// ---- CUDA cores

constexpr int kChains =
    16;  ///< chains per thread; with four warps per scheduler far more than the latency of 4 cycles
constexpr int kFactors = 4;

struct OneFp32 {
  using Number = float;
  static constexpr int kLanes = 1;
  static __device__ Number load(const float* from) { return *from; }
  static __device__ Number multiply_add(Number a, Number b, Number c) { return fmaf(a, b, c); }
  static __device__ void store(float* to, Number value) { *to = value; }
};
struct TwoFp16 {
  using Number = __half2;
  static constexpr int kLanes = 2;
  static __device__ Number load(const float* from) { return __floats2half2_rn(from[0], from[1]); }
  static __device__ Number multiply_add(Number a, Number b, Number c) { return __hfma2(a, b, c); }
  static __device__ void store(float* to, Number value) {
    to[0] = __low2float(value);
    to[1] = __high2float(value);
  }
};
struct TwoBf16 {
  using Number = __nv_bfloat162;
  static constexpr int kLanes = 2;
  static __device__ Number load(const float* from) { return __floats2bfloat162_rn(from[0], from[1]); }
  static __device__ Number multiply_add(Number a, Number b, Number c) { return __hfma2(a, b, c); }
  static __device__ void store(float* to, Number value) {
    to[0] = __low2float(value);
    to[1] = __high2float(value);
  }
};

/// All chains of a thread use the same pair of operands in turn, so an instruction reads only one new
/// register, its sum. Three reads from one register bank would take two cycles.
template <class Unit>
__global__ void __launch_bounds__(kThreads) fma_loop(int rounds, InstructionFactors from, float* sums) {
  constexpr int kLanes = Unit::kLanes;
  typename Unit::Number a[kFactors];
  typename Unit::Number b[kFactors];
  typename Unit::Number c[kChains];
#pragma unroll
  for (int j = 0; j < kFactors; ++j) {
    const int place = (static_cast<int>(threadIdx.x) * kFactors + j) * kLanes;
    a[j] = Unit::load(from.a + place);
    b[j] = Unit::load(from.b + place);
  }
#pragma unroll
  for (int i = 0; i < kChains; ++i) c[i] = Unit::load(from.b + kFactorsB / 2 + i * kLanes);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int j = 0; j < kFactors; ++j) {
#pragma unroll
        for (int i = 0; i < kChains; ++i) c[i] = Unit::multiply_add(a[j], b[j], c[i]);
      }
    }
  }
  if (sums == nullptr) return;
  float* own = sums + (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kChains * kLanes;
#pragma unroll
  for (int i = 0; i < kChains; ++i) Unit::store(own + i * kLanes, c[i]);
}

// ---- Tensor cores, a warp

constexpr int kTiles = 8;  ///< tiles of 16 x 8 sums in a row
constexpr int kDeep = 2;   ///< depth of A in instructions

struct Bf16Tiles {
  static constexpr int kDepth = 16;
  static __device__ unsigned load(const float* from) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(from[0], from[1]);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  static __device__ void add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    multiply(c, a, b[0], b[1], static_cast<const __nv_bfloat16*>(nullptr));
  }
};
struct Fp16Tiles {
  static constexpr int kDepth = 16;
  static __device__ unsigned load(const float* from) {
    const __half2 pair = __floats2half2_rn(from[0], from[1]);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  static __device__ void add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct Tf32Tiles {
  static constexpr int kDepth = 8;
  static __device__ unsigned load(const float* from) { return __float_as_uint(*from); }
  static __device__ void add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    multiply(c, a, b[0], b[1], static_cast<const float*>(nullptr));
  }
};

/// A register holds kDepth / 8 elements of a row. Registers of A and B run through rows first (A only), then
/// to the other half of the depth.
template <class Tiles>
__global__ void __launch_bounds__(kThreads, 2) mma_loop(int rounds, InstructionFactors from, float* sums) {
  constexpr int kDepth = Tiles::kDepth;
  constexpr int kStride = kDeep * kDepth;
  const int row = static_cast<int>(threadIdx.x) % 32 / 4;
  const int col = static_cast<int>(threadIdx.x) % 4;
  unsigned a[kDeep][4];
  unsigned b[kDeep][kTiles][2];
  float c[kTiles][4] = {};
#pragma unroll
  for (int j = 0; j < kDeep; ++j) {
    const int first = j * kDepth + col * (kDepth / 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[j][i] = Tiles::load(from.a + (row + i % 2 * 8) * kStride + first + i / 2 * (kDepth / 2));
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      b[j][n][0] = Tiles::load(from.b + (n * 8 + row) * kStride + first);
      b[j][n][1] = Tiles::load(from.b + (n * 8 + row) * kStride + first + kDepth / 2);
    }
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int j = 0; j < kDeep; ++j) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) Tiles::add(c[n], a[j], b[j][n]);
      }
    }
  }
  if (sums == nullptr) return;
  float* own = sums + (std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32) * 16 * kTiles * 8;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) own[(row + i / 2 * 8) * kTiles * 8 + n * 8 + col * 2 + i % 2] = c[n][i];
  }
}

// ---- Tensor cores, a warp group

constexpr int kGroup = 128;
constexpr int kGroups = kThreads / kGroup;  ///< while one waits for its matmuls, the other's run

/// Writes rows of 128 bytes to a swizzled panel.
template <class Wide, int kRows>
__device__ void fill_panel(unsigned char* panel, const float* from) {
  using Element = typename Wide::Element;
  constexpr int kCols = kPanelRowBytes / sizeof(Element);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kCols; i += kThreads) {
    const int row = i / kCols;
    const int byte = i % kCols * static_cast<int>(sizeof(Element));
    unsigned char* to = panel + row * kPanelRowBytes + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
    *reinterpret_cast<Element*>(to) = Wide::round(from[i]);
  }
}

template <class Wide>
__global__ void __launch_bounds__(kThreads, 1) wgmma_loop(int rounds, InstructionFactors from, float* sums) {
  if constexpr (kHasWarpGroups) {
    __shared__ unsigned char raw[kPanelBytes<64> + kPanelBytes<kWideCols> + kPanelAlignment];
    unsigned char* a = align_panels(raw);
    unsigned char* b = a + kPanelBytes<64>;
    fill_panel<Wide, 64>(a, from.a);
    fill_panel<Wide, kWideCols>(b, from.b);
    publish_to_matrix_unit();
    __syncthreads();
    float c[kWideSums] = {};
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
      for (float& sum : c) asm volatile("" : "+f"(sum)::"memory");  // complete before the first instruction
      begin_products();
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          Wide::issue(c, describe(a + k * kStepBytes), describe(b + k * kStepBytes));
        }
      }
      finish_products();
#pragma unroll
      for (float& sum : c) asm volatile("" : "+f"(sum)::"memory");  // not read before this point
    }
    if (sums == nullptr) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    float* own = sums + (std::int64_t{blockIdx.x} * kGroups + threadIdx.x / kGroup) * 64 * kWideCols;
#pragma unroll
    for (int i = 0; i < kWideSums; ++i) {
      own[(row + i / 2 % 2 * 8) * kWideCols + i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i];
    }
  }
}

InstructionShape fma_shape(int lanes) {
  return {.threads = kThreads,
          .blocks_per_sm = 4,
          .groups = kThreads,
          .m = 1,
          .n = kChains * lanes,
          .k = kFactors,
          .passes = kPasses};
}
InstructionShape mma_shape(int depth) {
  return {.threads = kThreads,
          .blocks_per_sm = 2,
          .groups = kThreads / 32,
          .m = 16,
          .n = kTiles * 8,
          .k = kDeep * depth,
          .passes = kPasses};
}
InstructionShape wgmma_shape(int element_bytes) {
  return {.threads = kThreads,
          .blocks_per_sm = 1,
          .groups = kGroups,
          .m = 64,
          .n = kWideCols,
          .k = kPanelRowBytes / element_bytes,
          .passes = kPasses};
}

using Kernel = void (*)(int, InstructionFactors, float*);

Kernel kernel_of(Instruction instruction) {
  switch (instruction) {
    case Instruction::fma_fp32:
      return fma_loop<OneFp32>;
    case Instruction::fma2_fp16:
      return fma_loop<TwoFp16>;
    case Instruction::fma2_bf16:
      return fma_loop<TwoBf16>;
    case Instruction::mma_tf32:
      return mma_loop<Tf32Tiles>;
    case Instruction::mma_fp16:
      return mma_loop<Fp16Tiles>;
    case Instruction::mma_bf16:
      return mma_loop<Bf16Tiles>;
    case Instruction::wgmma_tf32:
      return wgmma_loop<WideTf32>;
    case Instruction::wgmma_fp16:
      return wgmma_loop<WideFp16>;
    case Instruction::wgmma_bf16:
      return wgmma_loop<WideBf16>;
    case Instruction::wgmma_fp8:
      return wgmma_loop<WideFp8>;
  }
  return nullptr;
}

bool is_of_warp_group(Instruction instruction) {
  return instruction == Instruction::wgmma_tf32 || instruction == Instruction::wgmma_fp16 ||
         instruction == Instruction::wgmma_bf16 || instruction == Instruction::wgmma_fp8;
}

}  // namespace

InstructionShape instruction_shape(Instruction instruction) {
  switch (instruction) {
    case Instruction::fma_fp32:
      return fma_shape(1);
    case Instruction::fma2_fp16:
    case Instruction::fma2_bf16:
      return fma_shape(2);
    case Instruction::mma_tf32:
      return mma_shape(Tf32Tiles::kDepth);
    case Instruction::mma_fp16:
    case Instruction::mma_bf16:
      return mma_shape(Bf16Tiles::kDepth);
    case Instruction::wgmma_tf32:
      return wgmma_shape(4);
    case Instruction::wgmma_fp16:
    case Instruction::wgmma_bf16:
      return wgmma_shape(2);
    case Instruction::wgmma_fp8:
      return wgmma_shape(1);
  }
  return {};
}

void launch_instruction_loop(Stream stream, Instruction instruction, unsigned blocks, int rounds,
                             const InstructionFactors& factors, float* sums) {
  if (is_of_warp_group(instruction) && !has_warp_group_code()) {
    throw core::Unavailable("wgmma: rooflm was built without code for sm_90a");
  }
  kernel_of(instruction)<<<blocks, kThreads, 0, stream>>>(rounds, factors, sums);
  check_launch(kWhat);
}

bool has_warp_group_code() { return ROOFLM_SM90A != 0; }

}  // namespace rooflm::backends::cuda
