// 32 x 32 sums of bf16 products by tiles: AMX's instructions, or the same sums in plain C++.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace rooflm::backends::cpu {

/// A tile has 16 rows of 64 bytes: 16 x 16 sums, 16 x 32 left factors, 16 x 16 pairs of right factors.
constexpr std::int64_t kTileSide = 16;
constexpr std::int64_t kTileTerms = 32;
constexpr std::int64_t kTileSums = kTileSide * kTileSide;
constexpr std::int64_t kTileFactors = kTileSide * kTileTerms;
/// A block is 2 x 2 tiles of sums; a step is 32 terms of all of them: two tiles of each operand.
constexpr std::int64_t kBlockSide = 2 * kTileSide;
constexpr std::int64_t kBlockSums = 4 * kTileSums;
constexpr std::int64_t kStepFactors = 2 * kTileFactors;

/// What is needed next, so that it is brought into the L2 cache in the meantime: in each step `lines` cache
/// lines. Distances in elements.
struct Ahead {
  const core::Bf16* from = nullptr;
  std::int64_t lines = 0;
  std::int64_t line_stride = 0;
  std::int64_t step_stride = 0;
};

/// How a block of sums is computed. `multiply` runs between `begin` and `end` of its thread, and nothing else
/// there may use tiles.
struct TileOps {
  const char* name;  ///< "amx_gemm<bf16>"
  void (*begin)();   ///< configures the tiles of this thread
  void (*end)();     ///< releases them
  /// sums (+)= left · right over 32 * steps terms, `first`: = instead of +=.
  /// left [steps, 2 tiles, 16 rows, 32 terms]; right [steps, 2 tiles, 16 pairs of terms, 16 columns, 2];
  /// sums [2 x 2 tiles, 16, 16].
  void (*multiply)(std::int64_t steps, const core::Bf16* left, const core::Bf16* right, float* sums,
                   bool first, const Ahead& next_left, const Ahead& next_right);
};

/// Whether this processor has AMX with bf16, the system lets this process use it, and ONEDNN_MAX_CPU_ISA does
/// not forbid it. Asks the system once per process.
bool has_amx();
/// By AMX's instructions. Only where has_amx().
const TileOps& amx_tiles();
/// The same sums in plain C++, for tests: fp32 to nearest even in the order of TDPBF16PS.
const TileOps& emulated_tiles();

}  // namespace rooflm::backends::cpu
