// How a GEMM by tiles is cut into parts, and where its working memory lies. For this folder only.
#pragma once

#include <cstdint>

#include "backends/cpu/fast/amx/gemm.h"

namespace rooflm::backends::cpu {

constexpr std::int64_t quotient(std::int64_t extent, std::int64_t part) { return (extent + part - 1) / part; }
constexpr std::int64_t rounded_up(std::int64_t extent, std::int64_t unit) {
  return quotient(extent, unit) * unit;
}

/// Blocks for the problem on `threads` threads. Extents of `wanted` other than 0 are taken as they are.
AmxBlocks choose_blocks(const GemmProblem& problem, AmxBlocks wanted, int threads);

/// Whether all of a is packed before the parts of c, by all threads, or what a part needs by its thread.
bool shares_left(const GemmProblem& problem, AmxBlocks blocks);
/// The same of b, which is packed in chunks of columns.
bool shares_right(const GemmProblem& problem, AmxBlocks blocks);

AmxScratch lay_out_scratch(const GemmProblem& problem, AmxBlocks blocks);

}  // namespace rooflm::backends::cpu
