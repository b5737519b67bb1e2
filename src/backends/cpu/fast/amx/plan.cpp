// How a GEMM by tiles is cut: the blocks with the fewest cycles, by a rough count, that fit the caches.
#include "backends/cpu/fast/amx/plan.h"

#include <algorithm>

#include "backends/cpu/fast/amx/tiles.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
/// Of the 2 MiB that every processor with AMX has: the rest is for what streams through.
constexpr std::int64_t kCacheBytes = 3 * kMiB / 2;
/// What threads share packed: rather in the last-level cache, at most that much memory.
constexpr std::int64_t kChunkBytes = 16 * kMiB;
constexpr std::int64_t kMostChunkBytes = 64 * kMiB;
constexpr std::int64_t kBf16Bytes = 2;

/// Length of equal parts of `extent`, multiples of 32 of at most `most`.
constexpr std::int64_t even_part(std::int64_t extent, std::int64_t most) {
  return rounded_up(quotient(extent, quotient(extent, most)), kBlockSide);
}

/// Cycles of a GEMM on `threads` threads, roughly: four TDPBF16PS of 16 cycles per step of a block, what
/// packing takes (4 cycles per line), and waiting for operands from beyond the L2 cache.
double cycles_of(const GemmProblem& p, AmxBlocks blocks, int threads) {
  constexpr double kStep = 64;
  constexpr double kBlockEnds = 150;
  constexpr double kPackedTerm = 4.0 / 32;
  constexpr double kByte = 0.03;
  const auto k = static_cast<double>(p.k);
  const auto rows = static_cast<double>(blocks.rows);
  const auto columns = static_cast<double>(blocks.columns);
  const auto passes = static_cast<double>(quotient(p.k, blocks.terms));
  const bool left = shares_left(p, blocks);
  const bool right = shares_right(p, blocks);
  const double blocks_of_sums = rows * columns / (kBlockSide * kBlockSide);
  const double own = (right ? 0 : columns) + (left ? 0 : rows);
  const double part = blocks_of_sums * (k / kTileTerms * kStep + passes * kBlockEnds) +
                      own * k * kPackedTerm + (rows + columns) * k * kBf16Bytes * kByte;
  const auto shared = static_cast<double>((right ? p.n : 0) + (left ? p.m : 0));
  const std::int64_t parts = quotient(p.m, blocks.rows) * quotient(p.n, blocks.columns);
  return static_cast<double>(quotient(parts, threads)) * part + shared * k * kPackedTerm / threads;
}

/// Bytes that one part keeps in the L2 cache.
std::int64_t cached_bytes(const GemmProblem& p, AmxBlocks x) {
  const std::int64_t sums = p.k > x.terms ? x.rows * x.columns * 4 : 0;
  const std::int64_t right = shares_right(p, x) ? 0 : x.columns * x.terms * kBf16Bytes;
  return x.rows * x.terms * kBf16Bytes + sums + right;
}

std::int64_t padded_terms(const GemmProblem& p) { return rounded_up(p.k, kTileTerms); }

}  // namespace

/// A packed a beyond the last-level cache goes through memory: a is read, its packed form is written (which
/// reads the lines first), and each column of parts reads that. If c is narrow, the few columns of parts
/// rather pack what they need from a itself: with two, 2 times its bytes instead of 5, for twice the packing.
bool shares_left(const GemmProblem& p, AmxBlocks blocks) {
  constexpr std::int64_t kNarrow = 1024;
  const std::int64_t bytes = rounded_up(p.m, kBlockSide) * padded_terms(p) * kBf16Bytes;
  return p.n > blocks.columns && bytes <= (p.n <= kNarrow ? kChunkBytes : kMostChunkBytes);
}

bool shares_right(const GemmProblem& p, AmxBlocks blocks) { return p.m > blocks.rows; }

AmxBlocks choose_blocks(const GemmProblem& p, AmxBlocks wanted, int threads) {
  constexpr std::int64_t kMostTerms = 512;  // a right panel of 32 KiB
  constexpr std::int64_t kMostRows = 512;
  constexpr std::int64_t kMostColumns = 2048;
  AmxBlocks best{.rows = kBlockSide, .columns = kBlockSide, .terms = even_part(p.k, kMostTerms)};
  double least = cycles_of(p, best, threads);
  const std::int64_t widest = std::min(kMostColumns, kMostChunkBytes / (padded_terms(p) * kBf16Bytes));
  for (std::int64_t most_rows = kBlockSide; most_rows <= kMostRows; most_rows += kBlockSide) {
    for (std::int64_t most_columns = kBlockSide; most_columns <= widest; most_columns += kBlockSide) {
      const AmxBlocks next{even_part(p.m, most_rows), even_part(p.n, most_columns), best.terms};
      if (cached_bytes(p, next) > kCacheBytes) continue;
      const double cycles = cycles_of(p, next, threads);
      if (cycles < least) {
        best = next;
        least = cycles;
      }
    }
  }
  if (wanted.rows > 0) best.rows = wanted.rows;
  if (wanted.columns > 0) best.columns = wanted.columns;
  if (wanted.terms > 0) best.terms = wanted.terms;
  return best;
}

AmxScratch lay_out_scratch(const GemmProblem& p, AmxBlocks blocks) {
  AmxScratch x;
  const std::int64_t terms = padded_terms(p);
  const std::int64_t fit = kChunkBytes / (terms * kBf16Bytes * blocks.columns);
  x.chunk_columns = std::min(rounded_up(p.n, kBlockSide), std::max<std::int64_t>(1, fit) * blocks.columns);
  if (shares_left(p, blocks)) {
    x.left = rounded_up(p.m, kBlockSide) * terms;
  } else {
    x.own += blocks.rows * blocks.terms;
  }
  if (shares_right(p, blocks)) {
    x.right = x.chunk_columns * terms;
  } else {
    x.own += blocks.columns * blocks.terms;
  }
  const std::int64_t kept = p.k > blocks.terms ? blocks.rows / kBlockSide * (blocks.columns / kBlockSide) : 1;
  x.sums = kept * kBlockSums * 2;
  return x;
}

std::size_t AmxScratch::bytes(int threads) const {
  return static_cast<std::size_t>((left + right + threads * (own + sums)) * kBf16Bytes);
}

}  // namespace rooflm::backends::cpu
