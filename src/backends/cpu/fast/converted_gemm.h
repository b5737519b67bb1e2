// GEMMs of 16-bit operands on CPUs without 16-bit arithmetic: in fp32, on converted panels.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/parallel.h"
#include "core/error.h"

namespace rooflm::backends::cpu {

/// A Gemm whose operands are S (bf16 or fp16) and dense. Panels of the operands are converted to fp32 and
/// multiplied by oneDNN; a result in S is rounded once. The numbers are those of the reference: 16-bit
/// operands, fp32 sums. A panel is about as large as the last-level cache of most CPUs, so most operands are
/// converted once.
template <class S>
class ConvertedGemm {
 public:
  /// Elements of the largest panel: 16 MiB.
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 22U;

  /// `problem`: a_type is S. Throws as Gemm. `most_elements` is a parameter for tests.
  explicit ConvertedGemm(const GemmProblem& problem, std::int64_t most_elements = kMostElements)
      : problem_(problem), rounds_(problem.c_type != core::DType::f32) {
    if (problem.lda != 0 || problem.ldb != 0 || problem.ldc != 0 || problem.batch_stride_a != 0 ||
        problem.batch_stride_b != 0 || problem.batch_stride_c != 0) {
      throw core::UsageError("GEMM on converted panels: all matrices must be dense");
    }
    choose_blocks(most_elements);
    const std::size_t gemm_scratch = make_gemms();
    const auto aligned = [](std::int64_t elements) { return (elements + 15) / 16 * 16; };
    b_at_ = aligned(batch_ * m_ * k_);
    c_at_ = b_at_ + aligned(batch_ * (problem.trans_b ? n_ * padded(k_) : k_ * padded(n_)));
    bias_at_ = c_at_ + (rounds_ ? aligned(batch_ * m_ * n_) : 0);
    scratch_at_ = bias_at_ + (converts_bias() ? aligned(n_) : 0);
    scratch_bytes_ = static_cast<std::size_t>(scratch_at_) * sizeof(float) + gemm_scratch;
  }

  [[nodiscard]] const GemmProblem& problem() const { return problem_; }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }
  [[nodiscard]] std::string implementation() const {
    return gemms_.begin()->second.implementation() + " converted";
  }
  /// oneDNN primitives per call, conversions not counted.
  [[nodiscard]] std::size_t primitives() const { return primitives_; }

  /// As Gemm::operator().
  void operator()(const void* a, const void* b, void* c, const void* bias, void* scratch) const {
    auto* panels = static_cast<float*>(scratch);
    const GemmProblem& p = problem_;
    Block of_a;
    Block of_b;  // the blocks that the panels hold
    for_blocks([&](const Block& x) {
      if (!x.has_same_a(of_a)) {
        load(static_cast<const S*>(a), x, p.trans_a ? Part{x.l, x.k, p.k} : Part{x.i, x.m, p.m},
             p.trans_a ? Part{x.i, x.m, p.m} : Part{x.l, x.k, p.k}, panels, p.trans_a ? x.m : x.k);
        of_a = x;
      }
      if (!x.has_same_b(of_b)) {
        load(static_cast<const S*>(b), x, p.trans_b ? Part{x.j, x.n, p.n} : Part{x.l, x.k, p.k},
             p.trans_b ? Part{x.l, x.k, p.k} : Part{x.j, x.n, p.n}, panels + b_at_, b_stride(x));
        of_b = x;
      }
      const std::int64_t first_c = (x.matrix * p.m + x.i) * p.n + x.j;
      float* to = rounds_ ? panels + c_at_ : static_cast<float*>(c) + first_c;
      const float* bias_part = p.bias ? bias_of(x, bias, panels + bias_at_) : nullptr;
      gemms_.at(key_of(x))(panels, panels + b_at_, to, bias_part, panels + scratch_at_);
      if (rounds_ && x.l + x.k == p.k) round(to, x, static_cast<S*>(c) + first_c);
    });
  }

 private:
  /// A block: `matrices` batch elements from `matrix` on; rows [i, i + m) and columns [j, j + n) of c; [l, l
  /// + k) of the inner extent.
  struct Block {
    std::int64_t matrix = -1, i = -1, j = -1, l = -1;
    std::int64_t matrices = 0, m = 0, n = 0, k = 0;
    [[nodiscard]] bool has_same_a(const Block& o) const { return matrix == o.matrix && i == o.i && l == o.l; }
    [[nodiscard]] bool has_same_b(const Block& o) const { return matrix == o.matrix && j == o.j && l == o.l; }
  };
  /// Extents, and whether the block is the first of its sum (c = instead of c +=). One GEMM per key.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool>;
  static Key key_of(const Block& x) { return {x.matrices, x.m, x.n, x.k, x.l == 0}; }

  /// `count` of `all` rows or columns, from `first` on.
  struct Part {
    std::int64_t first, count, all;
  };

  static std::int64_t padded(std::int64_t row) { return row % kPaddedEvery == 0 ? row + kRowPadding : row; }
  /// Elements from one row of a converted part of b to the next.
  [[nodiscard]] std::int64_t b_stride(const Block& x) const { return padded(problem_.trans_b ? x.k : x.n); }

  /// Length of equal parts of `extent`, at most `most` elements but at least 16.
  static std::int64_t even_part(std::int64_t extent, std::int64_t most) {
    constexpr std::int64_t kUnit = 16;
    const std::int64_t parts = (extent - 1) / std::max(kUnit, most) + 1;
    return std::min(extent, ((extent - 1) / parts + kUnit) / kUnit * kUnit);
  }

  void choose_blocks(std::int64_t most) {
    constexpr std::int64_t kLongestInner = 4096;
    const GemmProblem& p = problem_;
    k_ = even_part(p.k, std::min(kLongestInner, most / 16));
    m_ = even_part(p.m, most / k_);
    n_ = even_part(p.n, std::min(most / k_, rounds_ ? most / m_ : most));
    const bool is_whole = m_ == p.m && n_ == p.n && k_ == p.k;
    batch_ =
        is_whole ? std::clamp<std::int64_t>(most / std::max({m_ * k_, k_ * n_, m_ * n_}), 1, p.batch) : 1;
  }

  /// Length and number of the parts of an extent; all but the last have the same length.
  static std::array<std::pair<std::int64_t, std::int64_t>, 2> parts_of(std::int64_t extent,
                                                                       std::int64_t part) {
    return {std::pair{part, extent / part}, {extent % part, extent % part > 0 ? 1 : 0}};
  }

  /// Makes one GEMM per distinct block shape. Returns the largest scratch size of any.
  std::size_t make_gemms() {
    const GemmProblem& p = problem_;
    std::size_t scratch = 0;
    const auto make = [&](Block block, std::int64_t count) {
      if (count == 0) return;
      const Gemm& gemm = gemms_.try_emplace(key_of(block), fp32_part(block)).first->second;
      scratch = std::max(scratch, gemm.scratch_bytes());
      primitives_ += static_cast<std::size_t>(count) * gemm.primitives();
    };
    for (const auto& [matrices, batches] : parts_of(p.batch, batch_)) {
      for (const auto& [m, rows] : parts_of(p.m, m_)) {
        for (const auto& [n, columns] : parts_of(p.n, n_)) {
          for (const auto& [k, sums] : parts_of(p.k, k_)) {
            const std::int64_t count = batches * rows * columns;
            const std::int64_t first = k == k_ && sums > 0 ? 1 : 0;
            make({.l = 0, .matrices = matrices, .m = m, .n = n, .k = k}, count * first);
            make({.l = k_, .matrices = matrices, .m = m, .n = n, .k = k}, count * (sums - first));
          }
        }
      }
    }
    return scratch;
  }

  /// Visits all blocks: those of one sum consecutively, those that share a part of b consecutively.
  template <class Use>
  void for_blocks(Use&& use) const {
    const GemmProblem& p = problem_;
    for (std::int64_t matrix = 0; matrix < p.batch; matrix += batch_) {
      for (std::int64_t j = 0; j < p.n; j += n_) {
        for (std::int64_t i = 0; i < p.m; i += m_) {
          for (std::int64_t l = 0; l < p.k; l += k_) {
            use(Block{.matrix = matrix,
                      .i = i,
                      .j = j,
                      .l = l,
                      .matrices = std::min(batch_, p.batch - matrix),
                      .m = std::min(m_, p.m - i),
                      .n = std::min(n_, p.n - j),
                      .k = std::min(k_, p.k - l)});
          }
        }
      }
    }
  }

  [[nodiscard]] GemmProblem fp32_part(const Block& x) const {
    GemmProblem part = problem_;
    part.batch = x.matrices;
    part.m = x.m;
    part.n = x.n;
    part.k = x.k;
    part.a_type = part.b_type = part.c_type = part.bias_type = core::DType::f32;
    part.bias = problem_.bias && x.l == 0;
    part.accumulate = problem_.accumulate || x.l > 0;
    part.ldb = b_stride(x);
    part.batch_stride_b = part.ldb * (problem_.trans_b ? x.n : x.k);
    if (!rounds_) {
      part.ldc = problem_.n;
      part.batch_stride_c = problem_.m * problem_.n;
    }
    return part;
  }

  /// to [matrices, rows, columns of stride] = a part of the matrices `from` [.., rows.all, columns.all],
  /// converted.
  static void load(const S* from, const Block& x, Part rows, Part columns, float* to, std::int64_t stride) {
    parallel_for(x.matrices * rows.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t row = (x.matrix + r / rows.count) * rows.all + rows.first + r % rows.count;
        cast(columns.count, from + row * columns.all + columns.first, to + r * stride);
      }
    });
  }

  [[nodiscard]] bool converts_bias() const { return problem_.bias && problem_.bias_type != core::DType::f32; }

  /// The bias of a block's columns, converted into `to` unless it is fp32.
  const float* bias_of(const Block& x, const void* bias, float* to) const {
    if (!converts_bias()) return static_cast<const float*>(bias) + x.j;
    cast(x.n, static_cast<const S*>(bias) + x.j, to);
    return to;
  }

  /// Rounds a block of c to S.
  void round(const float* from, const Block& x, S* to) const {
    parallel_for(x.matrices * x.m, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t row = r / x.m * problem_.m + r % x.m;
        cast(x.n, from + r * x.n, to + row * problem_.n);
      }
    });
  }

  GemmProblem problem_;
  bool rounds_;
  std::int64_t batch_ = 1, m_ = 0, n_ = 0, k_ = 0;  ///< of the largest block
  /// Offsets in the scratch memory, in floats.
  std::int64_t b_at_ = 0, c_at_ = 0, bias_at_ = 0, scratch_at_ = 0;
  std::size_t scratch_bytes_ = 0;
  std::size_t primitives_ = 0;
  std::map<Key, Gemm> gemms_;
};

}  // namespace rooflm::backends::cpu
