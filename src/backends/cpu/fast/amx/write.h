// Writes blocks of sums to c: c = alpha * sums (+ c) (+ bias). For this folder only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/fast/amx/tiles.h"
#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

/// `rows` x `columns` of the block `sums`. c and bias: the block's first element. `streams`: past the caches.
template <class C, class Bias>
void write_block(const GemmProblem& p, std::int64_t rows, std::int64_t columns, const float* sums, C* c,
                 const Bias* bias, bool streams) {
  for (std::int64_t row = 0; row < rows; ++row, c += p.ldc) {
    const float* sum_row = sums + row / kTileSide * 2 * kTileSums + row % kTileSide * kTileSide;
    for (std::int64_t first = 0; first < columns; first += kTileSide, sum_row += kTileSums) {
      const auto lanes = [&](std::int64_t i, auto group) {
        Floats x = load_at(sum_row + i, plain(group));
        if (p.alpha != 1.0F) x *= splat(p.alpha);
        if (p.accumulate) x += load_at(c + first + i, plain(group));
        if (p.bias) x += load_at(bias + first + i, plain(group));
        store_at(c + first + i, x, group);
      };
      if (streams) {
        for (std::int64_t i = 0; i < kTileSide; i += kLanes) lanes(i, StreamedGroup{});
      } else {
        for_lanes(0, std::min(kTileSide, columns - first), lanes);
      }
    }
  }
}

/// The block whose sums begin at (row, column) of c. `streams`: past the caches, where the block is whole and
/// aligned.
inline void write_block_at(const GemmProblem& p, std::int64_t row, std::int64_t column, const float* sums,
                           void* c, const void* bias, bool streams) {
  const std::int64_t rows = std::min(kBlockSide, p.m - row);
  const std::int64_t columns = std::min(kBlockSide, p.n - column);
  const auto with_types = [&]<class C, class Bias>(C* matrix, const Bias* vector) {
    C* to = matrix + row * p.ldc + column;
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(to) % kLineBytes == 0;
    write_block(p, rows, columns, sums, to, p.bias ? vector + column : nullptr,
                streams && columns == kBlockSide && is_aligned);
  };
  const auto with_bias = [&](auto* matrix) {
    if (p.bias_type == core::DType::bf16) {
      with_types(matrix, static_cast<const core::Bf16*>(bias));
    } else {
      with_types(matrix, static_cast<const float*>(bias));
    }
  };
  if (p.c_type == core::DType::f32) {
    with_bias(static_cast<float*>(c));
  } else {
    with_bias(static_cast<core::Bf16*>(c));
  }
}

}  // namespace
}  // namespace rooflm::backends::cpu
