// Ring attention on one machine: the blocks of all ranks, put together, are the attention of the whole
// sequence; the fast kernels compute what the reference does.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "program/ops.h"
#include "program/pieces.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_ring.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using backends::CpuKernels;
using core::DType;
using program::Pieces;
using program::TensorId;

/// Sizes of which no tile is full, and some of several tiles; heads of an odd size have no bf16 pairs.
struct Extents {
  std::int64_t parts, seq, dim;
};
constexpr Extents kExtents[] = {{2, 4, 6}, {3, 42, 5}, {2, 300, 16}, {4, 296, 10}};

TEST(RingKernels, ReferenceBlocksAreTheWholeAttention) {
  const auto cpu = backends::make_cpu_backend(CpuKernels::reference, 2);
  for (const auto& [parts, seq, dim] : kExtents)
    expect_whole(ring_of(parts, seq, dim, DType::f64), seq, *cpu, *cpu, 1e-13);
}

/// Sums of fp32; in bf16 each of up to four blocks of y is rounded, 2^-8 of an element, and again where it is
/// joined.
TEST(RingKernels, FastBlocksAreTheWholeAttention) {
  const auto reference = backends::make_cpu_backend(CpuKernels::reference, 2);
  for (const int threads : {1, 3}) {
    const auto fast = backends::make_cpu_backend(CpuKernels::fast, threads);
    for (const auto& [parts, seq, dim] : kExtents) {
      SCOPED_TRACE(seq);
      expect_whole(ring_of(parts, seq, dim, DType::f32), seq, *reference, *fast, 2e-6);
      expect_whole(ring_of(parts, seq, dim, DType::bf16), seq, *reference, *fast, 0x1p-5);
    }
  }
}

TEST(RingKernels, ReferenceTakesBf16) {
  const auto cpu = backends::make_cpu_backend(CpuKernels::reference, 2);
  expect_whole(ring_of(2, 36, 6, DType::bf16), 36, *cpu, *cpu, 0x1p-6);
}

TEST(RingKernels, FastKernelsTakeTheBlocks) {
  const auto fast = backends::make_cpu_backend(CpuKernels::fast, 1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Ring ring = ring_of(2, 8, 4, dtype);
    for (const program::Op& op : ring.blocks.program.ops) {
      if (op.def->work != program::Work::attention) continue;
      const std::string name = fast->make_kernel(ring.blocks.program, op).info.name;
      EXPECT_FALSE(name.starts_with("reference")) << name;
    }
  }
}

/// Positions of pieces are those of the whole sequence: rope on both kinds of kernels, learned ones.
TEST(RingKernels, PositionsAreThoseOfTheSequence) {
  constexpr std::int64_t kSeq = 24, kDim = 6, kParts = 3, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  for (const CpuKernels kind : {CpuKernels::reference, CpuKernels::fast}) {
    const auto cpu = backends::make_cpu_backend(kind, 2);
    program::Attributes attrs = heads(kDim);
    attrs.set("theta", 10000.0);
    attrs.set("inverse", false);
    const auto step = [&](std::int64_t seq, const Pieces& pieces) {
      CaseWriter w("positions");
      const TensorId x = w.activation({kBatch, seq, kWidth});
      const TensorId table = w.weight({kSeq + 1, kWidth});
      if (pieces.parts > 1) pieces.write_to(attrs);
      const TensorId turned = w.op(ops::kRope, {x}, attrs)[0];
      w.op(ops::kAddPositions, {turned, table}, attrs);
      return w.done();
    };
    const Case whole_case = step(kSeq, {});
    OpRunner whole(whole_case, *cpu);
    whole.run_all();
    for (std::int64_t i = 0; i < kParts; ++i) {
      const Pieces pieces{.parts = kParts, .index = i};
      const Case own_case = step(kSeq / kParts, pieces);
      OpRunner own(own_case, *cpu);
      own.write(0, own_rows(whole.read(0), kSeq, pieces));
      own.write(1, whole.read(1));
      own.run_all();
      EXPECT_EQ(own.read(3), own_rows(whole.read(3), kSeq, pieces)) << i;
    }
  }
}

/// Each token belongs to one rank, and all ranks have as many scores below the diagonal.
TEST(Pieces, ShareASequenceOut) {
  for (const std::int64_t parts : {1, 2, 3, 4}) {
    const std::int64_t seq = 12 * parts;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(2 * seq));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < parts; ++i) {
      const auto own = Pieces{.parts = parts, .index = i}.cut(std::span<const std::int64_t>(tokens), seq);
      std::int64_t scores = 0;
      for (std::size_t t = 0; t < own.size() / 2; ++t) scores += own[t] + 1;
      EXPECT_EQ(scores * parts, seq * (seq + 1) / 2);
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, tokens);
  }
}

}  // namespace
}  // namespace rooflm::tests
