// More of Hopper's matrix instructions on the tiles of wgmma.cuh: 128 columns, and factors whose summed index
// runs along rows.
#pragma once

#include "backends/cuda/kernels/wgmma.cuh"

namespace rooflm::backends::cuda {

// An asm statement wants its operands and their names as literals.
#define ROOFLM_SUMS_8(c, i)                                                                             \
  "+f"(c[i]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3]), "+f"(c[(i) + 4]), "+f"(c[(i) + 5]), \
      "+f"(c[(i) + 6]), "+f"(c[(i) + 7])
#define ROOFLM_SUMS_32(c, i) \
  ROOFLM_SUMS_8(c, i), ROOFLM_SUMS_8(c, (i) + 8), ROOFLM_SUMS_8(c, (i) + 16), ROOFLM_SUMS_8(c, (i) + 24)
#define ROOFLM_NAMES_32                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ROOFLM_NAMES_64                                                                     \
  ROOFLM_NAMES_32                                                                           \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/// c[0..64) += a b^T, or = without kAdds; 16 columns of both: a 64 rows, b 128 rows.
template <bool kAdds>
__device__ void issue_transposed_128(float* c, std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" ROOFLM_NAMES_64
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : ROOFLM_SUMS_32(c, 0), ROOFLM_SUMS_32(c, 32)
      : "l"(a), "l"(b), "n"(kAdds ? 1 : 0));
}

/// c[0..32) += a^T b, or = without kAdds; 16 rows of both: a of 64 columns, b of 64 columns.
template <bool kAdds>
__device__ void issue_columns(float* c, std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" ROOFLM_NAMES_32
      "}, %32, %33, p, 1, 1, 1, 1;\n}\n"
      : ROOFLM_SUMS_32(c, 0)
      : "l"(a), "l"(b), "n"(kAdds ? 1 : 0));
}

#undef ROOFLM_NAMES_64
#undef ROOFLM_NAMES_32
#undef ROOFLM_SUMS_32
#undef ROOFLM_SUMS_8

/// c = a b^T: a 64 rows (from row `row` on) of a tile of kRowsA, b a tile of 8 kN rows.
template <int kDim, int kRowsA, int kN>
__device__ void issue_rows_by_rows(Sums<1, kN>& c, const unsigned char* a, int row, const unsigned char* b) {
  static_assert(kN == 8 || kN == 16);
  const std::uint64_t rows = describe(a + row * kPanelRowBytes);
  const std::uint64_t columns = describe(b);
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    const int panel = k / kPanelCols;
    const int bytes = k % kPanelCols * 2;
    const std::uint64_t left = behind(rows, panel * kPanelBytes<kRowsA> + bytes);
    const std::uint64_t right = behind(columns, panel * kPanelBytes<8 * kN> + bytes);
    float* sums = &c.v[0][0][0];
    if constexpr (kN == 8) {
      k == 0 ? issue_transposed<false>(sums, left, right) : issue_transposed<true>(sums, left, right);
    } else {
      k == 0 ? issue_transposed_128<false>(sums, left, right) : issue_transposed_128<true>(sums, left, right);
    }
  }
}

/// c += a b: a in registers, b a tile of 16 kK rows.
template <int kDim, int kK>
__device__ void issue_factor_by_tile(Sums<1, kDim / 8>& c, const Factor<1, kK>& a, const unsigned char* b) {
  const std::uint64_t tile = describe(b);
#pragma unroll
  for (int k = 0; k < kK; ++k) {
#pragma unroll
    for (int panel = 0; panel < kPanels<kDim>; ++panel) {
      issue_product(&c.v[0][panel * 8][0], a.v[0][k],
                    behind(tile, panel * kPanelBytes<16 * kK> + k * 16 * kPanelRowBytes));
    }
  }
}

/// c = a^T b: a and b panels of kRows rows.
template <int kRows>
__device__ void issue_panel_by_panel(Sums<1, 8>& c, const unsigned char* a, const unsigned char* b) {
  const std::uint64_t left = describe(a);
  const std::uint64_t right = describe(b);
#pragma unroll
  for (int k = 0; k < kRows; k += 16) {
    const int bytes = k * kPanelRowBytes;
    k == 0 ? issue_columns<false>(&c.v[0][0][0], behind(left, bytes), behind(right, bytes))
           : issue_columns<true>(&c.v[0][0][0], behind(left, bytes), behind(right, bytes));
  }
}

}  // namespace rooflm::backends::cuda
