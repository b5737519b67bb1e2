// bf16 GEMMs by tiles: operands are packed into panels of 32 rows or columns, and threads take parts of c.
//
// A part's sums stay in the L2 cache while blocks of `terms` terms of its operands pass. In a block, the
// right panels are taken one after the other, and all left panels pass each. What several parts need is
// packed before, for all threads; what one part needs, by its thread, into its L2 cache. Meanwhile the next
// block is fetched.
#include "backends/cpu/fast/amx/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "backends/cpu/fast/amx/pack.h"
#include "backends/cpu/fast/amx/plan.h"
#include "backends/cpu/fast/amx/write.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/resources.h"
#include "core/error.h"

namespace rooflm::backends::cpu {
namespace {

using core::Bf16;
using core::DType;

Operand left_operand(const GemmProblem& p, const void* a) {
  return {static_cast<const Bf16*>(a), p.lda, p.trans_a ? Stored::terms_of_lines : Stored::lines_of_terms,
          p.m, p.k};
}
Operand right_operand(const GemmProblem& p, const void* b) {
  return {static_cast<const Bf16*>(b), p.ldb, p.trans_b ? Stored::lines_of_terms : Stored::terms_of_lines,
          p.n, p.k};
}

/// An operand as stored and, if threads share it, its lines from first_line on packed with all their terms.
struct Factor {
  Operand stored;
  const Bf16* packed = nullptr;
  std::int64_t first_line = 0;

  /// Elements of a packed panel.
  [[nodiscard]] std::int64_t panel_stride() const {
    return rounded_up(stored.terms, kTileTerms) * kBlockSide;
  }
  [[nodiscard]] const Bf16* packed_at(std::int64_t line, std::int64_t term) const {
    return packed + (line - first_line) / kBlockSide * panel_stride() + term * kBlockSide;
  }
  /// What is read of the panel at (line, term), `lines` cache lines per step from the `skipped`th on.
  [[nodiscard]] Ahead ahead(std::int64_t line, std::int64_t term, std::int64_t skipped,
                            std::int64_t lines) const {
    if (packed != nullptr)
      return {packed_at(line, term) + skipped * kTileTerms, lines, kTileTerms, kStepFactors};
    const bool by_lines = stored.stored == Stored::lines_of_terms;
    return {stored.at(line, term) + skipped * stored.stride, lines, stored.stride,
            by_lines ? kTileTerms : stored.stride * kTileTerms};
  }
};

/// The packed panels of a block.
struct Panels {
  const Bf16* first;
  std::int64_t stride;

  [[nodiscard]] const Bf16* at(std::int64_t i) const { return first + i * stride; }
};

/// Those that threads share, or packed now into `own`.
template <bool kRight>
Panels panels_of(const Factor& x, std::int64_t line, std::int64_t term, std::int64_t panels,
                 std::int64_t steps, Bf16* own) {
  if (x.packed != nullptr) return {x.packed_at(line, term), x.panel_stride()};
  pack_panels<kRight>(x.stored, line, term, panels, steps, own, steps * kStepFactors);
  return {own, steps * kStepFactors};
}

}  // namespace

/// Arguments of one call.
struct AmxGemm::Call {
  Factor left;
  Factor right;
  void* c;
  const void* bias;
  Bf16* scratch;
};

/// A part of c.
struct AmxGemm::Part {
  std::int64_t row, rows, column, columns;
};

/// Where a block begins.
struct AmxGemm::Place {
  std::int64_t row, column, term;
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
  blocks_ = choose_blocks(p, blocks, threads_);
  scratch_ = lay_out_scratch(p, blocks_);
}

AmxGemm::AmxGemm(const GemmProblem& problem)
    : AmxGemm(problem, has_amx() ? amx_tiles() : throw core::Unavailable("no AMX with bf16 here")) {}

void AmxGemm::operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const {
  run({{left_operand(problem_, a)}, {right_operand(problem_, b)}, c, bias, static_cast<Bf16*>(scratch)});
}

void AmxGemm::run(Call call) const {
  const GemmProblem& p = problem_;
  if (shares_left(p, blocks_)) {
    pack_shared<false>(call.left.stored, 0, p.m, call.scratch);
    call.left.packed = call.scratch;
  }
  if (!shares_right(p, blocks_)) {
    run_columns(call, 0, p.n);
    return;
  }
  Bf16* chunk = call.scratch + scratch_.left;
  call.right.packed = chunk;
  for (std::int64_t first = 0; first < p.n; first += scratch_.chunk_columns) {
    const std::int64_t columns = std::min(scratch_.chunk_columns, p.n - first);
    pack_shared<true>(call.right.stored, first, columns, chunk);
    call.right.first_line = first;
    run_columns(call, first, columns);
  }
}

/// Parts with the same columns follow each other: threads share these in the last-level cache.
void AmxGemm::run_columns(const Call& call, std::int64_t first, std::int64_t columns) const {
  const std::int64_t row_parts = quotient(problem_.m, blocks_.rows);
  const std::int64_t count = row_parts * quotient(columns, blocks_.columns);
  const auto part_of = [&](std::int64_t index) {
    const std::int64_t row = index % row_parts * blocks_.rows;
    const std::int64_t offset = index / row_parts * blocks_.columns;
    return Part{.row = row,
                .rows = std::min(blocks_.rows, problem_.m - row),
                .column = first + offset,
                .columns = std::min(blocks_.columns, columns - offset)};
  };
  const int threads = count == 1 ? 1 : std::min(threads_, thread_count());
  std::atomic<std::int64_t> next{0};
  const auto work = [&](std::int64_t worker) {
    Bf16* own = call.scratch + scratch_.left + scratch_.right + worker * (scratch_.own + scratch_.sums);
    std::int64_t i = next++;
    if (i >= count) return;
    ops_->begin();
    for (; i < count; i = next++) {
      // Which part is this thread's next is a guess. A wrong one is fetched in vain.
      run_part(call, part_of(i), part_of(i + threads < count ? i + threads : i), own);
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

void AmxGemm::run_part(const Call& call, const Part& part, const Part& next, Bf16* own) const {
  for (std::int64_t term = 0; term < problem_.k; term += blocks_.terms) {
    const bool is_last = term + blocks_.terms >= problem_.k;
    run_block(call, part, term,
              is_last ? Place{next.row, next.column, 0} : Place{part.row, part.column, term + blocks_.terms},
              own);
  }
  if (streams_) end_stream();
}

void AmxGemm::run_block(const Call& call, const Part& part, std::int64_t term, const Place& next,
                        Bf16* own) const {
  const GemmProblem& p = problem_;
  const std::int64_t rows = quotient(part.rows, kBlockSide);
  const std::int64_t columns = quotient(part.columns, kBlockSide);
  const std::int64_t steps = quotient(std::min(blocks_.terms, p.k - term), kTileTerms);
  const bool is_last = term + blocks_.terms >= p.k;
  Bf16* own_right = own + (call.left.packed == nullptr ? rows * steps * kStepFactors : 0);
  const Panels left = panels_of<false>(call.left, part.row, term, rows, steps, own);
  const Panels right = panels_of<true>(call.right, part.column, term, columns, steps, own_right);
  auto* sums = reinterpret_cast<float*>(own + scratch_.own);
  const std::int64_t kept_sums = p.k > blocks_.terms ? kBlockSums : 0;

  // While one 32 x 32 block is summed, a share of what comes next is fetched.
  const std::int64_t left_lines = quotient(kBlockSide, columns);
  const std::int64_t right_lines = quotient(kBlockSide, rows);
  for (std::int64_t j = 0; j < columns; ++j) {
    // Shared right panels come from beyond the L2 cache one by one.
    const bool is_shared = call.right.packed != nullptr;
    const Place place = is_shared && j + 1 < columns ? Place{0, part.column + (j + 1) * kBlockSide, term}
                        : is_shared                  ? next
                                                     : Place{0, next.column + j * kBlockSide, next.term};
    for (std::int64_t i = 0; i < rows; ++i, sums += kept_sums) {
      ops_->multiply(steps, left.at(i), right.at(j), sums, term == 0,
                     call.left.ahead(next.row + i * kBlockSide, next.term, j * left_lines, left_lines),
                     call.right.ahead(place.column, place.term, i * right_lines, right_lines));
      if (is_last)
        write_block_at(p, part.row + i * kBlockSide, part.column + j * kBlockSide, sums, call.c, call.bias,
                       streams_);
    }
  }
}

}  // namespace rooflm::backends::cpu
