// bf16 GEMMs on processors with AMX, by our own kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cpu/fast/amx/tiles.h"
#include "backends/cpu/fast/gemm.h"

namespace rooflm::backends::cpu {

/// Extents that one thread works on at a time. The sums do not depend on them.
struct AmxBlocks {
  std::int64_t rows = 0;     ///< of c, a multiple of 32
  std::int64_t columns = 0;  ///< of c, a multiple of 32
  std::int64_t terms = 0;    ///< of a sum before the next block of operands, a multiple of 32
};

/// Working memory in the order in which it lies, in elements of bf16.
struct AmxScratch {
  std::int64_t chunk_columns = 0;  ///< columns of b that are packed at a time, where threads share them
  std::int64_t left = 0;           ///< the packed a, where threads share it
  std::int64_t right = 0;          ///< a packed chunk of b, where threads share it
  std::int64_t own = 0;            ///< of each thread: operands of its block
  std::int64_t sums = 0;  ///< of each thread: fp32, of its part or, where one block has all terms, of 32 x 32

  [[nodiscard]] std::size_t bytes(int threads) const;
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
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_.bytes(threads_); }
  [[nodiscard]] std::string implementation() const { return ops_->name; }
  /// Loops over all operands per call.
  [[nodiscard]] std::size_t primitives() const { return 1; }

  /// As Gemm::operator().
  void operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const;

 private:
  struct Call;
  struct Part;
  struct Place;
  void run(Call call) const;
  void run_columns(const Call& call, std::int64_t first, std::int64_t columns) const;
  void run_part(const Call& call, const Part& part, const Part& next, core::Bf16* own) const;
  void run_block(const Call& call, const Part& part, std::int64_t term, const Place& next,
                 core::Bf16* own) const;

  GemmProblem problem_;
  const TileOps* ops_;
  int threads_;
  bool streams_;  ///< c is written past the caches
  AmxBlocks blocks_;
  AmxScratch scratch_;
};

}  // namespace rooflm::backends::cpu
