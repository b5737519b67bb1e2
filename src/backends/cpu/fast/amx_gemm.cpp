// bf16 GEMMs by tiles: operands are packed into panels of 32 rows or columns, and threads take parts of c.
//
// A part's sums stay in the L2 cache while blocks of `terms` terms of its operands pass. In a block, a right
// panel stays in the L1 cache and left panels stream through. What several parts need is packed before, for
// all threads; what one part needs, by its thread, into its L2 cache. Meanwhile the next block is fetched.
#include "backends/cpu/fast/amx_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <oneapi/dnnl/dnnl.hpp>

#include "backends/cpu/fast/amx_pack.h"
#include "backends/cpu/fast/amx_tiles.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "backends/cpu/resources.h"
#include "core/error.h"

namespace rooflm::backends::cpu {
namespace {

using core::Bf16;
using core::DType;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
/// Of the 2 MiB that every processor with AMX has: the rest is for what streams through.
constexpr std::int64_t kCacheBytes = 3 * kMiB / 2;
/// A packed chunk of b: rather in the last-level cache, at most that much memory.
constexpr std::int64_t kChunkBytes = 16 * kMiB;
constexpr std::int64_t kMostChunkBytes = 64 * kMiB;
constexpr std::int64_t kBf16Bytes = 2;

constexpr std::int64_t quotient(std::int64_t extent, std::int64_t part) { return (extent + part - 1) / part; }
constexpr std::int64_t rounded_up(std::int64_t extent, std::int64_t unit) {
  return quotient(extent, unit) * unit;
}
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
  const std::int64_t row_parts = quotient(p.m, blocks.rows);
  const auto k = static_cast<double>(p.k);
  const auto rows = static_cast<double>(blocks.rows);
  const auto columns = static_cast<double>(blocks.columns);
  const auto passes = static_cast<double>(quotient(p.k, blocks.terms));
  const double blocks_of_sums = rows * columns / (kBlockSide * kBlockSide);
  const std::int64_t column_parts = quotient(p.n, blocks.columns);
  const double own = (row_parts == 1 ? columns : 0) + (column_parts == 1 ? rows : 0);
  const double part = blocks_of_sums * (k / kTileTerms * kStep + passes * kBlockEnds) +
                      own * k * kPackedTerm + (rows + columns) * k * kBf16Bytes * kByte;
  const auto shared = static_cast<double>((row_parts == 1 ? 0 : p.n) + (column_parts == 1 ? 0 : p.m));
  return static_cast<double>(quotient(row_parts * column_parts, threads)) * part +
         shared * k * kPackedTerm / threads;
}

/// Bytes that one part keeps in the L2 cache.
std::int64_t cached_bytes(const GemmProblem& p, AmxBlocks x) {
  const std::int64_t sums = p.k > x.terms ? x.rows * x.columns * 4 : 0;
  const std::int64_t right = x.rows >= p.m ? x.columns * x.terms * kBf16Bytes : 0;
  return x.rows * x.terms * kBf16Bytes + sums + right;
}

/// A packed panel, line after line.
Ahead packed_ahead(const Bf16* from) { return {from, 0, kTileTerms, kStepFactors}; }

template <class Tiles>
constexpr TileOps ops_of(const char* name, void (*begin)(), void (*end)()) {
  return {.name = name, .begin = begin, .end = end, .multiply = multiply_block<Tiles>};
}

Stored stored(bool terms_are_neighbours) {
  return terms_are_neighbours ? Stored::rows_of_terms : Stored::terms_of_rows;
}

/// pack_panels of an operand of which rows (op(a)) or columns (op(b)) from `first_row`, terms from
/// `first_term` on.
template <bool kRight>
void pack_from(Stored how, std::int64_t panels, std::int64_t steps, std::int64_t rows, std::int64_t terms,
               const Bf16* from, std::int64_t stride, std::int64_t first_row, std::int64_t first_term,
               Bf16* to, std::int64_t panel_stride) {
  if (how == Stored::rows_of_terms) {
    pack_panels<Stored::rows_of_terms, kRight>(panels, steps, rows - first_row, terms - first_term,
                                               from + first_row * stride + first_term, stride, to,
                                               panel_stride);
  } else {
    pack_panels<Stored::terms_of_rows, kRight>(panels, steps, rows - first_row, terms - first_term,
                                               from + first_term * stride + first_row, stride, to,
                                               panel_stride);
  }
}

/// The same on all threads, whole sums.
template <bool kRight>
void pack_shared(Stored how, std::int64_t panels, std::int64_t steps, std::int64_t rows, std::int64_t terms,
                 const Bf16* from, std::int64_t stride, std::int64_t first_row, Bf16* to) {
  const std::int64_t panel_stride = steps * kStepFactors;
  parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
    pack_from<kRight>(how, end - begin, steps, rows, terms, from, stride, first_row + begin * kBlockSide, 0,
                      to + begin * panel_stride, panel_stride);
  });
}

}  // namespace

bool has_amx() {
#if defined(__x86_64__)
  static const bool has = [] {
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    const bool is_allowed = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
    return is_allowed && processor_has_tiles() && may_use_tiles();
  }();
  return has;
#else
  return false;
#endif
}

const TileOps& emulated_tiles() {
  static constexpr TileOps kOps = ops_of<EmulatedTiles>(
      "emulated tiles", [] {}, [] {});
  return kOps;
}

const TileOps& amx_tiles() {
#if defined(__x86_64__)
  static constexpr TileOps kOps = ops_of<AmxTiles>("amx_gemm<bf16>", begin_amx, end_amx);
  return kOps;
#else
  return emulated_tiles();
#endif
}

/// Arguments of one call. `left`: the whole packed a, or nullptr where each thread packs its own. `right`:
/// the packed columns of b from `first_column` on, or nullptr.
struct AmxGemm::Call {
  const Bf16* a;
  const Bf16* b;
  std::byte* c;
  const void* bias;
  Bf16* scratch;
  const Bf16* left = nullptr;
  const Bf16* right = nullptr;
  std::int64_t first_column = 0, columns = 0;  ///< that are computed now
};

/// A part of c.
struct AmxGemm::Part {
  std::int64_t row, rows, column, columns;
};

bool AmxGemm::takes(const GemmProblem& p) {
  constexpr std::int64_t kFewest = 32;
  constexpr std::int64_t kFewestProducts = std::int64_t{1} << 21U;
  return p.batch == 1 && p.a_type == DType::bf16 && p.m >= kFewest && p.n >= kFewest && p.k >= kFewest &&
         p.m * p.n >= kFewestProducts / p.k;
}

AmxGemm::AmxGemm(const GemmProblem& problem, const TileOps& ops, AmxBlocks blocks)
    : problem_(problem), ops_(&ops), threads_(thread_count()) {
  GemmProblem& p = problem_;
  if (p.batch != 1 || p.a_type != DType::bf16 || p.b_type != DType::bf16 || p.m < 1 || p.n < 1 || p.k < 1)
    throw core::UsageError(
        fmt::format("GEMM by tiles [{}x] {} x {} x {} of {} and {}: only one matrix of bf16", p.batch, p.m,
                    p.n, p.k, name_of(p.a_type), name_of(p.b_type)));
  if (p.lda == 0) p.lda = p.trans_a ? p.m : p.k;
  if (p.ldb == 0) p.ldb = p.trans_b ? p.k : p.n;
  if (p.ldc == 0) p.ldc = p.n;
  p.batch_stride_a = p.lda * (p.trans_a ? p.k : p.m);
  p.batch_stride_b = p.ldb * (p.trans_b ? p.n : p.k);
  p.batch_stride_c = p.ldc * p.m;
  const auto c_bytes = static_cast<std::int64_t>(core::size_of(p.c_type));
  streams_ = !p.accumulate && p.ldc * c_bytes % kLineBytes == 0 && is_streamed(p.m * p.n * c_bytes);
  steps_ = quotient(p.k, kTileTerms);
  choose_blocks(blocks);
  lay_out_scratch();
}

AmxGemm::AmxGemm(const GemmProblem& problem)
    : AmxGemm(problem, has_amx() ? amx_tiles() : throw core::Unavailable("no AMX with bf16 here")) {}

void AmxGemm::choose_blocks(AmxBlocks blocks) {
  constexpr std::int64_t kMostTerms = 512;  // a right panel of 32 KiB
  constexpr std::int64_t kMostRows = 512;
  constexpr std::int64_t kMostColumns = 2048;
  const GemmProblem& p = problem_;
  blocks_ = {.rows = kBlockSide, .columns = kBlockSide, .terms = even_part(p.k, kMostTerms)};
  double least = cycles_of(p, blocks_, threads_);
  const std::int64_t widest = std::min(kMostColumns, kMostChunkBytes / (steps_ * kTileTerms * kBf16Bytes));
  for (std::int64_t most_rows = kBlockSide; most_rows <= kMostRows; most_rows += kBlockSide) {
    for (std::int64_t most_columns = kBlockSide; most_columns <= widest; most_columns += kBlockSide) {
      const AmxBlocks next{even_part(p.m, most_rows), even_part(p.n, most_columns), blocks_.terms};
      if (cached_bytes(p, next) > kCacheBytes) continue;
      const double cycles = cycles_of(p, next, threads_);
      if (cycles < least) {
        blocks_ = next;
        least = cycles;
      }
    }
  }
  if (blocks.rows > 0) blocks_.rows = blocks.rows;
  if (blocks.columns > 0) blocks_.columns = blocks.columns;
  if (blocks.terms > 0) blocks_.terms = blocks.terms;
}

void AmxGemm::lay_out_scratch() {
  const GemmProblem& p = problem_;
  const std::int64_t terms = steps_ * kTileTerms;
  const std::int64_t left = rounded_up(p.m, kBlockSide) * terms;
  shares_left_ = p.n > blocks_.columns && left * kBf16Bytes <= kMostChunkBytes;
  shares_right_ = row_parts() > 1;
  const std::int64_t fit = kChunkBytes / (terms * kBf16Bytes * blocks_.columns);
  chunk_columns_ = std::min(rounded_up(p.n, kBlockSide), std::max<std::int64_t>(1, fit) * blocks_.columns);
  shared_left_ = shares_left_ ? left : 0;
  shared_right_ = shares_right_ ? chunk_columns_ * terms : 0;
  own_ = ((shares_left_ ? 0 : blocks_.rows) + (shares_right_ ? 0 : blocks_.columns)) * blocks_.terms;
  const std::int64_t blocks = blocks_.rows / kBlockSide * (blocks_.columns / kBlockSide);
  sums_ = 2 * kBlockSums * (p.k > blocks_.terms ? blocks : 1);
  scratch_bytes_ =
      static_cast<std::size_t>((shared_left_ + shared_right_ + threads_ * (own_ + sums_)) * kBf16Bytes);
}

std::size_t AmxGemm::packed_bytes() const {
  return static_cast<std::size_t>(rounded_up(problem_.n, kBlockSide) * steps_ * kTileTerms * kBf16Bytes);
}

void AmxGemm::pack_right(const void* b, void* packed) const {
  const GemmProblem& p = problem_;
  pack_shared<true>(stored(p.trans_b), quotient(p.n, kBlockSide), steps_, p.n, p.k,
                    static_cast<const Bf16*>(b), p.ldb, 0, static_cast<Bf16*>(packed));
}

void AmxGemm::operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const {
  run({.a = static_cast<const Bf16*>(a),
       .b = static_cast<const Bf16*>(b),
       .c = static_cast<std::byte*>(c),
       .bias = bias,
       .scratch = static_cast<Bf16*>(scratch)});
}

void AmxGemm::multiply_packed(const void* a, const void* packed, void* c, const void* bias,
                              void* scratch) const {
  run({.a = static_cast<const Bf16*>(a),
       .b = nullptr,
       .c = static_cast<std::byte*>(c),
       .bias = bias,
       .scratch = static_cast<Bf16*>(scratch),
       .right = static_cast<const Bf16*>(packed)});
}

void AmxGemm::run(Call call) const {
  const GemmProblem& p = problem_;
  if (shares_left_) {
    pack_shared<false>(stored(!p.trans_a), quotient(p.m, kBlockSide), steps_, p.m, p.k, call.a, p.lda, 0,
                       call.scratch);
    call.left = call.scratch;
  }
  call.columns = p.n;
  if (call.right != nullptr || !shares_right_) {
    run_columns(call);
    return;
  }
  Bf16* chunk = call.scratch + shared_left_;
  call.right = chunk;
  for (; call.first_column < p.n; call.first_column += chunk_columns_) {
    call.columns = std::min(chunk_columns_, p.n - call.first_column);
    pack_shared<true>(stored(p.trans_b), quotient(call.columns, kBlockSide), steps_, p.n, p.k, call.b, p.ldb,
                      call.first_column, chunk);
    run_columns(call);
  }
}

/// Parts with the same columns follow each other: threads share these in the last-level cache.
AmxGemm::Part AmxGemm::part_of(const Call& call, std::int64_t index) const {
  const std::int64_t row = index % row_parts() * blocks_.rows;
  const std::int64_t offset = index / row_parts() * blocks_.columns;
  return {.row = row,
          .rows = std::min(blocks_.rows, problem_.m - row),
          .column = call.first_column + offset,
          .columns = std::min(blocks_.columns, call.columns - offset)};
}

void AmxGemm::run_columns(const Call& call) const {
  const std::int64_t count = row_parts() * quotient(call.columns, blocks_.columns);
  const int threads = count == 1 ? 1 : std::min(threads_, thread_count());
  std::atomic<std::int64_t> next{0};
  const auto work = [&](std::int64_t worker) {
    Bf16* own = call.scratch + shared_left_ + shared_right_ + worker * (own_ + sums_);
    std::int64_t i = next++;
    if (i >= count) return;
    ops_->begin();
    for (; i < count; i = next++) {
      // Which part is this thread's next is a guess. A wrong one is fetched in vain.
      const Part after = part_of(call, i + threads < count ? i + threads : i);
      run_part(call, part_of(call, i), after, own, reinterpret_cast<float*>(own + own_));
    }
    ops_->end();
  };
  if (threads == 1) {
    work(0);
    return;
  }
#pragma omp parallel
  {
    if (const int worker = omp_get_thread_num(); worker < threads_) work(worker);
  }
}

void AmxGemm::run_part(const Call& call, const Part& part, const Part& next, Bf16* own, float* sums) const {
  for (std::int64_t term = 0; term < problem_.k; term += blocks_.terms) {
    run_block(call, part, next, term, own, sums);
  }
  if (streams_) end_stream();
}

/// One panel of an operand from a term on: packed in lines, or as it is stored.
Ahead AmxGemm::left_of(const Call& call, std::int64_t row, std::int64_t term) const {
  const GemmProblem& p = problem_;
  if (call.left != nullptr) return packed_ahead(call.left + row * steps_ * kTileTerms + term * kBlockSide);
  if (p.trans_a) return {call.a + term * p.lda + row, 0, p.lda, p.lda * kTileTerms};
  return {call.a + row * p.lda + term, 0, p.lda, kTileTerms};
}
Ahead AmxGemm::right_of(const Call& call, std::int64_t column, std::int64_t term) const {
  const GemmProblem& p = problem_;
  if (call.right != nullptr) {
    return packed_ahead(call.right + (column - call.first_column) * steps_ * kTileTerms + term * kBlockSide);
  }
  if (p.trans_b) return {call.b + column * p.ldb + term, 0, p.ldb, kTileTerms};
  return {call.b + term * p.ldb + column, 0, p.ldb, p.ldb * kTileTerms};
}

void AmxGemm::run_block(const Call& call, const Part& part, const Part& next, std::int64_t term, Bf16* own,
                        float* sums) const {
  const GemmProblem& p = problem_;
  const std::int64_t row_panels = quotient(part.rows, kBlockSide);
  const std::int64_t column_panels = quotient(part.columns, kBlockSide);
  const std::int64_t steps = quotient(std::min(blocks_.terms, p.k - term), kTileTerms);
  const bool keeps_sums = p.k > blocks_.terms;
  const bool is_last = term + blocks_.terms >= p.k;
  const Bf16* left = call.left != nullptr ? left_of(call, part.row, term).from : own;
  Bf16* own_right = own + (call.left != nullptr ? 0 : row_panels * steps * kStepFactors);
  const Bf16* right = call.right != nullptr ? right_of(call, part.column, term).from : own_right;
  const std::int64_t left_stride = (call.left != nullptr ? steps_ : steps) * kStepFactors;
  const std::int64_t right_stride = (call.right != nullptr ? steps_ : steps) * kStepFactors;
  if (call.left == nullptr) {
    pack_from<false>(stored(!p.trans_a), row_panels, steps, p.m, p.k, call.a, p.lda, part.row, term, own,
                     left_stride);
  }
  if (call.right == nullptr) {
    pack_from<true>(stored(p.trans_b), column_panels, steps, p.n, p.k, call.b, p.ldb, part.column, term,
                    own_right, right_stride);
  }
  // The same rows and columns from the next term on, or the next part.
  const Part& from = is_last ? next : part;
  const std::int64_t next_term = is_last ? 0 : term + blocks_.terms;
  const std::int64_t left_lines = quotient(kBlockSide, column_panels);
  const std::int64_t right_lines = quotient(kBlockSide, row_panels);
  for (std::int64_t j = 0; j < column_panels; ++j) {
    // A shared right operand passes panel by panel, so what is fetched is the next panel.
    const bool is_next_panel = call.right != nullptr && j + 1 < column_panels;
    Ahead next_right = is_next_panel           ? right_of(call, part.column + (j + 1) * kBlockSide, term)
                       : call.right != nullptr ? right_of(call, from.column, next_term)
                                               : right_of(call, from.column + j * kBlockSide, next_term);
    next_right.lines = right_lines;
    for (std::int64_t i = 0; i < row_panels; ++i) {
      Ahead next_left = left_of(call, from.row + i * kBlockSide, next_term);
      next_left.lines = left_lines;
      next_left.from += j * left_lines * next_left.line_stride;
      float* block = sums + (keeps_sums ? (j * row_panels + i) * kBlockSums : 0);
      ops_->multiply(steps, left + i * left_stride, right + j * right_stride, block, term == 0, next_left,
                     next_right);
      next_right.from += right_lines * next_right.line_stride;
      if (is_last) write(call, part.row + i * kBlockSide, part.column + j * kBlockSide, block);
    }
  }
}

void AmxGemm::write(const Call& call, std::int64_t row, std::int64_t column, const float* sums) const {
  const GemmProblem& p = problem_;
  const std::int64_t rows = std::min(kBlockSide, p.m - row);
  const std::int64_t columns = std::min(kBlockSide, p.n - column);
  const auto with_types = [&]<class C, class Bias>(C* c, const Bias* bias) {
    const bool streams =
        streams_ && columns == kBlockSide && reinterpret_cast<std::uintptr_t>(c) % kLineBytes == 0;
    for (std::int64_t r = 0; r < rows; ++r, c += p.ldc) {
      const float* sum_row = sums + r / kTileSide * 2 * kTileSums + r % kTileSide * kTileSide;
      for (std::int64_t tile = 0; tile * kTileSide < columns; ++tile) {
        const float* from = sum_row + tile * kTileSums;
        C* to = c + tile * kTileSide;
        const auto lanes = [&](std::int64_t i, auto group) {
          Floats x = load_at(from + i, plain(group));
          if (p.alpha != 1.0F) x *= splat(p.alpha);
          if (p.accumulate) x += load_at(to + i, plain(group));
          if (p.bias) x += load_at(bias + column + tile * kTileSide + i, plain(group));
          store_at(to + i, x, group);
        };
        const std::int64_t end = std::min(kTileSide, columns - tile * kTileSide);
        if (streams) {
          for (std::int64_t i = 0; i < kTileSide; i += kLanes) lanes(i, StreamedGroup{});
        } else {
          for_lanes(0, end, lanes);
        }
      }
    }
  };
  const auto with_bias = [&](auto* c) {
    if (p.bias_type == DType::bf16) {
      with_types(c, static_cast<const Bf16*>(call.bias));
    } else {
      with_types(c, static_cast<const float*>(call.bias));
    }
  };
  const std::int64_t at = row * p.ldc + column;
  if (p.c_type == DType::f32) {
    with_bias(reinterpret_cast<float*>(call.c) + at);
  } else {
    with_bias(reinterpret_cast<Bf16*>(call.c) + at);
  }
}

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {

/// gemm.cpp binds them, before oneDNN's.
MakerRows amx_gemm_rows() { return {}; }

}  // namespace rooflm::backends::cpu::fast
