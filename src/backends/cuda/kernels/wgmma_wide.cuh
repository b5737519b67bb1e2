// Hopper's widest matrix instruction, m64n256, per operand dtype.
//
// Both operands are in shared memory in the swizzled panels of wgmma.cuh, with K along rows of 128 bytes. For
// any dtype an instruction reads 32 bytes of each row. Sums are 128 fp32 registers per thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {

/// A row of 128 bytes is four instructions deep.
constexpr int kStepBytes = 32;
constexpr int kSteps = kPanelRowBytes / kStepBytes;
constexpr int kWideCols = 256;
constexpr int kWideSums = 64 * kWideCols / 128;

// An asm statement needs its 128 operands and their names as literals; hence macros, only here.
#define ROOFLM_SUMS_8(c, i)                                                                             \
  "+f"(c[i]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3]), "+f"(c[(i) + 4]), "+f"(c[(i) + 5]), \
      "+f"(c[(i) + 6]), "+f"(c[(i) + 7])
#define ROOFLM_SUMS_32(c, i) \
  ROOFLM_SUMS_8(c, i), ROOFLM_SUMS_8(c, (i) + 8), ROOFLM_SUMS_8(c, (i) + 16), ROOFLM_SUMS_8(c, (i) + 24)
#define ROOFLM_NAMES                                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ROOFLM_ISSUE(instruction, flags)                                                                   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned." instruction         \
               " {" ROOFLM_NAMES "}, %128, %129, p, " flags ";\n}\n"                                       \
               : ROOFLM_SUMS_32(c, 0), ROOFLM_SUMS_32(c, 32), ROOFLM_SUMS_32(c, 64), ROOFLM_SUMS_32(c, 96) \
               : "l"(a), "l"(b))

/// c += a b^T: 64 rows of a, 256 rows of b, 32 bytes of each row. The operand dtype determines the rounding.
struct WideBf16 {
  using Element = std::uint16_t;
  static __device__ Element round(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
  static __device__ void issue(float (&c)[kWideSums], std::uint64_t a, std::uint64_t b) {
    ROOFLM_ISSUE("m64n256k16.f32.bf16.bf16", "1, 1, 0, 0");
  }
};
struct WideFp16 {
  using Element = std::uint16_t;
  static __device__ Element round(float value) { return __half_as_ushort(__float2half_rn(value)); }
  static __device__ void issue(float (&c)[kWideSums], std::uint64_t a, std::uint64_t b) {
    ROOFLM_ISSUE("m64n256k16.f32.f16.f16", "1, 1, 0, 0");
  }
};

/// c += op(a) op(b) of 16 steps of the summed index, which runs along the rows of a panel or, with kColumns,
/// across them: then b's panels of 64 columns lie as describe_columns says. E: __nv_bfloat16, __half.
template <class E, bool kColumnsOfA, bool kColumnsOfB>
__device__ void issue_wide(float (&c)[kWideSums], std::uint64_t a, std::uint64_t b) {
  static_assert(kColumnsOfB || !kColumnsOfA, "no kernel needs it");
  if constexpr (std::is_same_v<E, __half>) {
    if constexpr (kColumnsOfA) {
      ROOFLM_ISSUE("m64n256k16.f32.f16.f16", "1, 1, 1, 1");
    } else if constexpr (kColumnsOfB) {
      ROOFLM_ISSUE("m64n256k16.f32.f16.f16", "1, 1, 0, 1");
    } else {
      ROOFLM_ISSUE("m64n256k16.f32.f16.f16", "1, 1, 0, 0");
    }
  } else {
    if constexpr (kColumnsOfA) {
      ROOFLM_ISSUE("m64n256k16.f32.bf16.bf16", "1, 1, 1, 1");
    } else if constexpr (kColumnsOfB) {
      ROOFLM_ISSUE("m64n256k16.f32.bf16.bf16", "1, 1, 0, 1");
    } else {
      ROOFLM_ISSUE("m64n256k16.f32.bf16.bf16", "1, 1, 0, 0");
    }
  }
}

/// The descriptor of panels of 64 columns that lie `bytes` apart, with the summed index across their rows.
__device__ inline std::uint64_t describe_columns(const unsigned char* panel, int bytes) {
  constexpr std::uint64_t kBetweenPanels = std::uint64_t{0x3fff} << 16;
  return (describe(panel) & ~kBetweenPanels) | static_cast<std::uint64_t>(bytes >> 4) << 16;
}

/// Before begin_products: the sums are complete. After they were awaited: nothing that reads them is moved
/// before.
__device__ inline void receive(float (&c)[kWideSums]) {
#pragma unroll
  for (int i = 0; i < kWideSums; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

struct WideTf32 {
  using Element = std::uint32_t;
  static __device__ Element round(float value) {
    return __float_as_uint(value);
  }  // the tensor core ignores the lowest bits
  static __device__ void issue(float (&c)[kWideSums], std::uint64_t a, std::uint64_t b) {
    ROOFLM_ISSUE("m64n256k8.f32.tf32.tf32", "1, 1");
  }
};
struct WideFp8 {
  using Element = std::uint8_t;
  static __device__ Element round(float value) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(value));
    return static_cast<Element>(pair & 0xffU);
  }
  static __device__ void issue(float (&c)[kWideSums], std::uint64_t a, std::uint64_t b) {
    ROOFLM_ISSUE("m64n256k32.f32.e4m3.e4m3", "1, 1");
  }
};

#undef ROOFLM_ISSUE
#undef ROOFLM_NAMES
#undef ROOFLM_SUMS_32
#undef ROOFLM_SUMS_8

}  // namespace rooflm::backends::cuda
