// bf16 GEMMs on processors with AMX, by our own kernels. oneDNN 2.6 reaches a fifth of what the tiles can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cpu/fast/gemm.h"
#include "core/dtype.h"

namespace rooflm::backends::cpu {

/// What is needed next, so that it is brought into the L2 cache in the meantime: in each step `lines` cache
/// lines. Distances in elements.
struct Ahead {
  const core::Bf16* from = nullptr;
  std::int64_t lines = 0;
  std::int64_t line_stride = 0;
  std::int64_t step_stride = 0;
};

/// How 32 x 32 sums are computed. `multiply` runs between `begin` and `end` of its thread, and nothing else
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

/// Extents that one thread works on at a time. The sums do not depend on them.
struct AmxBlocks {
  std::int64_t rows = 0;     ///< of c, a multiple of 32
  std::int64_t columns = 0;  ///< of c, a multiple of 32
  std::int64_t terms = 0;    ///< of a sum before the next block of operands, a multiple of 32
};

/// A prepared GEMM of bf16 operands by tiles, as Gemm. Each element of c is one sum of fp32, in the order of
/// its terms. It depends neither on the number of threads nor on the blocks.
class AmxGemm {
 public:
  /// Whether AmxGemm computes the problem: one matrix of bf16, and large enough that tiles pay.
  static bool takes(const GemmProblem& problem);
  /// `blocks` and `ops` are parameters for tests and benchmarks; blocks of 0 are chosen for the shape and the
  /// number of threads. Throws core::UsageError unless the operands are bf16 and batch is 1.
  explicit AmxGemm(const GemmProblem& problem, const TileOps& ops, AmxBlocks blocks = {});
  /// With AMX. Throws core::Unavailable unless has_amx().
  explicit AmxGemm(const GemmProblem& problem);

  [[nodiscard]] const GemmProblem& problem() const { return problem_; }
  [[nodiscard]] AmxBlocks blocks() const { return blocks_; }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }
  [[nodiscard]] std::string implementation() const { return ops_->name; }
  /// Loops over all operands per call.
  [[nodiscard]] std::size_t primitives() const { return 1; }

  /// As Gemm::operator().
  void operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const;

  /// Packs b once for several calls of multiply_packed. `packed` has packed_bytes() bytes and is 64-byte
  /// aligned.
  [[nodiscard]] std::size_t packed_bytes() const;
  void pack_right(const void* b, void* packed) const;
  /// As operator() with the packed b; same bits.
  void multiply_packed(const void* a, const void* packed, void* c, const void* bias, void* scratch) const;

 private:
  struct Call;
  struct Part;
  void run(Call call) const;
  void run_columns(const Call& call) const;
  [[nodiscard]] Ahead left_of(const Call& call, std::int64_t row, std::int64_t term) const;
  [[nodiscard]] Ahead right_of(const Call& call, std::int64_t column, std::int64_t term) const;
  [[nodiscard]] Part part_of(const Call& call, std::int64_t index) const;
  void run_part(const Call& call, const Part& part, const Part& next, core::Bf16* own, float* sums) const;
  void run_block(const Call& call, const Part& part, const Part& next, std::int64_t term, core::Bf16* own,
                 float* sums) const;
  void write(const Call& call, std::int64_t row, std::int64_t column, const float* sums) const;
  void choose_blocks(AmxBlocks blocks);
  void lay_out_scratch();
  [[nodiscard]] std::int64_t row_parts() const { return (problem_.m + blocks_.rows - 1) / blocks_.rows; }

  GemmProblem problem_;
  const TileOps* ops_;
  int threads_;
  AmxBlocks blocks_;
  bool streams_ = false;            ///< c is written past the caches
  bool shares_left_ = false;        ///< all of a is packed before, for all threads
  bool shares_right_ = false;       ///< chunks of b are
  std::int64_t steps_ = 0;          ///< 32 terms each, of a whole sum
  std::int64_t chunk_columns_ = 0;  ///< columns of b that are packed at a time, where threads share them
  /// Elements of bf16: what all threads share, and each thread's own block and sums.
  std::int64_t shared_left_ = 0, shared_right_ = 0, own_ = 0, sums_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace rooflm::backends::cpu
